//! What operators do to a row: move it, run it now, redrive it.

use super::{NEVER, Row, Status};
use crate::ledger::{CreateResult, Created, NewTask, REDRIVEN_AGO, RescheduleAnswer};
use crate::task::{Origin, State, UnixMs};

impl Row {
    /// Returns the answer to a request that was applied to this row.
    pub fn created(&self, asked: &NewTask, now: UnixMs) -> Created {
        Created {
            arming: self.arming(),
            state: self.state(now),
            older_run: self.leased(now) && !self.has_run(),
            since: self.start_time,
            result: CreateResult::after(asked, self.end_time),
        }
    }

    /// Moves a pending task to another due time.
    pub fn reschedule(&mut self, due: UnixMs, now: UnixMs) -> RescheduleAnswer {
        match self.state(now) {
            State::Running if !self.waits_for_run(now) || self.deleted => RescheduleAnswer::Running,
            // What is running is an older arming.
            State::Pending | State::Waiting | State::Running => {
                self.moved_from(self.end_time);
                self.end_time = due;
                self.changed_at = now;
                self.run_end = NEVER;
                self.last_error = None;
                self.history.clear();
                self.finished_at = None;
                self.origin = Origin::Row;
                RescheduleAnswer::Moved(self.arming())
            }
            state @ (State::Done | State::Dead | State::Cancelled) => {
                RescheduleAnswer::Finished(state)
            }
        }
    }

    /// Makes a pending task due now, and past a hold. Returns false if it is not pending.
    pub fn run_now(&mut self, held_before: Option<UnixMs>, now: UnixMs) -> bool {
        let pending = matches!(self.state(now), State::Pending | State::Waiting);
        if pending {
            self.changed_at = now;
            if self.recurrence.is_some() {
                self.start_time = now;
            }
            if self.end_time > now {
                // The series continues with the occurrence that was pending.
                self.moved_from(UnixMs(self.end_time.0 - 1));
            }
            let held = held_before.is_some_and(|before| self.end_time < before);
            if self.end_time > now || held {
                self.origin = Origin::Row;
                self.end_time = now;
            }
            self.retry_at = NEVER;
        }
        pending
    }

    pub(super) fn moved_from(&mut self, due: UnixMs) {
        let recurrence = self.recurrence.take();
        self.recurrence = recurrence.map(|stored| stored.changed(|known| known.moved(due)));
    }

    /// Makes a dead task pending. Returns false if it is not dead.
    pub fn redrive(&mut self, now: UnixMs) -> bool {
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
            // Its entry was removed when it died, and is missing for that reason.
            if self.origin == Origin::Entry {
                self.origin = Origin::Key;
            }
        }
        dead
    }
}
