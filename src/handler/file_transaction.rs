//! Effects exactly once, in an SQLite file: the handler's own transaction, which ends with the completion of the task.

use async_trait::async_trait;

use super::{HandlerError, TaskContext, ending};
use crate::ledger::sqlite::SqliteLedger;
use crate::ledger::{Ending, LedgerError, SqliteTransaction};
use crate::task::Due;

/// Transactions of a handler on the ledger's file. As [`MysqlTask`](crate::MysqlTask) for a ledger in MySQL.
///
/// ```
/// use lapsed::{HandlerError, SqliteTask as _, TaskContext};
///
/// async fn end_auction(task: TaskContext, (id,): (u64,)) -> Result<(), HandlerError> {
///     let tx = task.begin().await?;
///     tx.execute("UPDATE auctions SET ended = 1 WHERE id = ?1", [id.cast_signed()])?;
///     task.complete_in(tx).await
/// }
/// ```
#[async_trait]
pub trait SqliteTask {
    /// Begins a transaction on the ledger's file, for the handler's own statements. Other transactions that write wait for
    /// its end, those of the daemon too.
    ///
    /// # Errors
    /// Retryable: another process keeps the file locked, or the ledger of the engine is not in an SQLite file.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&self) -> Result<SqliteTransaction, HandlerError>;

    /// Completes the task as the last statement of `tx`, and commits: effects and completion happen together, or not at
    /// all. The result of [`keep_result`](TaskContext::keep_result) is written with them. A recurring task gets its next
    /// arming instead of the completion.
    ///
    /// # Errors
    /// [`HandlerError::fenced`] if the claim is lost; everything is rolled back then. Retryable if the commit fails.
    ///
    /// # Cancel safety
    /// Safe to drop: the commit may or may not happen. The row has the result.
    async fn complete_in(&self, tx: SqliteTransaction) -> Result<(), HandlerError>;

    /// As [`complete_in`](Self::complete_in), and creates the next arming of the same key in the same transaction. A task
    /// that was cancelled during the run is only completed. The series of a recurring task continues after this arming.
    ///
    /// # Errors
    /// As for `complete_in`; permanent if the due time is invalid.
    ///
    /// # Cancel safety
    /// As for `complete_in`.
    async fn again_in(&self, tx: SqliteTransaction, due: Due) -> Result<(), HandlerError>;
}

#[async_trait]
impl SqliteTask for TaskContext {
    async fn begin(&self) -> Result<SqliteTransaction, HandlerError> {
        ledger(self)?.begin().await.map_err(retryable)
    }

    async fn complete_in(&self, tx: SqliteTransaction) -> Result<(), HandlerError> {
        settle_in(self, tx, ending::completion(self)).await
    }

    async fn again_in(&self, tx: SqliteTransaction, due: Due) -> Result<(), HandlerError> {
        settle_in(self, tx, ending::again(self, due)?).await
    }
}

async fn settle_in(
    context: &TaskContext,
    tx: SqliteTransaction,
    ending: Ending,
) -> Result<(), HandlerError> {
    let settled = ledger(context)?.settle_in(tx, context.lease(), ending, context.result());
    ending::conclude(context, settled.await.map_err(retryable)?)
}

fn ledger(context: &TaskContext) -> Result<&SqliteLedger, HandlerError> {
    let database = context.ledger().database();
    database.and_then(|ledger| ledger.downcast_ref()).ok_or_else(|| {
        HandlerError::new(
            "these transactions need a ledger in an SQLite file, this engine runs on another one",
        )
    })
}

fn retryable(error: LedgerError) -> HandlerError {
    HandlerError::new(error.to_string())
}
