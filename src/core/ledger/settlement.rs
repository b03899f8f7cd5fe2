//! Settlements: verdicts to be written, and the results of writing them.

use std::fmt;

use super::Lease;
use crate::task::{UnixMs, Verdict};

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

/// How a claim ended that left its task open. The row keeps it in `lease_until`, where every value up to 0 says that no claim
/// holds the row: a report that is repeated gets the same answer, and another report of the same claim is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOpen {
    Released,
    Failed,
    Snoozed,
    /// A recurring task goes on, and this occurrence did not fail.
    Continued,
    /// Released before it was started, and cancelled meanwhile: the next claim is the last.
    ReleasedForLast,
}

impl LeftOpen {
    /// Returns what a verdict leaves, if it leaves the task open.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Complete | Verdict::CompleteWith(_) => None,
            Verdict::Release | Verdict::GiveBack => Some(Self::Released),
            Verdict::RetryAt { .. } | Verdict::Bury(_) => Some(Self::Failed),
            Verdict::Snooze { .. } => Some(Self::Snoozed),
            Verdict::NextOccurrence { end, .. } => Some(match end.death() {
                None => Self::Continued,
                Some(_) => Self::Failed,
            }),
        }
    }

    /// The value of the column. The statements of MySQL have these numbers in their texts.
    pub fn lease_until(self) -> UnixMs {
        UnixMs(match self {
            Self::Released => -1,
            Self::Failed => -2,
            Self::Snoozed => -3,
            Self::Continued => -4,
            Self::ReleasedForLast => -5,
        })
    }

    /// True if a row with this `lease_until` was left open by this verdict, or one of the same kind.
    pub fn is_by(lease_until: UnixMs, verdict: &Verdict) -> bool {
        Self::of(verdict).is_some_and(|left| {
            lease_until == left.lease_until()
                || (left == Self::Released && lease_until == Self::ReleasedForLast.lease_until())
        })
    }
}
