//! The effect of a move between ledgers on a row.

use std::time::Duration;

use super::{NEVER, Row, Status};
use crate::ledger::hold::{GiveUp, HELD_UNTIL, MOVER, MovePlace, hold_token};
use crate::task::{Origin, UnixMs};

/// How much later an admitted row counts as changed. It is less than the error of the clocks, so that no evidence of
/// programs becomes older than the row.
const ADMITTED_AFTER: Duration = Duration::from_millis(1);

/// What becomes of a row of the source in the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is written, over the row of its key if there is one.
    Write,
    /// The destination has this arming, or a newer one.
    Known,
    /// The row of its key is running.
    Busy,
}

impl Row {
    pub fn place(&self) -> MovePlace {
        MovePlace {
            status: self.status.number(),
            deleted: self.deleted,
            due_at: self.due_at(),
            row: self.id,
        }
    }

    /// True if the row is held by a move.
    pub fn is_held(&self) -> bool {
        self.status == Status::Unprocessed && self.lease_until == HELD_UNTIL
    }

    /// True if a move wrote the row for its present arming, and nothing has claimed or cancelled that since.
    pub fn is_of_move(&self) -> bool {
        self.daemon == MOVER && self.owner == Some(hold_token(&self.key, self.end_time))
    }

    /// Decides about a row of the source. `existing` is the row of its key in the destination.
    pub fn arrive(&self, existing: Option<&Self>, now: UnixMs) -> Arrival {
        let Some(existing) = existing else {
            return Arrival::Write;
        };
        let same = existing.end_time == self.end_time;
        let latest = |row: &Self| row.changed_at.max(row.start_time);
        // A statement that is carried out late has an older state of the task than the one after it.
        let progress = |row: &Self| (latest(row), row.attempt, row.retry_at);
        match existing.status {
            Status::Unprocessed if existing.is_held() && existing.is_of_move() => {
                match progress(existing) > progress(self) {
                    true => Arrival::Known,
                    false => Arrival::Write,
                }
            }
            Status::Unprocessed if same => Arrival::Known,
            Status::Unprocessed if existing.leased(now) && !existing.is_held() => Arrival::Busy,
            Status::Unprocessed if existing.deleted => Arrival::Write,
            // Two occurrences of a series are no two tasks: it goes on where it is.
            Status::Unprocessed if existing.recurrence.is_some() && self.recurrence.is_some() => {
                Arrival::Known
            }
            Status::Unprocessed if latest(existing) >= latest(self) => Arrival::Known,
            // Another arming, which is older; or it was moved away, or unstaged, or has been redriven in the source since
            // it was copied.
            _ if !same || existing.is_of_move() => Arrival::Write,
            _ if self.changed_at > existing.finished() => Arrival::Write,
            _ => Arrival::Known,
        }
    }

    /// Returns the row as the destination holds it. Keeps a cancellation that was requested since it was staged first.
    pub fn staged(&self, id: u64, over: Option<&Self>) -> Self {
        let over = over.filter(|over| over.is_held() && over.end_time == self.end_time);
        let cancelled = over.filter(|over| over.deleted);
        Self {
            id,
            deleted: cancelled.is_some(),
            finished_at: cancelled.and_then(|over| over.finished_at),
            owner: Some(hold_token(&self.key, self.end_time)),
            daemon: MOVER.to_owned(),
            lease_until: HELD_UNTIL,
            // No entry is known in the sets of the destination.
            origin: match self.origin {
                Origin::Entry => Origin::Key,
                origin => origin,
            },
            ..self.clone()
        }
    }

    /// Holds the row if it is free and has not changed since it was read. Returns whether it is held.
    pub fn freeze(&mut self, seen: &Self, now: UnixMs) -> bool {
        let is_same = |row: &Self| {
            let Self {
                id,
                start_time,
                end_time,
                changed_at,
                run_end,
                retry_at,
                attempt,
                ..
            } = row;
            (
                *id,
                *start_time,
                *end_time,
                *changed_at,
                *run_end,
                *retry_at,
                *attempt,
            )
        };
        if self.is_held() {
            return self.is_of_move() && self.end_time == seen.end_time;
        }
        let free = self.status == Status::Unprocessed && !self.deleted && !self.leased(now);
        let frozen = free && is_same(self) == is_same(seen);
        if frozen {
            *self = self.staged(self.id, None);
        }
        frozen
    }

    /// Ends the hold of a row that was staged for this due time, or created over a held one; or revives one that was
    /// unstaged by mistake. The row counts as changed, also if it was pending before: a mover of the other direction that
    /// has read it can freeze it no more.
    pub fn admit(&mut self, due: UnixMs, now: UnixMs) {
        let is_its_own = self.is_of_move() && self.end_time == due;
        if self.is_held() && (is_its_own || !self.is_of_move()) {
            self.end_hold(now);
        } else if self.status == Status::Cancelled && is_its_own {
            self.status = Status::Unprocessed;
            self.deleted = false;
            self.finished_at = None;
        } else if self.status != Status::Unprocessed || self.is_held() || self.end_time != due {
            return;
        }
        self.changed_at = self.changed_at.plus(ADMITTED_AFTER);
    }

    /// Cancels a row that was staged for this due time. A newer arming, which was created over it, is pending.
    pub fn unstage(&mut self, due: UnixMs, now: UnixMs) {
        if self.is_held() && self.is_of_move() && self.end_time != due {
            return;
        }
        if self.is_held() && self.is_of_move() {
            self.deleted = true;
            self.finish(Status::Cancelled, now);
        } else if self.is_held() {
            self.end_hold(now);
        }
    }

    /// Ends a row that is frozen for this due time. Returns true if it was cancelled and is still held.
    pub fn give_up(&mut self, due: UnixMs, how: GiveUp, note: &str, now: UnixMs) -> bool {
        match how {
            _ if !self.is_held() => {}
            _ if !self.is_of_move() => self.end_hold(now),
            _ if self.end_time != due => {}
            GiveUp::Moved if self.deleted => return true,
            GiveUp::Moved => {
                self.result = Some(note.to_owned());
                self.finish(Status::Processed, now);
                self.changed_at = now;
            }
            GiveUp::Cancelled if self.deleted => self.end_hold(now),
            GiveUp::Cancelled => {}
        }
        false
    }

    fn end_hold(&mut self, now: UnixMs) {
        self.lease_until = NEVER;
        if self.deleted {
            // Not to be taken for a row that was unstaged.
            self.owner = None;
            self.finish(Status::Cancelled, self.finished_at.unwrap_or(now));
        }
    }
}

impl Status {
    /// The value of the column.
    pub fn number(self) -> u8 {
        match self {
            Self::Unprocessed => 0,
            Self::Processed => 1,
            Self::Dead => 2,
            Self::Cancelled => 3,
        }
    }

    /// The status of this value; `None` for a value that lapsed does not write.
    pub fn of_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Unprocessed,
            1 => Self::Processed,
            2 => Self::Dead,
            3 => Self::Cancelled,
            _ => return None,
        })
    }
}
