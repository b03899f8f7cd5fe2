//! Adoption of a key that a program armed with a bare `SETEX`: the decision. Pure.
//!
//! Evidence of an arming has an order. A row says when something was last said about its task, a key that was heard to be
//! armed says when that was, and only the younger of the two counts, however near or far their due times lie. What has no
//! such time (a key that an audit merely found) counts only if the server has lost nothing since the last word on the row.

use std::time::Duration;

use super::{State, UnixMs};

/// Programs that write the row themselves count in whole seconds, and their key is armed a little later.
const FITS_A_PROGRAM: Duration = Duration::from_secs(2);

/// Two daemons that look at one key read its due time with so much between them.
const FITS_A_KEY: Duration = Duration::from_millis(100);

/// A key that is still alive so long after its row fell due has been armed again since.
const OUTLIVES: Duration = Duration::from_millis(50);

/// How far apart the ledger's clock and what a daemon knows of it may be. Evidence that seems older by no more than this
/// counts if a fresh look at the key confirms it.
const CLOCKS_APART: Duration = Duration::from_millis(20);

/// An event may be heard so late. Evidence that seems younger by no more than this needs a fresh look, too.
const HEARD_LATE: Duration = Duration::from_secs(1);

/// A key that some program armed, as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Countdown {
    /// When it falls due, on the ledger's clock, at the latest.
    pub due: UnixMs,
    /// How much earlier that may be: so long the answer took.
    pub slack: Duration,
    /// It was alive at this moment or later; `None` if it had expired before it could be looked at.
    pub alive_at: Option<UnixMs>,
    /// When Redis said that it was armed, on the ledger's clock. `None`: it was found there, and may be of any age.
    pub heard: Option<UnixMs>,
    /// Of a key that was found: the server has lost no data since this moment. `None`: it may have come back with older data
    /// at any time.
    pub kept_since: Option<UnixMs>,
    /// One of ours, armed for this due time; but its remaining time says another. `None`: somebody else's.
    pub meant: Option<UnixMs>,
}

/// Who set the due time of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// The writer of the row.
    #[default]
    Row,
    /// The row was written on behalf of a bare `SETEX`.
    Key,
    /// As [`Key`](Self::Key), and cancelled because that key was deleted: any key of this name is a new one.
    DeletedKey,
}

/// What the ledger has of a key, as far as adoption asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booked {
    /// State of the row.
    pub state: State,
    /// Its `end_time`.
    pub due: UnixMs,
    /// When it may start: that, or a retry.
    pub due_at: UnixMs,
    /// Who set that.
    pub origin: Origin,
    /// A program that knows only the seed's columns has deleted it, or armed it again since.
    pub deleted: bool,
    /// Its `changed_at`: when lapsed last changed the arming on somebody's behalf.
    pub changed: UnixMs,
    /// Its `start_time`, which programs write that know only the seed's columns.
    pub created: UnixMs,
    /// Its `finished_at`.
    pub ended: Option<UnixMs>,
}

impl Booked {
    /// Whether its due time came from a key. A program that does not know the mark leaves it there when it writes
    /// the row anew, but it counts in whole seconds, and [`Countdown::to_be_written`] does not.
    pub fn is_a_keys(&self) -> bool {
        self.origin == Origin::Key && self.due.0 % 1000 != 0
    }

    /// Whether a program that knows only the seed's columns wrote it last.
    fn is_a_programs(&self) -> bool {
        self.created > self.changed || (self.origin == Origin::Key && !self.is_a_keys())
    }

    /// When something was last said about it: evidence from before that does not count.
    pub fn last_word(&self) -> UnixMs {
        // Such programs may write the second in which they wrote it.
        let within_a_second = match self.is_a_programs() && self.created.0 % 1000 == 0 {
            true => Duration::from_millis(999),
            false => Duration::ZERO,
        };
        let cancelled = self.ended.filter(|_| self.state == State::Cancelled);
        let said = self.changed.max(self.created.plus(within_a_second));
        said.max(cancelled.unwrap_or_default())
    }
}

