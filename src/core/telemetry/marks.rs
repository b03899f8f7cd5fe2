//! Marks: numbers that change whenever what they stand for may have changed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts changes. Compared with an earlier count, it says cheaply whether there were any.
#[derive(Debug, Default)]
pub(super) struct Mark(AtomicU64);

impl Mark {
    pub fn touch(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The marks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskMarks {
    /// A task started, ended, or was counted differently.
    pub tasks: u64,
    /// A figure changed.
    pub stats: u64,
    /// The number of pauses changed.
    pub pauses: i64,
    /// The daemons, what one of them says of itself, or the workers of a pull queue changed.
    pub members: u64,
}
