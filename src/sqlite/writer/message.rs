//! What callers send to the thread that writes.

use tokio::sync::oneshot;

use crate::job::Job;
use lapsed_core::ledger::LedgerError;

/// Maximum number of jobs that wait. Further callers wait until there is room.
pub(super) const WAITING_MAX: usize = 4_096;

/// The caller that waits for `Writer::external_commits`.
pub(super) type Look = oneshot::Sender<Result<u64, LedgerError>>;

pub(super) enum Message {
    Job(Box<dyn Job>),
    /// One about many rows.
    Long(Box<dyn Job>),
    /// Looks for commits of other connections.
    Look(Look),
    /// Closes the connection.
    Close(oneshot::Sender<()>),
}