/// The decision about a key that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptionDecision {
    /// Nothing: the ledger has it, or had it, or something newer.
    Leave,
    /// There is no row: write one.
    Insert,
    /// The row is another arming of this task: give it this due time.
    Move,
    /// The row has finished: create the task again.
    Recreate,
}

/// Decides about a key that was seen, against the row of its name.
pub fn decide_adoption(row: Option<&Booked>, key: &Countdown, now: UnixMs) -> AdoptionDecision {
    match (row, key.meant, key.heard) {
        (None, Some(_), _) => AdoptionDecision::Leave,
        (None, None, _) => AdoptionDecision::Insert,
        (Some(row), _, Some(heard)) if !is_younger(heard, row) => AdoptionDecision::Leave,
        (Some(row), Some(meant), Some(_)) => key.hastens(row, meant, now),
        (Some(_), Some(_), None) => AdoptionDecision::Leave,
        (Some(row), None, Some(heard)) => key.armed_since(row, heard, now),
        (Some(row), None, None) => key.found_over(row, now),
    }
}

/// Whether what was heard then is news about this row, as far as the clocks tell.
pub fn is_younger(heard: UnixMs, row: &Booked) -> bool {
    heard.plus(CLOCKS_APART) >= row.last_word()
}

impl Countdown {
    /// Of a key that was armed, and gone when it was looked at: it was due about then.
    pub fn expired(due: UnixMs, heard: UnixMs) -> Self {
        Self {
            due,
            slack: due.since(heard),
            alive_at: None,
            heard: Some(heard),
            kept_since: None,
            meant: None,
        }
    }

    /// Whether only a fresh look can tell that this is younger than the last word on the row: the clocks do not.
    pub fn needs_a_look(&self, row: &Booked, now: UnixMs) -> bool {
        // What a program deleted and armed again, it did in an order that no row tells.
        let is_near = |heard: UnixMs| {
            // What was heard before a run ended may have given way to a sooner time, for which that run was.
            let ended = row.ended.unwrap_or_default();
            heard < row.last_word().plus(HEARD_LATE) || heard <= ended || row.deleted
        };
        self.due > now
            && self
                .heard
                .is_some_and(|heard| is_near(heard) || row.state == State::Cancelled)
    }

    /// Whether it counts even if no fresh look is to be had.
    pub fn is_surely_younger(&self, row: &Booked) -> bool {
        self.heard
            .is_some_and(|heard| heard > row.last_word().plus(CLOCKS_APART))
    }

    /// A key that was armed after the last word on the row.
    fn armed_since(&self, row: &Booked, heard: UnixMs, now: UnixMs) -> AdoptionDecision {
        let is_a_keys = row.is_a_keys();
        // No daemon saw the key: it may have been the task's own, for its due time, for a retry, or because the task was
        // redriven. The key of a redriven task expires at once, whenever the row fell due.
        let is_redriven = row.state != State::Pending && self.is_near(row.changed, FITS_A_PROGRAM);
        let may_be_own = !is_a_keys || is_redriven || self.fits(row, FITS_A_PROGRAM);
        if self.alive_at.is_none() && may_be_own {
            return AdoptionDecision::Leave;
        }
        let has_begun = row.due <= now && row.state != State::Pending;
        let tolerance = match () {
            () if row.deleted => FITS_A_PROGRAM,
            () if is_a_keys => FITS_A_KEY,
            () if row.is_a_programs() => FITS_A_PROGRAM,
            // A client's own key has another value, so this one is a program's.
            () if has_begun => FITS_A_KEY,
            () => Duration::ZERO,
        };
        let has_ended = row.ended.is_some_and(|ended| heard > ended);
        let fits = self.fits(row, tolerance) && !self.outlives(row);
        match row.state {
            // Whether such a row was armed again, only its revival can tell.
            State::Cancelled if row.deleted && fits => AdoptionDecision::Leave,
            State::Cancelled => AdoptionDecision::Recreate,
            // The same moment once more: what was heard before this does not count any more.
            State::Pending if fits && is_a_keys && heard > row.last_word().plus(HEARD_LATE) => {
                AdoptionDecision::Move
            }
            _ if fits && !has_ended => AdoptionDecision::Leave,
            // It has begun no sooner than this would have.
            _ if has_begun && !has_ended && self.due <= row.due => AdoptionDecision::Leave,
            // Due either way; but what was seen of it is the last word now.
            State::Pending if self.alive_at.is_none() && row.due <= now && self.due <= now => {
                AdoptionDecision::Leave
            }
            State::Pending | State::Waiting | State::Running => AdoptionDecision::Move,
            State::Done | State::Dead => AdoptionDecision::Recreate,
        }
    }

