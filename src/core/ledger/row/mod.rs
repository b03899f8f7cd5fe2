//! A row of the table, and the effect of each verb on it: the rules of the ledgers that keep them in this process.

mod administration;
mod adoption;
mod change;
mod claim;
mod reason;
mod recurrence;
mod series;
mod settle;
mod transaction;
mod transfer;
mod view;

pub use self::reason::StoredReason;
pub use self::recurrence::StoredRecurrence;
pub use self::transfer::Arrival;

use crate::ledger::{CancelAnswer, IfPending, NewTask, Owner};
use crate::task::{Arming, AttemptError, Contents, Origin, State, TaskKey, UnixMs, row_due};

/// A row of the table, a field for each column; see `migrations/tb_time_limit_task.sql`.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: u64,
    pub key: TaskKey,
    pub status: Status,
    pub deleted: bool,
    pub start_time: UnixMs,
    pub end_time: UnixMs,
    pub owner: Option<Owner>,
    pub daemon: String,
    pub lease_until: UnixMs,
    pub run_end: UnixMs,
    pub retry_at: UnixMs,
    pub attempt: u16,
    pub crashes: u8,
    pub contents: Contents,
    pub recurrence: Option<StoredRecurrence>,
    pub last_error: Option<String>,
    pub reason: Option<StoredReason>,
    pub history: Vec<AttemptError>,
    pub result: Option<String>,
    pub finished_at: Option<UnixMs>,
    pub changed_at: UnixMs,
    pub origin: Origin,
    /// A line of [`Progress`](crate::ledger::Progress).
    pub progress: Option<String>,
    /// The latest claim; 0 if there is none, or it is not known.
    pub claimed_at: UnixMs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Unprocessed,
    Processed,
    Dead,
    Cancelled,
}

pub(super) const NEVER: UnixMs = UnixMs(0);

impl Row {
    /// A new row. It is never created in a whole second, because that marks rows of older programs.
    pub(super) fn new(id: u64, task: &NewTask, now: UnixMs) -> Self {
        let now = row_due(now);
        let NewTask {
            key,
            due,
            contents,
            attempts,
            if_pending: _,
            replaces: _,
            recurrence,
        } = task.clone();
        Self {
            id,
            key,
            status: Status::Unprocessed,
            deleted: false,
            start_time: now,
            end_time: due,
            owner: None,
            daemon: String::new(),
            lease_until: NEVER,
            run_end: if attempts > 0 { due } else { NEVER },
            retry_at: NEVER,
            attempt: attempts,
            crashes: 0,
            contents,
            recurrence: recurrence.map(StoredRecurrence::Known),
            last_error: None,
            reason: None,
            history: Vec::new(),
            result: None,
            finished_at: None,
            changed_at: now,
            origin: Origin::Row,
            progress: None,
            claimed_at: NEVER,
        }
    }

    pub(super) fn arming(&self) -> Arming {
        Arming {
            row: self.id,
            due: self.end_time,
        }
    }

    pub(super) fn has_run(&self) -> bool {
        self.run_end == self.end_time
    }

    pub(super) fn due_at(&self) -> UnixMs {
        if self.has_run() {
            self.end_time.max(self.retry_at)
        } else {
            self.end_time
        }
    }

    pub(super) fn leased(&self, now: UnixMs) -> bool {
        self.lease_until >= now
    }

    /// True if what is running is an older arming of the key. A move holds its rows as if they were running.
    pub(super) fn waits_for_run(&self, now: UnixMs) -> bool {
        self.leased(now) && !self.has_run() && !self.is_held()
    }

    pub(super) fn free_and_due(&self, now: UnixMs) -> bool {
        self.status == Status::Unprocessed
            && !self.deleted
            && self.due_at() <= now
            && !self.leased(now)
    }

    pub(super) fn state(&self, now: UnixMs) -> State {
        match self.status {
            Status::Processed => State::Done,
            Status::Dead => State::Dead,
            Status::Cancelled => State::Cancelled,
            Status::Unprocessed if self.leased(now) => State::Running,
            Status::Unprocessed if self.deleted => State::Cancelled,
            Status::Unprocessed if self.has_run() && self.retry_at > now => State::Waiting,
            Status::Unprocessed => State::Pending,
        }
    }

    /// True if the policy keeps this row when another arming of its key is requested.
    fn stays(&self, policy: IfPending, now: UnixMs) -> bool {
        let live = self.status == Status::Unprocessed && !self.deleted;
        let runs = self.status == Status::Unprocessed && self.leased(now);
        match policy {
            IfPending::Move => false,
            // While an older arming is running, this one is the next run.
            IfPending::Keep => live && !(runs && self.has_run()),
            IfPending::Refuse => live || runs,
        }
    }

    /// Turns the row into the requested arming, unless it is the same arming or the policy keeps the row.
    pub(super) fn create_over(&mut self, task: &NewTask, now: UnixMs) {
        if self.end_time == task.due && self.status != Status::Cancelled {
            let runs = self.leased(now) && self.has_run() && !self.is_held();
            let replaces = task.replaces_same_due() && !runs && !self.is_same_as(task);
            if self.status == Status::Unprocessed && replaces {
                // A move holds the row as it was: what takes its place is not of that move.
                self.owner = self.owner.filter(|_| !self.is_held());
                self.begin_anew(task, now);
            } else if self.status == Status::Unprocessed {
                self.deleted = false;
                self.finished_at = None;
                self.changed_at = now;
            }
            return;
        }
        if self.stays(task.if_pending, now) {
            return;
        }
        self.begin_anew(task, now);
    }

    /// True if the row has the contents of a task.
    fn is_same_as(&self, task: &NewTask) -> bool {
        self.recurrence.is_some() == task.recurrence.is_some()
            && self.contents.is_same_as(&task.contents)
    }

    fn begin_anew(&mut self, task: &NewTask, now: UnixMs) {
        let Self {
            id,
            owner,
            lease_until,
            daemon,
            ..
        } = self.clone();
        *self = Self {
            owner,
            lease_until,
            daemon,
            ..Self::new(id, task, now)
        };
    }

    pub(super) fn cancel(&mut self, now: UnixMs) -> CancelAnswer {
        if self.status == Status::Unprocessed {
            self.changed_at = now;
        }
        match self.state(now) {
            State::Pending | State::Waiting | State::Cancelled => {
                self.deleted = true;
                self.owner = None;
                self.finish(Status::Cancelled, now);
                CancelAnswer::Cancelled
            }
            State::Running => {
                self.deleted = true;
                self.finished_at = Some(now);
                CancelAnswer::Running
            }
            state @ (State::Done | State::Dead) => CancelAnswer::Finished(state),
        }
    }

    pub(super) fn finish(&mut self, status: Status, now: UnixMs) {
        self.status = status;
        self.lease_until = NEVER;
        self.finished_at = Some(now);
    }

    /// True if a configuration wants the series, so that retention keeps the row.
    pub(super) fn is_configured(&self) -> bool {
        self.recurrence
            .as_ref()
            .is_some_and(StoredRecurrence::is_configured)
    }

    /// Returns when the task finished.
    pub(super) fn finished(&self) -> UnixMs {
        self.finished_at.unwrap_or(self.end_time)
    }
}

#[cfg(test)]
mod tests;
