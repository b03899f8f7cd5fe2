//! Lookup: the state of one key in the ledger.

use crate::task::{Arming, Origin, Removal, RowEvidence, State, UnixMs};

/// Result of [`Claims::look_up`](super::Claims::look_up) for a key that has a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The arming.
    pub arming: Arming,
    /// Its state.
    pub state: State,
    /// When it may start: `end_time`, or the time of the retry.
    pub due_at: UnixMs,
    /// A program that knows only the first six columns has deleted it (`sts = 1`, `status = 0`). Only Redis can tell
    /// whether that was a cancellation. See [`Adoption::undelete`](super::Adoption::undelete).
    pub deleted: bool,
    /// It is running, and no further attempt will start.
    pub cancelling: bool,
    /// What is running is an older arming of the key. This one starts after that run, when it is due.
    pub older_run: bool,
    /// Its latest run has no outcome, and its lease has run out. No alarm was written for it since it was claimed.
    pub interrupted: bool,
    /// Where its due time comes from.
    pub origin: Origin,
    /// When it was last changed.
    pub stamp: Stamp,
}

/// The times by which adoption orders changes of a task: see [`RowEvidence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The last change by a version of lapsed that knows the column; 0 if there is none.
    pub changed: UnixMs,
    /// `start_time`, which programs write that know only the first six columns.
    pub created: UnixMs,
    /// `finished_at`.
    pub finished: Option<UnixMs>,
}

impl Lookup {
    /// Returns what adoption needs to know about the task.
    pub fn booked(&self) -> RowEvidence {
        RowEvidence {
            state: self.state,
            due: self.arming.due,
            due_at: self.due_at,
            origin: self.origin,
            deleted: self.deleted,
            changed: self.stamp.changed,
            created: self.stamp.created,
            ended: self.stamp.finished,
        }
    }

    /// True if a missing entry of the task means that a program removed it: the entry was seen in a set which has not lost it
    /// since, and was not taken for a run that was interrupted.
    pub fn is_removed_with_entry(&self, missing: Removal) -> bool {
        self.had_entry() && !missing.is_unconfirmed(&self.booked())
    }

    /// True if the entry of the task was seen in a set which may have lost it since.
    pub fn may_have_lost_entry(&self, missing: Removal) -> bool {
        self.had_entry() && missing.is_unconfirmed(&self.booked())
    }

    fn had_entry(&self) -> bool {
        self.origin == Origin::Entry && !self.interrupted
    }
}
