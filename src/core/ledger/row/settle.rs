//! The effect of a settlement on a row.

use std::time::Duration;

use super::{NEVER, Row, Status, StoredReason};
use crate::ledger::settlement::LeftOpen;
use crate::ledger::{Settled, Settlement};
use crate::task::{
    Death, ERROR_BYTES_MAX, EndedOccurrence, OccurrenceEnd, Origin, Recurrence, UnixMs, Verdict,
    prepend,
};

impl Row {
    pub fn settle(&mut self, settlement: &Settlement, now: UnixMs) -> Settled {
        let Settlement { lease, verdict } = settlement;
        if self.owner != Some(lease.owner) {
            return Settled::Fenced;
        }
        if let Verdict::NextOccurrence { next, .. } = verdict
            && self.is_advanced(*next, verdict)
        {
            return Settled::Applied;
        }
        if self.arming() != lease.arming {
            // An older program may have deleted the row and created it again: its key tells, see `undelete`.
            if self.status == Status::Unprocessed && self.deleted_by_lapsed() {
                self.end_cancelled(now);
            }
            self.lease_until = self.lease_until.min(NEVER);
            return Settled::Superseded;
        }
        if self.status != Status::Unprocessed || self.lease_until <= NEVER {
            return self.settled_before(verdict);
        }
        match verdict {
            Verdict::Complete => {
                self.last_error = None;
                self.finish(Status::Processed, now);
                Settled::Applied
            }
            Verdict::CompleteWith(result) => {
                self.last_error = None;
                self.result = Some(result.clone());
                self.finish(Status::Processed, now);
                Settled::Applied
            }
            Verdict::RetryAt {
                at,
                error,
                attempt_error,
            } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.last_error = Some(cut(error));
                prepend(attempt_error, &mut self.history);
                self.reopen(LeftOpen::Failed, now)
            }
            Verdict::Snooze { at, attempt_error } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.attempt = self.attempt.saturating_sub(1);
                prepend(attempt_error, &mut self.history);
                self.reopen(LeftOpen::Snoozed, now)
            }
            Verdict::Bury(death) => self.bury(death, now),
            Verdict::NextOccurrence { next, end, result } => {
                let died = end.death();
                self.occurred(end);
                if end.was_run() {
                    self.last_error = died.map(|death| cut(&death.error));
                    self.result = result.clone();
                }
                if self.snoozes() > 0 {
                    self.history.remove(0);
                }
                if let Some(death) = died {
                    prepend(&death.attempt_error, &mut self.history);
                }
                self.advance(*next, died.is_some(), now)
            }
            Verdict::Release | Verdict::GiveBack => {
                self.attempt = self.attempt.saturating_sub(1);
                if self.recurrence.is_some() {
                    // It has begun: a time of a retry says so when it is claimed again.
                    self.retry_at = self.retry_at.max(UnixMs(self.end_time.0 + 1));
                }
                // The caller was told that it runs.
                let runs_once_more =
                    *verdict == Verdict::GiveBack && self.has_run() && self.deleted_by_lapsed();
                if runs_once_more {
                    self.deleted = false;
                    self.lease_until = LeftOpen::ReleasedForLast.lease_until();
                    return Settled::Applied;
                }
                self.reopen(LeftOpen::Released, now)
            }
        }
    }

    fn bury(&mut self, death: &Death, now: UnixMs) -> Settled {
        let Death {
            reason,
            error,
            attempt_error,
        } = death;
        if reason.is_without_run() {
            self.attempt = self.attempt.saturating_sub(1);
        }
        self.last_error = Some(cut(error));
        prepend(attempt_error, &mut self.history);
        self.reason = None;
        if self.deleted {
            return self.end_cancelled(now);
        }
        self.reason = Some(StoredReason::Death(*reason));
        self.finish(Status::Dead, now);
        Settled::Applied
    }

    /// Applies a cancellation that waited for the end of the run, as of when it was requested.
    fn end_cancelled(&mut self, now: UnixMs) -> Settled {
        self.finish(Status::Cancelled, self.finished_at.unwrap_or(now));
        Settled::Cancelled
    }

    /// Notes how the present occurrence of a series ended.
    pub(super) fn occurred(&mut self, end: &OccurrenceEnd) {
        if self.recurrence.is_some() {
            let ended = EndedOccurrence::new(self.end_time, end);
            self.reason = Some(StoredReason::Latest(ended));
        }
    }

    /// Moves the row to the next occurrence, or applies a cancellation that waited for the end of the run.
    fn advance(&mut self, next: UnixMs, failed: bool, now: UnixMs) -> Settled {
        self.recurrence = self
            .recurrence
            .take()
            .map(|stored| stored.changed(Recurrence::settled));
        if self.deleted {
            let (status, settled) = match failed {
                false => (Status::Processed, Settled::Ended),
                true => (Status::Cancelled, Settled::Cancelled),
            };
            self.finish(status, self.finished_at.unwrap_or(now));
            return settled;
        }
        self.changed_at = self.changed_at.max(self.end_time);
        self.end_time = next;
        self.run_end = NEVER;
        self.origin = Origin::Row;
        self.lease_until = match failed {
            false => LeftOpen::Continued.lease_until(),
            true => LeftOpen::Failed.lease_until(),
        };
        Settled::Applied
    }

    /// Returns the answer for a row that was settled before.
    fn settled_before(&mut self, verdict: &Verdict) -> Settled {
        let lease_left = self.lease_until > NEVER;
        self.lease_until = self.lease_until.min(NEVER);
        match self.status {
            Status::Processed if lease_left || !verdict.is_success() => Settled::ByHandler,
            Status::Processed if matches!(verdict, Verdict::NextOccurrence { .. }) => {
                Settled::Ended
            }
            Status::Processed => Settled::Applied,
            Status::Cancelled if !verdict.is_success() => Settled::Cancelled,
            Status::Dead if LeftOpen::of(verdict) == Some(LeftOpen::Failed) => Settled::Applied,
            Status::Unprocessed if LeftOpen::is_by(self.lease_until, verdict) => Settled::Applied,
            // It was released, has failed or was snoozed: another report of this claim comes too late.
            Status::Unprocessed | Status::Dead | Status::Cancelled => Settled::Fenced,
        }
    }

    /// True if the series has moved to this occurrence, and nothing has claimed that yet.
    fn is_advanced(&self, next: UnixMs, verdict: &Verdict) -> bool {
        self.status == Status::Unprocessed
            && self.end_time == next
            && LeftOpen::is_by(self.lease_until, verdict)
    }

    /// True if lapsed has marked the row as deleted: a program that knows only the first six columns does not write
    /// `finished_at`. Such a program writes `start_time` in whole seconds: what ended in the same second was before.
    pub(super) fn deleted_by_lapsed(&self) -> bool {
        let within_a_second = match self.start_time.0 % 1000 {
            0 => Duration::from_secs(1),
            _ => Duration::ZERO,
        };
        let since = self.start_time.plus(within_a_second);
        let ended = self.finished_at.map(|at| at.max(self.changed_at));
        self.deleted && ended.is_some_and(|at| at >= since)
    }

    /// Makes the task pending again, or applies a cancellation that waited for the end of the run.
    fn reopen(&mut self, how: LeftOpen, now: UnixMs) -> Settled {
        if self.deleted {
            return self.end_cancelled(now);
        }
        self.finished_at = None;
        self.lease_until = how.lease_until();
        Settled::Applied
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()
}
