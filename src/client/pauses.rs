//! Pauses and resumes tasks.

use super::{ClientError, TaskClient};
use crate::ledger::{PauseAnswer, ReleaseAnswer};
use crate::task::{Due, Pause, Scope};

impl TaskClient {
    /// Pauses a class, a class and method, or [everything](Scope::EVERYTHING), in all daemons, until it is
    /// [resumed](Self::resume). Within 2 s after this has returned, no more runs start. Current runs continue. Tasks that
    /// fall due stay pending. `by` and `reason` are shown to people. To pause a scope twice changes nothing, except that an
    /// [end](Self::pause_until) is removed.
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
    /// [`ClientError`]: a reason that is too long, too many pauses, or a failure of the ledger.
    ///
    /// # Cancel safety
    /// Safe to drop: the scope may or may not be paused.
    pub async fn pause(
        &self,
        scope: &Scope,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, ClientError> {
        Ok(self.ledger.pause(scope, None, by, reason).await?)
    }

    /// As [`pause`](Self::pause), until `end` by the ledger's clock, or until it is resumed before. Then its tasks start as
    /// after a [`resume`](Self::resume). Of a scope that is paused already, the end is replaced.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use lapsed::task::{Due, Scope};
    /// # let (_, tasks) = lapsed::in_memory(&lapsed::Config::default(), lapsed::Handlers::new());
    ///
    /// let end = Due::after(Duration::from_secs(2 * 3600))?;
    /// let paused = tasks.pause_until(&Scope::class("Invoice")?, end, "the shop", "stocktaking").await?;
    /// assert!(paused.pause.until.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`pause`](Self::pause), and for an end that is not in the future.
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn pause_until(
        &self,
        scope: &Scope,
        end: Due,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, ClientError> {
        Ok(self.ledger.pause(scope, Some(end), by, reason).await?)
    }

    /// Lifts the pause of exactly this scope, and returns it; `None` if there was none. Tasks that fell due meanwhile
    /// start within seconds, after those that fall due now. A pause of a wider scope remains.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, ClientError> {
        Ok(self.ledger.resume(scope).await?)
    }

    /// Holds all tasks that were due before now, as a daemon with `engine.hold_overdue` does when it starts.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, ClientError> {
        Ok(self.ledger.hold_overdue(by, reason).await?)
    }

    /// Releases held tasks: of a class, of a class and method, or [all](Scope::EVERYTHING).
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// As [`pause`](Self::pause).
    pub async fn resume_held(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, ClientError> {
        Ok(self.ledger.release(scope, by).await?)
    }

    /// Returns all pauses and holds, oldest first.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn pauses(&self) -> Result<Vec<Pause>, ClientError> {
        Ok(self.ledger.pauses().await?)
    }
}
