//! The effect of a settlement on a row.

use super::{NEVER, Row, Status};
use crate::ledger::{Settled, Settlement};
use crate::task::{Death, ERROR_BYTES_MAX, Origin, Recurrence, UnixMs, Verdict, prepend};

impl Row {
    pub fn settle(&mut self, settlement: &Settlement, now: UnixMs) -> Settled {
        let Settlement { lease, verdict } = settlement;
        if self.owner != Some(lease.owner) {
            return Settled::Fenced;
        }
        if let Verdict::NextOccurrence { next, .. } = verdict
            && self.is_advanced(*next)
        {
            return Settled::Applied;
        }
        if self.arming() != lease.arming {
            if self.status == Status::Unprocessed && self.deleted {
                self.end_cancelled(now);
            }
            self.lease_until = NEVER;
            return Settled::Superseded;
        }
        if self.status != Status::Unprocessed || self.lease_until == NEVER {
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
            Verdict::RetryAt { at, error, mishap } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.last_error = Some(cut(error));
                prepend(mishap, &mut self.history);
                self.reopen(now)
            }
            Verdict::Snooze { at, mishap } => {
                self.retry_at = *at;
                self.crashes = 0;
                self.attempt = self.attempt.saturating_sub(1);
                prepend(mishap, &mut self.history);
                self.reopen(now)
            }
            Verdict::Bury(death) => self.bury(death, now),
            Verdict::NextOccurrence {
                next,
                ran,
                died,
                result,
            } => {
                if *ran {
                    self.last_error = died.as_ref().map(|death| cut(&death.error));
                    self.result = result.clone();
                }
                if self.snoozes() > 0 {
                    self.history.remove(0);
                }
                if let Some(death) = died {
                    prepend(&death.mishap, &mut self.history);
                }
                self.advance(*next, died.is_some(), now)
            }
            Verdict::Release => {
                let given_back = u16::from(self.recurrence.is_none());
                self.attempt = self.attempt.saturating_sub(given_back);
                self.reopen(now)
            }
        }
    }

    fn bury(&mut self, death: &Death, now: UnixMs) -> Settled {
        let Death {
            reason,
            error,
            mishap,
        } = death;
        if reason.is_without_run() {
            self.attempt = self.attempt.saturating_sub(1);
        }
        self.last_error = Some(cut(error));
        prepend(mishap, &mut self.history);
        if self.deleted {
            return self.end_cancelled(now);
        }
        self.reason = Some(*reason);
        self.finish(Status::Dead, now);
        Settled::Applied
    }

    /// Applies a cancellation that waited for the end of the run, as of when it was requested.
    fn end_cancelled(&mut self, now: UnixMs) -> Settled {
        self.finish(Status::Cancelled, self.finished_at.unwrap_or(now));
        Settled::Cancelled
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
        self.lease_until = NEVER;
        Settled::Applied
    }

    /// Returns the answer for a row that was settled before.
    fn settled_before(&mut self, verdict: &Verdict) -> Settled {
        let lease_left = std::mem::replace(&mut self.lease_until, NEVER) > NEVER;
        match self.status {
            Status::Processed if lease_left || !verdict.is_success() => Settled::ByHandler,
            Status::Processed if matches!(verdict, Verdict::NextOccurrence { .. }) => {
                Settled::Ended
            }
            Status::Cancelled => Settled::Cancelled,
            _ => Settled::Applied,
        }
    }

    /// True if the series has moved to this occurrence, and nothing has claimed that yet.
    fn is_advanced(&self, next: UnixMs) -> bool {
        self.status == Status::Unprocessed && self.end_time == next && self.lease_until == NEVER
    }

    /// Makes the task pending again, or applies a cancellation that waited for the end of the run.
    fn reopen(&mut self, now: UnixMs) -> Settled {
        if self.deleted {
            return self.end_cancelled(now);
        }
        self.finished_at = None;
        self.lease_until = NEVER;
        Settled::Applied
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()
}
