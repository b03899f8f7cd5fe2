//! Changes of a row that were decided by what it was in the same transaction.

use super::{Row, Status};
use crate::ledger::{Change, Changed, NewTask, RescheduleAnswer};
use crate::task::UnixMs;

impl Row {
    /// Makes a change of [`Producer::change`](crate::ledger::Producer::change).
    pub fn change(&mut self, change: Change, now: UnixMs) -> Changed {
        match change {
            Change::Keep => Changed::Kept,
            Change::Write(task) => {
                self.write_over(&task, now);
                Changed::Armed(self.arming())
            }
            Change::Move(due) => match self.reschedule(due, now) {
                RescheduleAnswer::Moved(arming) => Changed::Armed(arming),
                _ => Changed::Kept,
            },
            Change::Cancel => {
                self.cancel(now);
                Changed::Cancelled
            }
        }
    }

    /// True if the arming of the task has ended or is running: the row is not written over.
    pub fn has_started(&self, task: &NewTask, now: UnixMs) -> bool {
        let ended = matches!(self.status, Status::Processed | Status::Dead);
        let runs = self.status == Status::Unprocessed && self.leased(now) && self.has_run();
        (ended || runs) && self.end_time == task.due
    }

    /// Turns the row into the requested arming, whatever it is now, unless that has begun.
    fn write_over(&mut self, task: &NewTask, now: UnixMs) {
        if !self.has_started(task, now) {
            if !self.leased(now) {
                // A frozen run of this due time must not complete what takes its place.
                self.owner = None;
            }
            self.begin_anew(task, now);
        }
    }
}
