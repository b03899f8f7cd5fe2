//! Errors of pull queues.

use crate::engine::workers::demand::GROUPS_MAX;
use crate::ledger::{LedgerError, Settled};
use crate::task::RESULT_BYTES_MAX;

/// Error of a call of [`PullQueues`](super::PullQueues).
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No route of this daemon has a pull queue of this name.
    #[error("no route has a pull queue `{0}`")]
    UnknownQueue(String),
    /// The text is too short for a claim token.
    #[error("not a claim token: expected the text that came with the task")]
    Token,
    /// The token was changed, or is of another ledger. Nothing of it is believed.
    #[error(
        "claim was lost: expected the text that came with the task, found one that no daemon of this ledger has signed"
    )]
    Forged,
    /// The number of tasks is out of range.
    #[error("expected a count of 1 to {max}, found {found}")]
    Count {
        /// What was found.
        found: usize,
        /// Largest count.
        max: usize,
    },
    /// The name of a worker is too long, or not printable.
    #[error("expected a worker name of at most 64 printable characters")]
    Worker,
    /// Workers of too many different classes ask for tasks of this queue.
    #[error("too many different `classes` of workers of one queue, expected at most {GROUPS_MAX}")]
    Groups,
    /// The result is not JSON, or too long.
    #[error("expected a result that is JSON of at most {RESULT_BYTES_MAX} bytes")]
    Result,
    /// The claim was lost: nothing was written.
    #[error("claim was lost: the task is {0}")]
    Fenced(Settled),
    /// The settlement is not written yet: the ledger does not answer, or the row is locked. It is written when that
    /// ends, unless this daemon stops before. Repeating the call is safe.
    #[error("settlement is not written yet, and may be repeated")]
    NotYet,
    /// The ledger refuses the data.
    #[error("the ledger refuses this result or error text")]
    Refused,
    /// This daemon is stopping, or has not started. Another daemon accepts the call.
    #[error("this daemon is not running")]
    NotRunning,
    /// The ledger does not answer, or refuses the statement.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}
