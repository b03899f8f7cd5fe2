//! Effects exactly once: the handler's own transaction, which ends with the completion of the task.

use async_trait::async_trait;

use super::{HandlerError, TaskContext, ending};
use crate::ledger::mysql::MysqlLedger;
use crate::ledger::{Ending, TaskTransaction, TransactionError};
use crate::task::Due;

/// Transactions of a handler on the ledger's database.
#[async_trait]
pub trait MysqlTask {
    /// Begins a transaction on the ledger's database, for the handler's own statements.
    ///
    /// The session has the server's defaults, except for the time zone, which is UTC.
    ///
    /// # Errors
    /// Retryable: the database did not answer, or the ledger of the engine is not in MySQL.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&self) -> Result<TaskTransaction, HandlerError>;

    /// Completes the task as the last statement of `tx`, and commits: effects and completion happen together, or not at
    /// all. The result of [`keep_result`](TaskContext::keep_result) is written with them. A recurring task gets its next
    /// arming instead of the completion.
    ///
    /// # Errors
    /// [`HandlerError::fenced`] if the claim is lost; everything is rolled back then. Retryable if the database does not
    /// answer. If the reply to the commit is lost, the row is read back to find out whether it happened.
    ///
    /// # Cancel safety
    /// Safe to drop: the commit may or may not happen. The row has the result.
    async fn complete_in(&self, tx: TaskTransaction) -> Result<(), HandlerError>;

    /// As [`complete_in`](Self::complete_in), and creates the next arming of the same key in the same transaction. A task
    /// that was cancelled during the run is only completed. The series of a recurring task continues after this arming.
    ///
    /// # Errors
    /// As for `complete_in`; permanent if the due time is invalid.
    ///
    /// # Cancel safety
    /// As for `complete_in`.
    async fn again_in(&self, tx: TaskTransaction, due: Due) -> Result<(), HandlerError>;
}

#[async_trait]
impl MysqlTask for TaskContext {
    async fn begin(&self) -> Result<TaskTransaction, HandlerError> {
        ledger(self)?.begin().await.map_err(retryable)
    }

    async fn complete_in(&self, tx: TaskTransaction) -> Result<(), HandlerError> {
        settle_in(self, tx, ending::completion(self)).await
    }

    async fn again_in(&self, tx: TaskTransaction, due: Due) -> Result<(), HandlerError> {
        settle_in(self, tx, ending::again(self, due)?).await
    }
}

async fn settle_in(
    context: &TaskContext,
    tx: TaskTransaction,
    ending: Ending,
) -> Result<(), HandlerError> {
    let settled = ledger(context)?.settle_in(tx, context.lease(), ending, context.result());
    ending::conclude(context, settled.await.map_err(retryable)?)
}

fn ledger(context: &TaskContext) -> Result<&MysqlLedger, HandlerError> {
    let database = context.ledger().database();
    database
        .and_then(|ledger| ledger.downcast_ref())
        .ok_or_else(|| {
            HandlerError::new("transactions need the MySQL ledger, this engine runs on another one")
        })
}

fn retryable(error: TransactionError) -> HandlerError {
    HandlerError::new(error.to_string())
}
