//! Somebody's server as the target of a route: the task is posted to a URL, signed by the Standard Webhooks
//! specification; the answer says what came of it.

mod client;
mod reply;
mod resolver;
mod signature;

use std::time::Duration;

use async_trait::async_trait;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};

pub(super) use self::client::ClientKey;
use self::reply::Reply;
use self::resolver::Refused;
use self::signature::sign;
use super::{Handler, HandlerError, TaskContext};
use crate::clock;
use crate::config::WebhookConfig;

/// What of an answer may get into the task's error.
const EXCERPT_BYTES: usize = 1024;

/// How long the rest of a failure may take to say what it has to say.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the rest of a success may take, which nobody reads: it is only in the way of the next request.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Posts each task to a URL.
///
/// 2xx succeeded; 410, or `lapsed-retry: no`, failed for good; 429 and 503 may say when to try again; all else is
/// tried again by the retry policy.
#[derive(Debug)]
pub(super) struct Webhook {
    config: WebhookConfig,
    client: Result<Client, String>,
}

impl Webhook {
    /// A target from its configuration, and the client it shares with others; or why there is none.
    pub(super) fn new(config: WebhookConfig, client: Result<Client, String>) -> Self {
        Self { config, client }
    }

    /// What goes with the task, signed for this second.
    fn headers(&self, context: &TaskContext, body: &str) -> Result<HeaderMap, HandlerError> {
        let id = context.id();
        let timestamp = clock::wall().0.div_euclid(1000).to_string();
        let mut headers = self.config.headers.clone();
        let value = HeaderValue::from_str;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("lapsed-attempt", HeaderValue::from(context.attempt()));
        headers.insert("webhook-id", value(&id)?);
        headers.insert("webhook-timestamp", value(&timestamp)?);
        if !self.config.keys.is_empty() {
            let signatures = sign(&self.config.keys, &id, &timestamp, body.as_bytes());
            headers.insert("webhook-signature", value(&signatures)?);
        }
        Ok(headers)
    }

    async fn post(&self, context: &TaskContext) -> Result<Reply, HandlerError> {
        let url = &self.config.url;
        let client = self.client.as_ref().map_err(HandlerError::new)?;
        let key = context.key();
        let task = context.to_json();
        let body = task.to_string();
        let mut headers = self.headers(context, &body)?;
        if let Some(parent) = task["traceparent"]
            .as_str()
            .filter(|text| is_traceparent(text))
        {
            let name = HeaderName::from_static("traceparent");
            headers.insert(name, HeaderValue::from_str(parent)?);
        }
        let full = url.fill(key.class(), key.method(), &context.id())?;
        let sent = client.post(full).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| {
            HandlerError::new(format!("webhook {url}: {}", self.explain(error)))
        })?;
        Ok(self.read(response).await)
    }

    /// The first line decides. The rest is read for what it may say, and so that the connection can be used again;
    /// nobody waits for it long, or reads more of it than is allowed.
    async fn read(&self, mut response: Response) -> Reply {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut excerpt = Vec::new();
        let rest = async {
            let mut bytes = 0;
            while let Ok(Some(chunk)) = response.chunk().await {
                let room = EXCERPT_BYTES - excerpt.len();
                excerpt.extend_from_slice(&chunk[..chunk.len().min(room)]);
                bytes += chunk.len() as u64;
                if bytes > self.config.response_bytes_max {
                    break;
                }
            }
        };
        let patience = match status.is_success() {
            true => DRAIN_TIMEOUT,
            false => BODY_TIMEOUT,
        };
        // Whatever becomes of it, there is an answer.
        let _ = tokio::time::timeout(patience, rest).await;
        Reply {
            status,
            headers,
            excerpt: String::from_utf8_lossy(&excerpt).into_owned(),
        }
    }

    /// What went wrong, without the URL: it may hold a secret.
    fn explain(&self, error: reqwest::Error) -> String {
        let limit = self.config.connect_timeout;
        if error.is_timeout() && error.is_connect() {
            return format!("no connection within {} s", limit.as_secs_f64());
        }
        let error = error.without_url();
        let mut text = String::new();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if let Some(refused) = cause.downcast_ref::<Refused>() {
                return refused.to_string();
            }
            let words = cause.to_string();
            if !text.ends_with(&words) {
                let colon = if text.is_empty() { "" } else { ": " };
                text = text + colon + &words;
            }
            source = cause.source();
        }
        match text.is_empty() {
            true => error.to_string(),
            false => text,
        }
    }
}

#[async_trait]
impl Handler for Webhook {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let reply = self.post(&context).await?;
        tracing::debug!(task.key = %context.key(), status = reply.status.as_u16(), webhook = %self.config.url, "webhook answered");
        reply.verdict(&self.config.url, clock::wall())
    }
}

/// Whether it is a W3C trace context of a known length: `00-<32 hex>-<16 hex>-<2 hex>`, not all zeros.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, digits| {
        let lower = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        part.len() == digits && part.bytes().all(lower)
    };
    let some = |part: &str| part.bytes().any(|c| c != b'0');
    match parts[..] {
        [version, trace, parent, flags] => {
            hex(version, 2)
                && version != "ff"
                && hex(trace, 32)
                && some(trace)
                && hex(parent, 16)
                && some(parent)
                && hex(flags, 2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sound_trace_context_is_sent_on() {
        let sound = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(is_traceparent(sound));
        let refused = [
            "",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331\r\nx: y-01",
        ];
        for text in refused {
            assert!(!is_traceparent(text), "{text}");
        }
    }
}
