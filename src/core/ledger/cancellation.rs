//! Results of cancellation.

use super::ListCursor;
use crate::task::{State, TaskKey};

/// Result of [`Producer::cancel`](super::Producer::cancel) for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The task will not start.
    Cancelled,
    /// The task is running. No further attempt will start.
    Running,
    /// The task had already finished, in this state.
    Finished(State),
    /// There is no such task.
    Unknown,
}

/// Result of [`Producer::cancel_page`](super::Producer::cancel_page).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CancelPage {
    /// Keys of cancelled tasks: they will not start.
    pub cancelled: Vec<TaskKey>,
    /// Number of cancelled rows whose key is not a task key.
    pub malformed: usize,
    /// Keys of running tasks: no further attempt will start.
    pub running: Vec<TaskKey>,
    /// Number of rows that another session kept locked. They are unchanged.
    pub locked: usize,
    /// `cursor` of the next page; `None` at the end.
    pub next: Option<ListCursor>,
}

impl CancelPage {
    /// Adds a cancelled row.
    pub fn count(&mut self, key: Option<TaskKey>) {
        match key {
            Some(key) => self.cancelled.push(key),
            None => self.malformed += 1,
        }
    }
}
