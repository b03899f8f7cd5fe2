//! What calling off and moving a task came to.

use crate::task::{Arming, State};

/// What [`Ledger::cancel`](super::Ledger::cancel) came to, for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It will not start any more.
    Cancelled,
    /// It is being run; no further attempt will start.
    Running,
    /// It had finished: this is how.
    Finished(State),
    /// There is no such task.
    Unknown,
}

/// What [`Ledger::reschedule`](super::Ledger::reschedule) came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleAnswer {
    /// It falls due at the new time; this is its new arming.
    Moved(Arming),
    /// It is being run.
    Running,
    /// It had finished: this is how.
    Finished(State),
    /// There is no such task.
    Unknown,
}