    /// A key that was found. It is younger than the last word on the row, if the server has lost nothing since: of an older
    /// one there is nothing left. After a restart it may be older data.
    fn found_over(&self, row: &Booked, now: UnixMs) -> AdoptionDecision {
        let last_word = row.last_word();
        let may_be_restored = self.kept_since.is_none_or(|since| last_word <= since);
        let was_seen_before = self.alive_at.is_none_or(|seen| seen < last_word);
        if may_be_restored || was_seen_before {
            return AdoptionDecision::Leave;
        }
        if row.origin == Origin::DeletedKey && row.state == State::Cancelled {
            return AdoptionDecision::Recreate;
        }
        // Whoever wrote the row, or cancelled it, may have failed to do so to the key: an older one was left there.
        if row.origin == Origin::Row || row.state == State::Cancelled {
            return AdoptionDecision::Leave;
        }
        let outlives = self.outlives(row);
        if !outlives && self.fits(row, FITS_A_PROGRAM) {
            return AdoptionDecision::Leave;
        }
        match row.state {
            State::Pending if row.due <= now && self.due <= now => AdoptionDecision::Leave,
            State::Pending => AdoptionDecision::Move,
            // It has fallen due: a key that fell due before is what is left of it.
            State::Waiting | State::Running if outlives || self.due > row.due => {
                AdoptionDecision::Move
            }
            State::Done | State::Dead if outlives || self.due > row.due => {
                AdoptionDecision::Recreate
            }
            _ => AdoptionDecision::Leave,
        }
    }

    /// One of ours that expires sooner than it was armed to: somebody's `EXPIRE`, the latest of which counts. What expires
    /// later may be an arming of ours that a stalled server carried out late.
    fn hastens(&self, row: &Booked, meant: UnixMs, now: UnixMs) -> AdoptionDecision {
        // It may wait behind a run.
        let waits = matches!(row.state, State::Pending | State::Running) && row.due > now;
        match waits && self.due < meant && !self.fits(row, Duration::ZERO) {
            true => AdoptionDecision::Move,
            false => AdoptionDecision::Leave,
        }
    }

    /// Its due time as its row is to have it: never a whole second, by which rows of programs are known.
    pub fn to_be_written(&self) -> UnixMs {
        match self.due.0 % 1000 {
            0 => UnixMs(self.due.0 + 1),
            _ => self.due,
        }
    }

    /// Whether it is due when the row is, as far as is known.
    fn fits(&self, row: &Booked, tolerance: Duration) -> bool {
        let is_near = |due| self.is_near(due, tolerance);
        is_near(row.due) || (self.alive_at.is_none() && is_near(row.due_at))
    }

    fn is_near(&self, due: UnixMs, tolerance: Duration) -> bool {
        let behind = self.due.since(due).saturating_sub(self.slack);
        behind.max(due.since(self.due)) <= tolerance
    }

    /// Whether it was alive when the arming of the row no longer was. A program's row may fall due before its key.
    fn outlives(&self, row: &Booked) -> bool {
        row.is_a_keys()
            && self
                .alive_at
                .is_some_and(|alive_at| alive_at >= row.due.plus(OUTLIVES))
    }
}

#[cfg(test)]
mod tests;
