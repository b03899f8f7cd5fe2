//! Settling a run: what is written, and the result.

use std::fmt;

use super::Lease;
use crate::task::{Mishap, Reason, UnixMs};

/// What is to be written about one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// By what right.
    pub lease: Lease,
    /// What.
    pub ruling: Ruling,
}

/// What a settlement writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Done.
    Complete,
    /// Done, and this is kept of it: JSON, at most [`RESULT_BYTES_MAX`](crate::task::RESULT_BYTES_MAX) bytes.
    CompleteWith(String),
    /// Pending again, not before `at`.
    RetryAt {
        /// When.
        at: UnixMs,
        /// Why; cut to [`ERROR_BYTES_MAX`](crate::task::ERROR_BYTES_MAX).
        error: String,
        /// The newest entry of the history.
        mishap: Mishap,
    },
    /// Pending again, not before `at`; the attempt is not counted, the latest error stays.
    Snooze {
        /// When.
        at: UnixMs,
        /// The entry of the history, in place of one for the snooze before.
        mishap: Mishap,
    },
    /// Dead.
    Bury {
        /// Why, in a word. With [`Expired`](Reason::Expired) and [`Poison`](Reason::Poison) the attempt is not counted:
        /// the task was claimed and not run.
        reason: Reason,
        /// Why; cut to [`ERROR_BYTES_MAX`](crate::task::ERROR_BYTES_MAX).
        error: String,
        /// The newest entry of the history.
        mishap: Mishap,
    },
    /// Pending again; the attempt is not counted, except for a recurring task, whose started occurrence would count as
    /// missed otherwise.
    Release,
    /// Pending again under the next arming of the series: another stable id, counters reset.
    NextOccurrence {
        /// When that is due; not the same time as that of the run.
        next: UnixMs,
        /// Whether the occurrence was run. One that was not leaves error and result of the one before where they are.
        ran: bool,
        /// Why this occurrence failed for good, if it did; cut to [`ERROR_BYTES_MAX`](crate::task::ERROR_BYTES_MAX).
        error: Option<String>,
        /// For the history, if it did.
        mishap: Option<Mishap>,
        /// JSON, what the handler wants to be kept of it, if it succeeded.
        result: Option<String>,
    },
}

impl Ruling {
    /// Whether the run succeeded.
    pub fn is_success(&self) -> bool {
        match self {
            Self::Complete | Self::CompleteWith(_) | Self::NextOccurrence { error: None, .. } => {
                true
            }
            Self::RetryAt { .. }
            | Self::Snooze { .. }
            | Self::Bury { .. }
            | Self::Release
            | Self::NextOccurrence { error: Some(_), .. } => false,
        }
    }
}

/// What [`Ledger::settle`](super::Ledger::settle) came to, for one run.
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
