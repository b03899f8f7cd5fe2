//! Pages of pending tasks by due time.

use std::time::Duration;

use crate::task::{Arming, TaskKey, UnixMs};

/// Request for a page of pending tasks by due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueScan {
    /// The range of due times.
    pub window: Window,
    /// Where the previous page ended, in the order of the window.
    pub after: Option<(UnixMs, u64)>,
    /// Maximum number of rows.
    pub limit: u32,
}

/// A range of due times relative to the ledger's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Overdue by at least this long and not leased, oldest first.
    OverdueOldest(Duration),
    /// Overdue by at least this long and not leased, newest first.
    OverdueNewest(Duration),
    /// Due by now, oldest first, leased or not.
    Due,
    /// Due between now and this long from now, soonest first.
    Ahead(Duration),
    /// Due between `back` ago and `ahead` from now, soonest first: rows with `sts = 1` and `status = 0`, which a legacy
    /// program has deleted.
    Deleted {
        /// Time before now. Legacy programs round the due time down to a second, so that their key outlives it.
        back: Duration,
        /// Time after now.
        ahead: Duration,
    },
}

/// Request for the pending tasks that fall due about now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearScan {
    /// How long ago they fell due at most.
    pub back: Duration,
    /// How far ahead they fall due at most.
    pub ahead: Duration,
    /// Maximum number of index entries, known and leased rows included.
    pub limit: u32,
}

/// Returns true for a row, by id and due time, that the caller already knows.
pub type Known<'a> = &'a (dyn Fn(u64, UnixMs) -> bool + Send + Sync);

/// A pending task found by a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upcoming {
    /// Its key.
    pub key: TaskKey,
    /// Its arming.
    pub arming: Arming,
    /// When it may start.
    pub due_at: UnixMs,
}

/// A page of pending tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DuePage {
    /// Rows whose key is a task key.
    pub rows: Vec<Upcoming>,
    /// Number of rows whose key is not a task key: nothing can run them.
    pub foreign: usize,
    /// `after` of the next page; `None` at the end.
    pub next: Option<(UnixMs, u64)>,
}

/// A class and method that tasks have in common, as the ledger's index names it. Only the ledger reads the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodTag(pub String);

/// Request for the oldest overdue tasks of each class and method in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodScan {
    /// How long they have been overdue at least.
    pub by: Duration,
    /// Where the previous request ended.
    pub after: Option<MethodTag>,
    /// Maximum number of classes and methods.
    pub methods: usize,
    /// Maximum number of rows of each.
    pub limit: u32,
}

/// The oldest overdue tasks of some classes and methods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MethodPages {
    /// The first page of each that has any.
    pub pages: Vec<(MethodTag, DuePage)>,
    /// `after` of the next request; `None` at the end.
    pub next: Option<MethodTag>,
}
