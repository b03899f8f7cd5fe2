//! The seam for transactions of handlers on the ledger's own database.

use async_trait::async_trait;
use sqlx::MySqlTransaction;

use super::{Ending, Lease, LedgerError};
use crate::task::Outcome;

/// A transaction on the ledger's database, begun by [`MysqlTask::begin`](crate::MysqlTask::begin).
pub type TaskTransaction = MySqlTransaction<'static>;

/// Reason why a handler's transaction did not settle its task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The transaction could not begin.
    #[error("begin transaction: {0}")]
    Begin(Box<dyn std::error::Error + Send + Sync>),
    /// The settling statement failed.
    #[error("complete task: {0}")]
    Settle(Box<dyn std::error::Error + Send + Sync>),
    /// The commit failed, and nothing was written.
    #[error("commit transaction: {0}")]
    Commit(sqlx::Error),
    /// The reply to the commit was lost, and the row could not be read back.
    #[error("commit transaction: {commit}; its result is not known: {read}")]
    Unknown {
        /// Why the commit failed.
        commit: sqlx::Error,
        /// Why the row could not be read.
        read: LedgerError,
    },
}

/// Transactions that settle a run. Called by [`MysqlTask`](crate::MysqlTask) on behalf of handlers.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Begins a transaction in a session with the server's defaults, except for the time zone, which is UTC.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&self) -> Result<TaskTransaction, TransactionError>;

    /// Settles a run as the last statement of `tx`, and commits. `None`: the claim is lost, and all is rolled back.
    async fn settle_in(
        &self,
        tx: TaskTransaction,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
    ) -> Result<Option<Outcome>, TransactionError>;
}
