//! Look-up: the state of one key in the ledger.

use crate::task::{Arming, Origin, RowEvidence, State, UnixMs};

/// Result of [`Claims::look_up`](super::Claims::look_up) for a key that has a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The arming.
    pub arming: Arming,
    /// Its state.
    pub state: State,
    /// When it may start: `end_time`, or the retry that lies ahead.
    pub due_at: UnixMs,
    /// Deleted by a program that knows only the seed's columns (`sts = 1`, `status = 0`): whether that
    /// was a cancellation only Redis can tell. See [`Adoption::undelete`](super::Adoption::undelete).
    pub deleted: bool,
    /// It is being run, and no further attempt will start.
    pub cancelling: bool,
    /// Who set its due time.
    pub origin: Origin,
    /// When something was last said about it.
    pub stamp: Stamp,
}

/// The times that order what is said about a task: see [`RowEvidence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The last change by a version of lapsed that knows the column; 0 if there was none.
    pub changed: UnixMs,
    /// `start_time`, which programs write that know only the first six columns.
    pub created: UnixMs,
    /// `finished_at`.
    pub finished: Option<UnixMs>,
}

impl Lookup {
    /// What adoption asks about it.
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
}
