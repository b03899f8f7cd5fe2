//! The lanes in which signals wait.

use crate::timer::Source;

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
}
