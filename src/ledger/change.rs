//! Changes of several tasks in one transaction, decided by the rows as they are in it.

use super::{NewTask, SeriesRow};
use crate::task::{Arming, UnixMs};

/// What becomes of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It is written over, even if its due time stays the same. Its policy for an existing task is ignored. A task
    /// that runs or has ended with the same due time stays as it is: no arming runs twice.
    Write(Box<NewTask>),
    /// A pending task gets another due time, as by [`Producer::reschedule`](super::Producer::reschedule).
    Move(UnixMs),
    /// It is cancelled, as by [`Producer::cancel`](super::Producer::cancel).
    Cancel,
}

/// Returns the change of each task, given the ledger's time and the rows in the order of the keys.
///
/// May be called more than once, if the transaction has to be repeated: only what the last call returns takes effect.
pub type Decide = dyn Fn(UnixMs, &[Option<SeriesRow>]) -> Vec<Change> + Send + Sync;

/// What [`Producer::change`](super::Producer::change) did to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Nothing.
    Kept,
    /// It has this arming now.
    Armed(Arming),
    /// It is cancelled, or its run is the last.
    Cancelled,
}
