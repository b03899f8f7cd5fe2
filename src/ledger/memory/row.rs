//! A row, and what each verb makes of it.

use crate::ledger::recurring::SeriesRow;
use crate::ledger::{
    Arming, CancelAnswer, Claimant, ERROR_BYTES_MAX, IfPending, ListFilter, NewTask, Owner,
    PAYLOAD_READ_MAX, Ruling, Settled, Settlement, Standing, StateFilter, TaskRecord,
};
use crate::task::{
    Envelope, How, Mishap, Origin, Reason, Recurrence, State, TaskKey, UnixMs, prepend,
};

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
    pub(super) recurrence: Option<Recurrence>,
    pub(super) last_error: Option<String>,
    pub(super) reason: Option<Reason>,
    pub(super) history: Vec<Mishap>,
    pub(super) result: Option<String>,
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
            run_end: NEVER,
            retry_at: NEVER,
            attempt: 0,
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
            self.recurrence = before.recurrence;
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

    /// Whether it stays as it is when another arming of its key is asked for.
    fn stays(&self, policy: IfPending, now: UnixMs) -> bool {
        let live = self.status == Status::Unprocessed && !self.deleted;
        let runs = self.status == Status::Unprocessed && self.leased(now);
        match policy {
            IfPending::Move => false,
            // Of an older arming that is still being run, this one is the next.
            IfPending::Keep => live && !(runs && self.has_run()),
            IfPending::Refuse => live || runs,
        }
    }

    /// The row of this key becomes another arming, or nothing changes.
    pub(super) fn create_over(&mut self, task: &NewTask, now: UnixMs) {
        if self.end_time == task.due && self.status != Status::Cancelled {
            self.deleted &= self.status != Status::Unprocessed;
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

    pub(super) fn cancel(&mut self, now: UnixMs) -> CancelAnswer {
        match self.state(now) {
            State::Pending | State::Waiting | State::Cancelled => {
                self.deleted = true;
                self.owner = None;
                self.finish(Status::Cancelled, now);
                CancelAnswer::Cancelled
            }
            State::Running => {
                self.deleted = true;
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
        if let Ruling::GoOn { next, .. } = ruling
            && self.went_on(*next)
        {
            return Settled::Applied;
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
            Ruling::CompleteWith(result) => {
                self.last_error = None;
                self.result = Some(result.clone());
                self.finish(Status::Processed, now);
                Settled::Applied
            }
            Ruling::RetryAt { at, error, mishap } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.last_error = Some(cut(error));
                prepend(mishap, &mut self.history);
                self.reopen(now)
            }
            Ruling::Snooze { at, mishap } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.attempt = self.attempt.saturating_sub(1);
                prepend(mishap, &mut self.history);
                self.reopen(now)
            }
            Ruling::Bury {
                reason,
                error,
                mishap,
            } => {
                if *reason == Reason::Expired {
                    self.attempt = self.attempt.saturating_sub(1);
                }
                self.last_error = Some(cut(error));
                prepend(mishap, &mut self.history);
                let (status, settled) = if self.deleted {
                    (Status::Cancelled, Settled::Cancelled)
                } else {
                    self.reason = Some(*reason);
                    (Status::Dead, Settled::Applied)
                };
                self.finish(status, now);
                settled
            }
            Ruling::GoOn {
                next,
                ran,
                error,
                mishap,
                result,
            } => {
                if *ran {
                    self.last_error = error.as_deref().map(cut);
                    self.result = result.clone();
                }
                if self.snoozes() > 0 {
                    self.history.remove(0);
                }
                if let Some(mishap) = mishap {
                    prepend(mishap, &mut self.history);
                }
                self.recurrence = self.recurrence.take().map(Recurrence::settled);
                if self.deleted {
                    let (status, settled) = match error {
                        None => (Status::Processed, Settled::Ended),
                        Some(_) => (Status::Cancelled, Settled::Cancelled),
                    };
                    self.finish(status, now);
                    return settled;
                }
                self.end_time = *next;
                self.run_end = NEVER;
                self.origin = Origin::Row;
                self.lease_until = NEVER;
                Settled::Applied
            }
            Ruling::Release => {
                let given_back = u16::from(self.recurrence.is_none());
                self.attempt = self.attempt.saturating_sub(given_back);
                self.reopen(now)
            }
        }
    }

    /// Whether the series has gone on to this occurrence, and nobody has claimed it since.
    fn went_on(&self, next: UnixMs) -> bool {
        self.status == Status::Unprocessed && self.end_time == next && self.lease_until == NEVER
    }

    pub(super) fn series(&self, now: UnixMs) -> SeriesRow {
        SeriesRow {
            standing: self.standing(now),
            recurrence: self.recurrence.as_ref().map(ToString::to_string),
            payload: self.payload.clone(),
            tag: self.tag.clone(),
            max_attempts: self.max_attempts,
        }
    }

    /// As wanted, if it still is what was seen.
    pub(super) fn recur(&mut self, task: &NewTask, seen: &SeriesRow, now: UnixMs) -> bool {
        let recurrence = self.recurrence.as_ref().map(ToString::to_string);
        if !self.stands_as(&seen.standing, now) || recurrence != seen.recurrence {
            return false;
        }
        let open = self.status == Status::Unprocessed && !self.deleted;
        if open && self.end_time == task.due {
            self.payload.clone_from(&task.payload);
            self.tag.clone_from(&task.tag);
            self.max_attempts = task.max_attempts;
            self.recurrence.clone_from(&task.recurrence);
            self.origin = Origin::Row;
        } else {
            self.begin_anew(task, now);
        }
        true
    }

    /// If its recurrence still is what was seen.
    pub(super) fn note_standing(&mut self, seen: &SeriesRow) -> bool {
        let stored = self.recurrence.as_ref().map(ToString::to_string);
        let is_seen = stored.is_some() && stored == seen.recurrence;
        if is_seen {
            self.recurrence = self.recurrence.take().map(Recurrence::standing);
        }
        is_seen
    }

    /// Whether it stays for as long as nobody deletes it: a configuration would begin it anew.
    pub(super) fn is_standing(&self) -> bool {
        self.recurrence
            .as_ref()
            .is_some_and(Recurrence::is_standing)
    }

    pub(super) fn settled_before(&mut self, ruling: &Ruling) -> Settled {
        let lease_left = std::mem::replace(&mut self.lease_until, NEVER) > NEVER;
        match self.status {
            Status::Processed if lease_left || !ruling.is_success() => Settled::ByHandler,
            Status::Processed if matches!(ruling, Ruling::GoOn { .. }) => Settled::Ended,
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
            recurrence: self.recurrence.as_ref().map(ToString::to_string),
            last_error: self.last_error.clone(),
            reason: self.reason,
            history: self.history.clone(),
            result: self.result.clone(),
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
            prefix,
            recurring,
            due_after,
            due_before,
            reason,
            error,
            finished_after,
            finished_before,
            cursor: _,
            limit: _,
        } = filter;
        let says = |text: &String| {
            let latest = self.last_error.as_deref().unwrap_or_default();
            latest.to_lowercase().contains(&text.to_lowercase())
        };
        let finished = (self.status != Status::Unprocessed).then(|| self.finished());
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
            && prefix
                .as_ref()
                .is_none_or(|prefix| self.key.as_str().starts_with(prefix.as_str()))
            && (!recurring || self.recurrence.is_some())
            && due_after.is_none_or(|due| self.end_time >= due)
            && due_before.is_none_or(|due| self.end_time < due)
            && reason.is_none_or(|reason| self.reason == Some(reason))
            && error.as_ref().is_none_or(says)
            && finished_after.is_none_or(|from| finished.is_some_and(|at| at >= from))
            && finished_before.is_none_or(|to| finished.is_some_and(|at| at < to))
    }

    /// Since when it is finished, if it is.
    pub(super) fn finished(&self) -> UnixMs {
        self.finished_at.unwrap_or(self.end_time)
    }

    /// How often in a row it was snoozed.
    pub(super) fn snoozes(&self) -> u16 {
        match self.history.first() {
            Some(latest) if latest.how == How::Snoozed => latest.snoozes,
            _ => 0,
        }
    }

    /// Dead to pending; tells whether it was dead.
    pub(super) fn redrive(&mut self, now: UnixMs) -> bool {
        let dead = self.status == Status::Dead;
        if dead {
            self.status = Status::Unprocessed;
            self.deleted = false;
            self.start_time = now;
            self.run_end = NEVER;
            self.reason = None;
            self.finished_at = None;
        }
        dead
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()
}
