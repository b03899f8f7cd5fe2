//! Reading pending tasks by due time.

use std::time::Duration;

use crate::task::{Arming, TaskKey, UnixMs};

/// A page of pending tasks by due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueScan {
    /// Which tasks.
    pub window: Window,
    /// Only those behind this one, in the order of the window.
    pub after: Option<(UnixMs, u64)>,
    /// Longest page.
    pub limit: u32,
}

/// A stretch of due times, seen from the ledger's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Overdue by at least this long and not leased, oldest first.
    OverdueOldest(Duration),
    /// Overdue by at least this long and not leased, newest first.
    OverdueNewest(Duration),
    /// Due from now until so long from now, the soonest first.
    Ahead(Duration),
    /// Due from so long ago until so long from now, the soonest first: the rows with `sts = 1` and `status = 0`,
    /// which a legacy program has deleted.
    Deleted {
        /// How far back. Such programs round the due time down to a second: their key outlives it.
        back: Duration,
        /// How far ahead.
        ahead: Duration,
    },
}

/// Whether a row is known to fall due then.
pub type Known<'a> = &'a (dyn Fn(u64, UnixMs) -> bool + Send + Sync);

/// A row of a [`DueScan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upcoming {
    /// The task.
    pub key: TaskKey,
    /// Its arming.
    pub arming: Arming,
    /// When it may start.
    pub due_at: UnixMs,
}

/// A page, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DuePage {
    /// Rows with keys in the grammar.
    pub rows: Vec<Upcoming>,
    /// Number of rows with a malformed key: they cannot run.
    pub foreign: usize,
    /// Give this as `after` for the next page; `None` at the end.
    pub next: Option<(UnixMs, u64)>,
}
