//! Middleware that verifies signatures.

use async_trait::async_trait;

use super::{HandlerError, Middleware, Next, TaskContext};
use crate::config::Secret;
use crate::task::is_authentic;

/// Middleware that runs only tasks that were signed ([`Task::sign`](crate::Task::sign)) with a known secret. Any other
/// task fails permanently, without calling the handler.
///
/// In the configuration of a route: `payload_secret = ".."`. Rows written by SQL and keys armed by other programs are not
/// signed.
#[derive(Debug, Clone)]
pub struct VerifyPayload {
    secrets: Vec<Secret>,
}

impl VerifyPayload {
    /// Accepts signatures by this secret.
    pub fn new(secret: impl Into<Secret>) -> Self {
        Self::any_of([secret.into()])
    }

    /// Accepts signatures by any of these secrets, such as the old and the new one during a rotation.
    pub fn any_of(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
        }
    }
}

#[async_trait]
impl Middleware for VerifyPayload {
    async fn around(&self, context: TaskContext, next: Next) -> Result<(), HandlerError> {
        let secrets = self.secrets.iter().map(|secret| secret.expose().as_bytes());
        let (key, payload) = (context.key(), context.payload_json());
        match context.signature() {
            Some(signature) if is_authentic(secrets, key, payload, signature) => {
                next.run(context).await
            }
            Some(_) => Err(HandlerError::permanent("payload is not authentic")),
            None => Err(HandlerError::permanent(
                "payload is not authentic: it is not signed",
            )),
        }
    }
}
