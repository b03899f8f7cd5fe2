//! Runs only what was signed with a shared secret.

use async_trait::async_trait;

use super::{HandlerError, Middleware, Next, TaskContext};
use crate::config::Secret;
use crate::task::is_authentic;

/// Runs a task only if its producer signed it ([`Task::sign`](crate::Task::sign)) with a secret that is known here. Any
/// other is dead at once, without being run.
///
/// In the configuration of a route: `payload_secret = ".."`. Neither a row that some SQL wrote nor a key that some
/// program armed is signed: both are dead here.
#[derive(Debug, Clone)]
pub struct VerifyPayload {
    secrets: Vec<Secret>,
}

impl VerifyPayload {
    /// Signed with this secret.
    pub fn new(secret: impl Into<Secret>) -> Self {
        Self::any_of([secret.into()])
    }

    /// Signed with one of these: the new one and the old one, while a secret is being exchanged.
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
