//! How a handler's own transaction settles its task.

use crate::task::UnixMs;

/// How a handler's transaction settles its task, if that was not cancelled during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Done, or pending again under the next arming of a recurring task.
    Complete {
        /// Due time of that arming.
        next: Option<UnixMs>,
    },
    /// Pending again under an arming that the handler chose.
    Again {
        /// The present, on the ledger's clock.
        now: UnixMs,
        /// Due time of that arming; not the due time of this run.
        due: UnixMs,
    },
}
