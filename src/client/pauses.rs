//! Pausing tasks, and letting them go on.

use super::{ClientError, TaskClient};
use crate::ledger::{PauseAnswer, ReleaseAnswer};
use crate::task::{Pause, Scope};

impl TaskClient {
    /// Pauses a class, a class and method, or [everything](Scope::EVERYTHING): no run of it starts more than 2 s after
    /// this has returned, in any daemon, until it is [resumed](Self::resume). What runs goes on; what falls due
    /// meanwhile stays pending. `by` and `reason` are for people. Pausing twice changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lapsed::task::Scope;
    /// # let (_, tasks) = lapsed::in_memory(&lapsed::Config::default(), lapsed::Handlers::new());
    ///
    /// let invoices = Scope::method("Invoice", "send")?;
    /// tasks.pause(&invoices, "the shop", "the mail server is down").await?;
    /// assert_eq!(tasks.pauses().await?.len(), 1);
    /// tasks.resume(&invoices).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]: a reason that is too long, too many pauses, or the ledger.
    ///
    /// # Cancel safety
    /// Safe to drop; it may or may not be paused then.
    pub async fn pause(
        &self,
        scope: &Scope,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, ClientError> {
        Ok(self.ledger.pause(scope, by, reason).await?)
    }

    /// Lifts the pause of exactly this scope; answers what was lifted, if there was one. What fell due meanwhile starts
    /// within seconds, behind what falls due now. A wider pause stays.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, ClientError> {
        Ok(self.ledger.resume(scope).await?)
    }

    /// Holds everything that was due before now, as a daemon does that starts with `engine.hold_overdue`.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, ClientError> {
        Ok(self.ledger.hold_overdue(by, reason).await?)
    }

    /// Lets held tasks go: of a class, of a class and method, or [all](Scope::EVERYTHING).
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn resume_held(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, ClientError> {
        Ok(self.ledger.release(scope, by).await?)
    }

    /// Everything that is paused or held, the oldest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pauses(&self) -> Result<Vec<Pause>, ClientError> {
        Ok(self.ledger.pauses().await?)
    }
}
