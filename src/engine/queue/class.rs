//! The lanes in which signals wait.

use std::time::Duration;

use crate::timer::Source;

/// What has been overdue for longer than this is a backlog.
const BACKLOG_AFTER: Duration = Duration::from_secs(5);

/// Which signals wait together: a backlog that the sweep works off must not make fresh ones late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalClass {
    /// From timers and from this process.
    Fresh,
    /// From the sweep.
    Backlog,
}

impl SignalClass {
    pub(crate) fn of(source: Source) -> Self {
        match source {
            Source::Event | Source::Nudge | Source::Direct => Self::Fresh,
            Source::Sweep => Self::Backlog,
        }
    }

    /// The class of a task that was found overdue by `late`. What fell due a moment ago is no backlog: only its signal was
    /// lost.
    pub fn of_overdue(late: Duration) -> Self {
        if late < BACKLOG_AFTER {
            Self::Fresh
        } else {
            Self::Backlog
        }
    }
}
