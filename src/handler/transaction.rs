//! Effects exactly once: a handler's own transaction, with the completion as its last statement.

use async_trait::async_trait;

use super::{HandlerError, TaskContext};
use crate::ledger::{Ending, TaskTransaction, TransactionError, Transactions};
use crate::task::{Due, UnixMs};

/// What a handler can do in the ledger's own database.
#[async_trait]
pub trait MysqlTask {
    /// Begins a transaction on the ledger's database, for the handler's own statements.
    ///
    /// The session has the server's defaults, except for the time zone, which is UTC.
    ///
    /// # Errors
    /// Retryable: the database did not answer, or the engine runs on another ledger.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&self) -> Result<TaskTransaction, HandlerError>;

    /// Completes the task as the last statement of `tx`, and commits: effects and completion happen
    /// together, once, or not at all. The result given to [`keep_result`](TaskContext::keep_result) before is written
    /// with them. A recurring task gets its next arming instead of the completion.
    ///
    /// # Errors
    /// [`HandlerError::fenced`] if the claim is no longer ours: everything is rolled back. Retryable if
    /// the database does not answer; when the reply to the commit is lost, the row is read back to find out.
    ///
    /// # Cancel safety
    /// Not cancel safe in its result: the commit may or may not have happened. The row tells.
    async fn complete_in(&self, tx: TaskTransaction) -> Result<(), HandlerError>;

    /// As [`complete_in`](Self::complete_in), and in the same transaction makes the next arming of the same key. A task
    /// that was cancelled during the run is only completed. For a recurring task, this is its next arming, and
    /// its series continues after it.
    ///
    /// # Errors
    /// As for `complete_in`; permanent if the due time is refused.
    async fn again_in(&self, tx: TaskTransaction, due: Due) -> Result<(), HandlerError>;
}

#[async_trait]
impl MysqlTask for TaskContext {
    async fn begin(&self) -> Result<TaskTransaction, HandlerError> {
        transactions(self)?.begin().await.map_err(retryable)
    }

    async fn complete_in(&self, tx: TaskTransaction) -> Result<(), HandlerError> {
        let now = self.ledger().clock().now();
        let next = self.following(now);
        settle_in(self, tx, Ending::Complete { next }).await
    }

    async fn again_in(&self, tx: TaskTransaction, due: Due) -> Result<(), HandlerError> {
        let now = self.ledger().clock().now();
        let due = due
            .resolve_checked(now)
            .map_err(|error| HandlerError::permanent(error.to_string()))?;
        // The same due time would be the same arming, which has just been completed.
        let due = if due == self.due() {
            UnixMs(due.0 + 1)
        } else {
            due
        };
        settle_in(self, tx, Ending::Again { now, due }).await
    }
}

async fn settle_in(
    context: &TaskContext,
    tx: TaskTransaction,
    ending: Ending,
) -> Result<(), HandlerError> {
    let settled = transactions(context)?.settle_in(tx, context.lease(), ending, context.result());
    match settled.await.map_err(retryable)? {
        Some(outcome) => {
            context.conclude(outcome);
            Ok(())
        }
        None => Err(HandlerError::fenced()),
    }
}

fn transactions(context: &TaskContext) -> Result<&dyn Transactions, HandlerError> {
    context.ledger().transactions().ok_or_else(|| {
        HandlerError::new("transactions need the MySQL ledger, this engine runs on another one")
    })
}

fn retryable(error: TransactionError) -> HandlerError {
    HandlerError::new(error.to_string())
}
