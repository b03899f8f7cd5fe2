//! Signal classes: fresh and backlog.

use std::time::Duration;

use crate::timer::Source;

/// A task that is overdue for longer than this belongs to the backlog.
const BACKLOG_AFTER: Duration = Duration::from_secs(5);

/// Class of a signal. Each class has queues of its own, so that a backlog from the sweep does not delay fresh signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalClass {
    /// Signals from timers and from this process.
    Fresh,
    /// Signals from the sweep.
    Backlog,
}

impl SignalClass {
    pub fn of(source: Source) -> Self {
        match source {
            Source::Event | Source::Nudge | Source::Direct => Self::Fresh,
            Source::Sweep => Self::Backlog,
        }
    }

    /// The class of a task that the sweep finds overdue by `late`. A task that fell due a moment ago is fresh: only its
    /// signal was lost.
    pub fn of_overdue(late: Duration) -> Self {
        if late < BACKLOG_AFTER {
            Self::Fresh
        } else {
            Self::Backlog
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_fresh_until_it_is_late_for_the_span_of_the_backlog() {
        let just_before = BACKLOG_AFTER - Duration::from_millis(1);
        assert_eq!(SignalClass::of_overdue(just_before), SignalClass::Fresh);
        assert_eq!(SignalClass::of_overdue(BACKLOG_AFTER), SignalClass::Backlog);
    }
}
