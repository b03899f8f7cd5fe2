//! Somebody's server as the target of a route: the task is posted to a URL, signed by the Standard Webhooks
//! specification; the answer says what came of it.

mod client;
mod reply;
mod resolver;
mod signature;

use std::time::Duration;

use async_trait::async_trait;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};

pub(super) use self::client::ClientKey;
use self::reply::Reply;
use self::resolver::Refused;
use self::signature::sign;
use super::{Handler, HandlerError, TaskContext};
use crate::clock;
use crate::config::WebhookConfig;
use crate::task::RESULT_BYTES_MAX;

/// What of an answer may get into the task's error.
const EXCERPT_BYTES: usize = 1024;

/// How long the rest of an answer may take, where it has something to say: why it failed, or what is kept.
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
        if let Some(trace) = context.traceparent() {
            headers.insert("traceparent", value(&trace.to_string())?);
        }
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
        let body = context.to_json_line();
        let headers = self.headers(context, &body)?;
        let full = url.fill(key.class(), key.method(), &context.id())?;
        let sent = client.post(full).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| {
            HandlerError::new(format!("webhook {url}: {}", self.explain(error)))
        })?;
        Ok(self.read(response).await)
    }

    /// The first line decides. The rest is read for what it may say or what is kept of it, and so that the connection
    /// can be used again; nobody waits for it long, or reads more of it than is allowed.
    async fn read(&self, mut response: Response) -> Reply {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let (mut body, mut keeps) = (Vec::new(), EXCERPT_BYTES);
        if status.is_success() && self.config.keep_result {
            keeps = RESULT_BYTES_MAX;
        }
        let rest = async {
            let mut bytes = 0;
            while let Ok(Some(chunk)) = response.chunk().await {
                let room = keeps - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                bytes += chunk.len() as u64;
                if bytes > self.config.response_bytes_max {
                    break;
                }
            }
        };
        let patience = match status.is_success() && !self.config.keep_result {
            true => DRAIN_TIMEOUT,
            false => BODY_TIMEOUT,
        };
        // Whatever becomes of it, there is an answer.
        let _ = tokio::time::timeout(patience, rest).await;
        Reply {
            status,
            headers,
            body,
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
        if self.config.keep_result && reply.status.is_success() && !reply.body.is_empty() {
            context.keep_output(&reply.body);
        }
        reply.verdict(&self.config.url, clock::wall())
    }
}
