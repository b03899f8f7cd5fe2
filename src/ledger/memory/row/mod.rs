//! A row of the table, and the effect of each verb on it.

mod settle;
mod view;

use crate::ledger::{
    CancelAnswer, Claimant, FoundLease, IfPending, Lookup, NewTask, Owner, REDRIVEN_AGO, SeriesRow,
    Upcoming,
};
use crate::task::{
    Arming, How, Mishap, Origin, PAYLOAD_READ_MAX, Reason, Recurrence, State, TaskKey, UnixMs,
};

/// A row of the table, a field for each column; see `migrations/tb_time_limit_task.sql`.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) key: TaskKey,
    pub(super) status: Status,
    pub(super) deleted: bool,
    pub(super) start_time: UnixMs,
    pub(super) end_time: UnixMs,
    pub(super) owner: Option<Owner>,
    pub(super) daemon: String,
    pub(super) lease_until: UnixMs,
    pub(super) run_end: UnixMs,
    pub(super) retry_at: UnixMs,
    pub(super) attempt: u16,
    pub(super) crashes: u8,
    pub(super) max_attempts: Option<u16>,
    pub(super) tag: Option<String>,
    pub(super) payload: Option<String>,
    pub(super) recurrence: Option<Recurrence>,
    pub(super) last_error: Option<String>,
    pub(super) reason: Option<Reason>,
    pub(super) history: Vec<Mishap>,
    pub(super) result: Option<String>,
    pub(super) finished_at: Option<UnixMs>,
    pub(super) changed_at: UnixMs,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Unprocessed,
    Processed,
    Dead,
    Cancelled,
}

pub(super) const NEVER: UnixMs = UnixMs(0);

impl Row {
    pub(super) fn new(id: u64, task: &NewTask, now: UnixMs) -> Self {
        let NewTask {
            key,
            due,
            payload,
            tag,
            max_attempts,
            attempts,
            if_pending: _,
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
            max_attempts,
            tag,
            payload,
            recurrence,
            last_error: None,
            reason: None,
            history: Vec::new(),
            result: None,
            finished_at: None,
            changed_at: now,
            origin: Origin::Row,
        }
    }

    /// True if the row has not changed since `seen`. A retry may have become due since.
    pub(super) fn is_unchanged_since(&self, seen: &Lookup, now: UnixMs) -> bool {
        let pending = |state| match state {
            State::Waiting => State::Pending,
            state => state,
        };
        let present = self.lookup(now);
        present.arming == seen.arming
            && pending(present.state) == pending(seen.state)
            && present.deleted == seen.deleted
            && present.cancelling == seen.cancelling
            && present.stamp.changed == seen.stamp.changed
            && present.stamp.created == seen.stamp.created
    }

