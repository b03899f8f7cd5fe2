//! The seam for transactions of handlers on the ledger's own SQLite file.

use async_trait::async_trait;

use super::sqlite::SqliteTransaction;
use super::{Ending, Lease, LedgerError};
use crate::task::Outcome;

/// Transactions that settle a run. Called by [`SqliteTask`](crate::SqliteTask) on behalf of handlers.
#[async_trait]
pub trait FileTransactions: Send + Sync {
    /// Begins a transaction that writes. Every other transaction that writes waits for its end, in order of arrival.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&self) -> Result<SqliteTransaction, LedgerError>;

    /// Settles a run as the last statement of `tx`, and commits. `None`: the claim is lost, and all is rolled back.
    async fn settle_in(
        &self,
        tx: SqliteTransaction,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
    ) -> Result<Option<Outcome>, LedgerError>;
}
