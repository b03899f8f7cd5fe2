//! A webhook as the target of a route: the task is posted to a URL, signed by the Standard Webhooks specification. The
//! response is the result of the run.

mod client;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod poster;
mod reply;
mod resolver;
mod signature;

use std::time::Duration;

use async_trait::async_trait;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use url::Url;

pub(super) use self::client::ClientKey;
pub use self::poster::Poster;
use self::reply::Reply;
use self::resolver::Refused;
use self::signature::sign;
use super::{Handler, HandlerError, TaskContext};
use crate::clock;
use crate::config::WebhookConfig;
use crate::format::duration;
use crate::task::{RESULT_BYTES_MAX, Traceparent};

/// Maximum number of bytes of an error response that are read for the error of the task.
const EXCERPT_BYTES: usize = 1024;

/// Time allowed for reading a body that is used: that of an error, or a result that is kept.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time allowed for draining a success body so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Posts each task to a URL.
///
/// 2xx is success. 410, or the header `lapsed-retry: no`, is a permanent failure. After 429 and 503 the `retry-after` of
/// the server applies. After any other status the retry policy decides.
#[derive(Debug)]
pub(super) struct Webhook {
    config: WebhookConfig,
    client: Result<Client, String>,
}

impl Webhook {
    /// Creates a target from its configuration, and a client or the reason why there is none.
    pub(super) fn new(config: WebhookConfig, client: Result<Client, String>) -> Self {
        Self { config, client }
    }

    /// Returns the headers of a task's request.
    fn headers(&self, context: &TaskContext, body: &str) -> Result<HeaderMap, HandlerError> {
        let mut headers = self.signed(&context.id(), body)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("lapsed-attempt", HeaderValue::from(context.attempt()));
        if let Some(trace) = context.traceparent() {
            headers.insert(
                Traceparent::HEADER,
                HeaderValue::from_str(&trace.to_string())?,
            );
        }
        Ok(headers)
    }

    /// Returns the configured headers, with a signature and the current time.
    fn signed(&self, id: &str, body: &str) -> Result<HeaderMap, HandlerError> {
        let timestamp = clock::wall().0.div_euclid(1000).to_string();
        let mut headers = self.config.headers.clone();
        let value = HeaderValue::from_str;
        headers.insert("webhook-id", value(id)?);
        headers.insert("webhook-timestamp", value(&timestamp)?);
        if !self.config.keys.is_empty() {
            let signatures = sign(&self.config.keys, id, &timestamp, body.as_bytes());
            headers.insert("webhook-signature", value(&signatures)?);
        }
        Ok(headers)
    }

    async fn post(&self, context: &TaskContext) -> Result<Reply, HandlerError> {
        let url = &self.config.url;
        let key = context.key();
        let body = context.to_json_line();
        let headers = self.headers(context, &body)?;
        let full = url.fill(key.class(), key.method(), &context.id())?;
        self.send(full, headers, body).await
    }

    async fn send(
        &self,
        full: Url,
        headers: HeaderMap,
        body: String,
    ) -> Result<Reply, HandlerError> {
        let url = &self.config.url;
        let client = self.client.as_ref().map_err(HandlerError::new)?;
        let sent = client.post(full).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| {
            HandlerError::new(format!("webhook {url}: {}", self.explain(error)))
        })?;
        Ok(self.read(response).await)
    }

    /// Reads a response. Status and headers decide; the body is read for the error or the result, and so that the connection
    /// can be reused, within limits of time and size.
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
        // Without its body the response is still valid.
        let _ = tokio::time::timeout(patience, rest).await;
        Reply {
            status,
            headers,
            body,
        }
    }

    /// Describes an error without the URL, which may contain a secret.
    fn explain(&self, error: reqwest::Error) -> String {
        let limit = self.config.connect_timeout;
        if error.is_timeout() && error.is_connect() {
            return format!("no connection within {}", duration(limit));
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
