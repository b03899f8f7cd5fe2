//! States of a task.

use std::fmt;

/// State of a task.
///
/// ```text
///            create, reschedule                 due, claimed
///  (any) ---------------------> Pending/Waiting ------------> Running
///                                 ^  ^                        |  |  |
///                                 |  +-- retry, release, -----+  |  +-- success --> Done
///                                 |  |   snooze, lease ran out   +-- exhausted, permanent, deadline,
///                                 +---------- redrive ---------------- poison, expired --> Dead
///  cancelled while pending, or when a run ends without success -------------------> Cancelled
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not due yet, or due and waiting for a slot.
    Pending,
    /// Pending, with a retry ahead.
    Waiting,
    /// Claimed, under a lease.
    Running,
    /// It succeeded.
    Done,
    /// It failed for good.
    Dead,
    /// It was cancelled.
    Cancelled,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Waiting,
        Self::Running,
        Self::Done,
        Self::Dead,
        Self::Cancelled,
    ];

    /// True if the state is final.
    pub fn is_finished(self) -> bool {
        match self {
            Self::Done | Self::Dead | Self::Cancelled => true,
            Self::Pending | Self::Waiting | Self::Running => false,
        }
    }

    /// True if the task has not started, and is to start later or when a slot is free.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Pending | Self::Waiting)
    }

    /// Name in SQL, metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
