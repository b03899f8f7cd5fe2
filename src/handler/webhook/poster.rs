//! Posts messages that are no tasks, such as alerts.

use std::fmt;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};

use super::{ClientKey, Webhook};
use crate::clock;
use crate::config::WebhookConfig;
use crate::handler::HandlerError;
use crate::task::{Failure, Outcome};

/// Posts messages to a webhook, signed as tasks are.
pub struct Poster {
    webhook: Webhook,
    limit: Duration,
}

impl Poster {
    /// Creates a poster. A message that is not accepted within `limit` has failed.
    ///
    /// # Errors
    /// A text with the reason: usually no certificate authorities are installed on this machine.
    pub fn new(config: WebhookConfig, limit: Duration) -> Result<Self, String> {
        let client = ClientKey::of(&config).build()?;
        Ok(Self {
            webhook: Webhook::new(config, Ok(client)),
            limit,
        })
    }

    /// Posts JSON. The receiver can recognise a repetition by its `id`, the header `webhook-id`.
    ///
    /// # Errors
    /// Why it was not accepted, without the URL, and whether it is worth another try.
    ///
    /// # Cancel safety
    /// The message may have been received.
    pub async fn post(&self, id: &str, json: String) -> Result<(), Failure> {
        let posted = tokio::time::timeout(self.limit, self.try_post(id, json)).await;
        let result = posted.unwrap_or_else(|_| {
            let (url, limit) = (&self.webhook.config.url, self.limit.as_secs_f64());
            let error = format!("webhook {url}: no answer within {limit} s");
            Err(HandlerError::new(error))
        });
        match result.map_err(HandlerError::into_outcome) {
            Err(Outcome::Failed(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    async fn try_post(&self, id: &str, json: String) -> Result<(), HandlerError> {
        let config = &self.webhook.config;
        let mut headers = self.webhook.signed(id, &json)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let url = config.url.fill("", "", "")?;
        let reply = self.webhook.send(url, headers, json).await?;
        reply.verdict(&config.url, clock::wall())
    }
}

impl fmt::Debug for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poster({})", self.webhook.config.url)
    }
}
