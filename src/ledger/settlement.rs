//! Settlements: verdicts to be written, and the results of writing them.

use std::fmt;

use super::Lease;
use crate::task::Verdict;

/// The verdict on one run, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The lease of the run.
    pub lease: Lease,
    /// The verdict.
    pub verdict: Verdict,
}

/// Result of [`Claims::settle`](super::Claims::settle) for one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The verdict is written.
    Applied,
    /// The task was cancelled while it ran, and the run did not succeed. It is cancelled now.
    Cancelled,
    /// The recurring task was cancelled while it ran, and the run succeeded: it is done now.
    Ended,
    /// The handler has marked the row as processed itself: the run counts as succeeded. For a recurring task whose
    /// verdict was no success, the lease is kept, and the caller settles the run again as a success.
    ByHandler,
    /// The task was created again while it ran: the result is discarded, and the lease is released.
    Superseded,
    /// Another daemon has claimed or finished it: the result is discarded.
    Fenced,
    /// Another session has locked the row: nothing was written. Try again later.
    Locked,
}

impl fmt::Display for Settled {
    /// The result in a few words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Applied => "written",
            Self::Cancelled => "cancelled during the run",
            Self::Ended => "done, and its series is cancelled",
            Self::ByHandler => "marked as processed by its handler",
            Self::Superseded => "created again during the run",
            Self::Fenced => "claimed or finished by another daemon",
            Self::Locked => "row locked by another session",
        })
    }
}