    /// Turns the row into another arming, on behalf of a key. A task that has not finished keeps payload, tag, limit and
    /// recurrence.
    pub(super) fn adopt(
        &mut self,
        due: UnixMs,
        heard: UnixMs,
        from_key: bool,
        payload: Option<String>,
    ) {
        let keeps = self.status == Status::Unprocessed;
        let before = self.clone();
        *self = Self {
            owner: before.owner,
            lease_until: before.lease_until,
            daemon: before.daemon,
            origin: match from_key {
                true => Origin::Key,
                false => before.origin,
            },
            ..Self::new(self.id, &NewTask::new(before.key, due), heard)
        };
        if keeps {
            self.payload = before.payload;
            self.tag = before.tag;
            self.max_attempts = before.max_attempts;
            self.recurrence = before.recurrence;
        }
        if payload.is_some() {
            self.payload = payload;
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
            if self.status == Status::Unprocessed {
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

    pub(super) fn claim(&mut self, by: &Claimant, owner: Owner, now: UnixMs) {
        let counts = self.has_run();
        self.attempt = if counts { self.attempt } else { 0 }.saturating_add(1);
        self.crashes = if counts {
            self.crashes
                .saturating_add(u8::from(self.lease_until > NEVER))
        } else {
            0
        };
        self.retry_at = if counts { self.retry_at } else { NEVER };
        self.run_end = self.end_time;
        self.owner = Some(owner);
        self.daemon.clone_from(&by.daemon);
        self.lease_until = now.plus(by.lease);
    }

    /// Ends the lease of a dead daemon. Returns false if that lease no longer holds.
    pub(super) fn end_lease(&mut self, lease: &FoundLease, now: UnixMs) -> bool {
        let holds = self.status == Status::Unprocessed
            && self.leased(now)
            && self.owner == Some(lease.owner)
            && self.daemon == lease.daemon;
        if holds {
            self.lease_until = UnixMs(now.0 - 1);
        }
        holds
    }

    /// Returns the row as scans return it.
    pub(super) fn upcoming(&self) -> Upcoming {
        Upcoming {
            key: self.key.clone(),
            arming: self.arming(),
            due_at: self.due_at(),
        }
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

    pub(super) fn readable_payload(&self) -> Option<&String> {
        let payload = self.payload.as_ref();
        payload.filter(|payload| payload.len() <= PAYLOAD_READ_MAX)
    }

    pub(super) fn oversize(&self) -> Option<u64> {
        let bytes = self.payload.as_ref()?.len();
        (bytes > PAYLOAD_READ_MAX).then_some(bytes as u64)
    }

    pub(super) fn finish(&mut self, status: Status, now: UnixMs) {
        self.status = status;
        self.lease_until = NEVER;
        self.finished_at = Some(now);
    }

    /// Writes the series over the row. Returns false if the row has changed since `seen`.
    pub(super) fn write_series(&mut self, task: &NewTask, seen: &SeriesRow, now: UnixMs) -> bool {
        let recurrence = self.recurrence.as_ref().map(ToString::to_string);
        if !self.is_unchanged_since(&seen.lookup, now) || recurrence != seen.recurrence {
            return false;
        }
        let open = self.status == Status::Unprocessed && !self.deleted;
        if open && self.end_time == task.due {
            self.payload.clone_from(&task.payload);
            self.tag.clone_from(&task.tag);
            self.max_attempts = task.max_attempts;
            self.recurrence.clone_from(&task.recurrence);
            self.origin = Origin::Row;
            self.changed_at = now;
        } else {
            self.begin_anew(task, now);
        }
        true
    }

    /// Marks the recurrence as configured. Returns false if the recurrence has changed since `seen`.
    pub(super) fn mark_configured(&mut self, seen: &SeriesRow) -> bool {
        let stored = self.recurrence.as_ref().map(ToString::to_string);
        let is_seen = stored.is_some() && stored == seen.recurrence;
        if is_seen {
            self.recurrence = self.recurrence.take().map(Recurrence::configured);
        }
        is_seen
    }

    /// True if a configuration wants the series, so that retention keeps the row.
    pub(super) fn is_configured(&self) -> bool {
        self.recurrence
            .as_ref()
            .is_some_and(Recurrence::is_configured)
    }

    /// Returns when the task finished.
    pub(super) fn finished(&self) -> UnixMs {
        self.finished_at.unwrap_or(self.end_time)
    }

    /// Returns the number of snoozes in a row.
    pub(super) fn snoozes(&self) -> u16 {
        match self.history.first() {
            Some(latest) if latest.how == How::Snoozed => latest.snoozes,
            _ => 0,
        }
    }

    /// Makes a dead task pending. Returns false if it is not dead.
    pub(super) fn redrive(&mut self, now: UnixMs) -> bool {
        let dead = self.status == Status::Dead;
        if dead {
            self.status = Status::Unprocessed;
            self.deleted = false;
            self.start_time = now;
            self.changed_at = now;
            self.run_end = self.end_time;
            self.retry_at = self
                .end_time
                .max(UnixMs(now.0 - REDRIVEN_AGO.as_millis() as i64));
            self.attempt = 0;
            self.crashes = 0;
            self.reason = None;
            self.finished_at = None;
        }
        dead
    }
}
