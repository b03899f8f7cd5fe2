//! Settling a run: what is written, and the result.

use std::fmt;

use super::Lease;
use crate::task::Verdict;

/// The verdict on one run, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The lease of the run.
    pub lease: Lease,
    /// What is written.
    pub verdict: Verdict,
}

/// What [`Claims::settle`](super::Claims::settle) came to, for one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Written.
    Applied,
    /// The task was cancelled while it ran, and the run did not succeed: it is cancelled now.
    Cancelled,
    /// The task was to come again but was cancelled while it ran, and the run succeeded: it is done now.
    Ended,
    /// The handler had marked the row processed itself: it counts as succeeded. If it comes again, and this is not the
    /// answer to a success, the lease is still there: that it succeeded is to be written.
    ByHandler,
    /// The key was created anew while it ran: the result is discarded, the lease given back.
    Superseded,
    /// Somebody else holds or finished it: the result is discarded.
    Fenced,
    /// Another session holds the row's lock: nothing was written, try again later.
    Locked,
}

impl fmt::Display for Settled {
    /// What became of the settlement, in a few words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Applied => "written",
            Self::Cancelled => "cancelled during the run",
            Self::Ended => "done, and its series is cancelled",
            Self::ByHandler => "marked as processed by its handler",
            Self::Superseded => "created anew during the run",
            Self::Fenced => "claimed or finished by another daemon",
            Self::Locked => "row locked by another session",
        })
    }
}
