//! A row, and what each verb makes of it.

use crate::ledger::{
    Arming, Claimant, ERROR_BYTES_MAX, ListFilter, NewTask, Owner, Ruling, Settled, Settlement,
    Standing, StateFilter, TaskRecord,
};
use crate::task::{Envelope, Origin, State, TaskKey, UnixMs};

/// A row of the table, column by column; see `migrations/tb_time_limit_task.sql`.
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
    pub(super) last_error: Option<String>,
    pub(super) finished_at: Option<UnixMs>,
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
            run_end: NEVER,
            retry_at: NEVER,
            attempt: 0,
            crashes: 0,
            max_attempts,
            tag,
            payload,
            last_error: None,
            finished_at: None,
            origin: Origin::Row,
        }
    }

    pub(super) fn standing(&self, now: UnixMs) -> Standing {
        let called_off = self.status == Status::Unprocessed && self.deleted;
        Standing {
            arming: self.arming(),
            state: self.state(now),
            due_at: self.due_at(),
            deleted: called_off && !self.leased(now),
            cancelling: called_off && self.leased(now),
            origin: self.origin,
        }
    }

    /// Whether nothing has happened to it since it was looked at. A retry may have fallen due meanwhile.
    pub(super) fn stands_as(&self, seen: &Standing, now: UnixMs) -> bool {
        let pending = |state| match state {
            State::Waiting => State::Pending,
            state => state,
        };
        let present = self.standing(now);
        present.arming == seen.arming
            && pending(present.state) == pending(seen.state)
            && present.deleted == seen.deleted
            && present.cancelling == seen.cancelling
    }

    /// Another arming, on behalf of a key. What has not run keeps what belongs to it.
    pub(super) fn adopt(&mut self, due: UnixMs, now: UnixMs) {
        let keeps = self.status == Status::Unprocessed;
        let before = self.clone();
        *self = Self {
            owner: before.owner,
            lease_until: before.lease_until,
            daemon: before.daemon,
            origin: Origin::Key,
            ..Self::new(self.id, &NewTask::new(before.key, due), now)
        };
        if keeps {
            self.payload = before.payload;
            self.tag = before.tag;
            self.max_attempts = before.max_attempts;
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

    /// The row of this key becomes another arming, or nothing changes.
    pub(super) fn create_over(&mut self, task: &NewTask, now: UnixMs) {
        if self.end_time == task.due && self.status != Status::Cancelled {
            self.deleted &= self.status != Status::Unprocessed;
            return;
        }
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

    pub(super) fn finish(&mut self, status: Status, now: UnixMs) {
        self.status = status;
        self.lease_until = NEVER;
        self.finished_at = Some(now);
    }

    /// Pending again, unless a cancellation waited for the run to end.
    pub(super) fn reopen(&mut self, now: UnixMs) -> Settled {
        if self.deleted {
            self.finish(Status::Cancelled, now);
            return Settled::Cancelled;
        }
        self.lease_until = NEVER;
        Settled::Applied
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: UnixMs) -> Settled {
        let Settlement { lease, ruling } = settlement;
        if self.owner != Some(lease.owner) {
            return Settled::Fenced;
        }
        if self.arming() != lease.arming {
            self.lease_until = NEVER;
            return Settled::Superseded;
        }
        if self.status != Status::Unprocessed || self.lease_until == NEVER {
            return self.settled_before(ruling);
        }
        match ruling {
            Ruling::Complete => {
                self.last_error = None;
                self.finish(Status::Processed, now);
                Settled::Applied
            }
            Ruling::RetryAt { at, error } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.last_error = Some(cut(error));
                self.reopen(now)
            }
            Ruling::Bury { error } => {
                self.last_error = Some(cut(error));
                let (status, settled) = if self.deleted {
                    (Status::Cancelled, Settled::Cancelled)
                } else {
                    (Status::Dead, Settled::Applied)
                };
                self.finish(status, now);
                settled
            }
            Ruling::Release => {
                self.attempt = self.attempt.saturating_sub(1);
                self.reopen(now)
            }
        }
    }

    pub(super) fn settled_before(&mut self, ruling: &Ruling) -> Settled {
        let lease_left = std::mem::replace(&mut self.lease_until, NEVER) > NEVER;
        match self.status {
            Status::Processed if lease_left || *ruling != Ruling::Complete => Settled::ByHandler,
            Status::Cancelled => Settled::Cancelled,
            _ => Settled::Applied,
        }
    }

    pub(super) fn record(&self, now: UnixMs) -> TaskRecord {
        let state = self.state(now);
        let envelope = Envelope::open(self.payload.clone());
        TaskRecord {
            id: self.arming().to_string(),
            key: self.key.clone(),
            state,
            due: self.end_time,
            due_at: self.due_at(),
            created: self.start_time,
            attempt: if self.has_run() { self.attempt } else { 0 },
            crashes: if self.has_run() { self.crashes } else { 0 },
            max_attempts: self.max_attempts,
            daemon: self.daemon.clone(),
            cancel_requested: state == State::Running && self.deleted,
            tag: self.tag.clone(),
            payload: envelope.payload,
            traceparent: envelope.traceparent,
            last_error: self.last_error.clone(),
            finished: self.finished_at,
            adopted: self.origin != Origin::Row,
        }
    }

    pub(super) fn fits(&self, filter: &ListFilter, now: UnixMs) -> bool {
        let ListFilter {
            states,
            class,
            method,
            tag,
            due_after,
            due_before,
            cursor: _,
            limit: _,
        } = filter;
        let in_state = |wanted: &StateFilter| match wanted {
            StateFilter::Is(state) => self.state(now) == *state,
            StateFilter::Overdue => self.free_and_due(now),
        };
        (states.is_empty() || states.iter().any(in_state))
            && class.as_ref().is_none_or(|class| self.key.class() == class)
            && method
                .as_ref()
                .is_none_or(|method| self.key.method() == method)
            && tag
                .as_ref()
                .is_none_or(|tag| self.tag.as_ref() == Some(tag))
            && due_after.is_none_or(|due| self.end_time >= due)
            && due_before.is_none_or(|due| self.end_time < due)
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()
}
