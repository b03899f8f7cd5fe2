//! Adoption decision for a key that a program armed with a bare `SETEX`. Pure.
//!
//! Evidence is ordered by age. A row carries the time of its last change, and an arming event the time at which it was
//! received. Only the newer of the two counts, however close their due times are. A key without such a time (one that
//! an audit found) counts only if the server has lost no data since the last change of the row.

use std::time::Duration;

use super::{State, UnixMs};

/// Tolerance for programs that write the row themselves: they count in whole seconds, and arm the key a little later.
const PROGRAM_TOLERANCE: Duration = Duration::from_secs(2);

/// Tolerance between the due times that two daemons read for the same key.
const KEY_TOLERANCE: Duration = Duration::from_millis(100);

/// A row that was changed this much later than now was changed before the ledger's clock was set back. Programs that know
/// only the legacy columns may be ahead by the rest of their second.
const AHEAD_MIN: Duration = Duration::from_millis(1_020);

/// A key that is alive this long after its row fell due has been armed again.
const OUTLIVES: Duration = Duration::from_millis(50);

/// Largest assumed error of a daemon's estimate of the ledger's clock. Evidence that is older by at most this counts if
/// a fresh inspection confirms it.
pub const ADOPTION_CLOCK_ERROR_MAX: Duration = Duration::from_millis(20);

/// How much later than its task's end a key that lapsed armed for a retry may be heard: a server that stands still executes
/// the command when it goes on.
const REARMED_LATE_MAX: Duration = Duration::from_secs(10);

/// How long after a change of its row an entry that is read may be the one before it: lapsed commits the row, and writes to
/// Redis after that.
const REPLACED_WITHIN: Duration = Duration::from_millis(250);

/// An event that may have been published longer than this before it was read is *late*. Evidence that is newer than its
/// row by at most this needs a fresh inspection.
pub const EVENT_DELAY_MAX: Duration = Duration::from_millis(1_500);

/// An entry that was read longer ago is not made a row: it is read again.
///
/// A row is written at most this long after that, unless the daemon stands still between the two.
pub const READ_TO_ROW_MAX: Duration = Duration::from_secs(15);

/// The countdown of a key that a program armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Countdown {
    /// Latest possible due time, on the ledger's clock.
    pub due: UnixMs,
    /// How much earlier it may be: the round trip of the query.
    pub tolerance: Duration,
    /// The key was alive at this time or later; `None` if it had expired before its inspection.
    pub alive_at: Option<UnixMs>,
    /// When its arming event was received, on the ledger's clock, or the earliest time at which a late one may have been
    /// published; `None` for a key of unknown age from a scan.
    pub heard: Option<UnixMs>,
    /// True if the event may have been published more than [`EVENT_DELAY_MAX`] before it was received.
    pub late: bool,
    /// For a key from a scan: the server has lost no data since this time. `None`: it may have been restored from older
    /// data.
    pub kept_since: Option<UnixMs>,
    /// The due time in a value that lapsed wrote, if the remaining time differs; `None` for a key of another program.
    pub meant: Option<UnixMs>,
}

/// Evidence that a program has removed a key or an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    /// When the event was received, or the entry was found missing, on the ledger's clock.
    pub heard: UnixMs,
    /// When the sets last lost data, unless every row has had its entry written since.
    pub lost: Option<UnixMs>,
}

impl Removal {
    /// Evidence that does not depend on what sets have lost.
    pub fn at(heard: UnixMs) -> Self {
        Self { heard, lost: None }
    }

    /// How long after a loss of data no row can be written any more whose entry was read before.
    pub const UNCONFIRMED_FOR: Duration = READ_TO_ROW_MAX.saturating_mul(2);

    /// True if the entry of this row may have been lost: it was read before the sets lost it, and the row may have been
    /// written too late for the audit that followed.
    pub fn is_unconfirmed(&self, row: &RowEvidence) -> bool {
        self.lost.is_some_and(|lost| {
            // Of an entry that was due when it was read, the row has the due time in place of that.
            let was_due = row.changed >= row.due;
            let is_recent = row.changed.plus(Self::UNCONFIRMED_FOR) >= lost;
            // No tolerance: a daemon that starts with an empty register reads entries in the same millisecond.
            row.changed < lost && (is_recent || was_due)
        })
    }
}

/// Where the due time of a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// From the program that wrote the row.
    #[default]
    Row,
    /// From a bare `SETEX`; lapsed wrote the row.
    Key,
    /// From an entry that lapsed has read in a sorted set. Once it is in the set no more, a program has removed it,
    /// unless the set has lost it.
    Entry,
    /// Like [`Key`](Self::Key) or [`Entry`](Self::Entry), and cancelled because it was deleted: a key of this name is a
    /// new arming.
    DeletedKey,
}

/// The columns of a row that adoption needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowEvidence {
    /// State of the row.
    pub state: State,
    /// Its `end_time`.
    pub due: UnixMs,
    /// When it may start: `end_time`, or a later retry.
    pub due_at: UnixMs,
    /// Where `end_time` comes from.
    pub origin: Origin,
    /// True if a program that knows only the legacy columns has deleted it, or has armed it again since.
    pub deleted: bool,
    /// Its `changed_at`: when lapsed last changed the arming on request.
    pub changed: UnixMs,
    /// Its `start_time`, which legacy programs write.
    pub created: UnixMs,
    /// Its `finished_at`.
    pub ended: Option<UnixMs>,
}

impl RowEvidence {
    /// True if its due time came from a key. A legacy program that rewrites the row keeps the mark, but writes whole
    /// seconds, which [`Countdown::row_due`] avoids.
    pub fn is_from_key(&self) -> bool {
        self.came_from_key() && self.due.0 % 1000 != 0
    }

    fn came_from_key(&self) -> bool {
        matches!(self.origin, Origin::Key | Origin::Entry)
    }

    /// True if a program that knows only the legacy columns wrote it last.
    fn is_legacy(&self) -> bool {
        self.created > self.changed || (self.came_from_key() && !self.is_from_key())
    }

    /// True if an arming heard then may be by lapsed, for a retry of this task.
    fn may_have_rearmed(&self, heard: UnixMs) -> bool {
        let is_recent = |ended: UnixMs| heard.since(ended) <= REARMED_LATE_MAX;
        self.due_at > self.due && self.ended.is_none_or(is_recent)
    }

    /// True if the row last changed later than now: the ledger's clock was set back since. Its time says nothing about the
    /// age of evidence then; Redis does.
    pub fn is_ahead_of(&self, now: UnixMs) -> bool {
        self.last_word() > now.plus(AHEAD_MIN)
    }

    /// Returns when the row last changed. Older evidence does not count.
    pub fn last_word(&self) -> UnixMs {
        // Legacy programs write the current second.
        let within_a_second = match self.is_legacy() && self.created.0 % 1000 == 0 {
            true => Duration::from_millis(999),
            false => Duration::ZERO,
        };
        let cancelled = self.ended.filter(|_| self.state == State::Cancelled);
        let said = self.changed.max(self.created.plus(within_a_second));
        said.max(cancelled.unwrap_or_default())
    }
}

/// The decision about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptionDecision {
    /// Do nothing: the row has this arming, or a newer one.
    Leave,
    /// Write a row: there is none.
    Insert,
    /// Set the row's due time: it is for an older arming.
    Move,
    /// Create the task again: the row has finished.
    Recreate,
}

/// Decides about a key, given the row of that name.
pub fn decide_adoption(
    row: Option<&RowEvidence>,
    key: &Countdown,
    now: UnixMs,
) -> AdoptionDecision {
    match (row, key.meant, key.heard) {
        (None, Some(_), _) => AdoptionDecision::Leave,
        (None, None, _) => AdoptionDecision::Insert,
        (Some(row), _, Some(heard)) if !key.may_be_younger(heard, row, now) => {
            AdoptionDecision::Leave
        }
        (Some(row), Some(meant), Some(_)) => key.decide_shortened(row, meant, now),
        (Some(_), Some(_), None) => AdoptionDecision::Leave,
        (Some(row), None, Some(heard)) => key.decide_armed(row, heard, now),
        (Some(row), None, None) => key.decide_scanned(row, now),
    }
}

/// Decides about an entry that stays until it is removed, read at `heard`. Its due time is exact, unlike that of a key:
/// an entry with the due time of the row is the row's own, and its run may even have ended.
pub fn decide_requested(row: Option<&RowEvidence>, due: UnixMs, heard: UnixMs) -> AdoptionDecision {
    let Some(row) = row else {
        return AdoptionDecision::Insert;
    };
    if !is_younger(heard, row) {
        return AdoptionDecision::Leave;
    }
    match row.state {
        State::Cancelled => AdoptionDecision::Recreate,
        _ if row.deleted => AdoptionDecision::Recreate,
        _ if row.due == due => AdoptionDecision::Leave,
        State::Pending | State::Waiting | State::Running => AdoptionDecision::Move,
        State::Done | State::Dead => AdoptionDecision::Recreate,
    }
}

/// True if an entry that was read at `heard` may be older than the last change of its row, which was not about an entry.
/// That change may be about to replace it, so it counts only if it is there a little later.
pub fn may_be_replaced(row: &RowEvidence, heard: UnixMs) -> bool {
    let is_about_an_entry = match row.state {
        State::Cancelled => row.origin == Origin::DeletedKey,
        _ => row.origin == Origin::Entry,
    };
    !is_about_an_entry && !row.is_legacy() && heard <= row.last_word().plus(REPLACED_WITHIN)
}

/// Returns this time, for a row: never a whole second, because that marks rows of legacy programs.
pub fn row_due(due: UnixMs) -> UnixMs {
    match due.0 % 1000 {
        0 => UnixMs(due.0 + 1),
        _ => due,
    }
}

/// True if evidence received at `heard` is newer than the row, within the error of the clocks.
pub fn is_younger(heard: UnixMs, row: &RowEvidence) -> bool {
    heard.plus(ADOPTION_CLOCK_ERROR_MAX) >= row.last_word()
}

impl Countdown {
    /// Creates the countdown of a key that was armed at `heard` and gone at its inspection. It was due at about `due`.
    pub fn expired(due: UnixMs, heard: UnixMs) -> Self {
        Self {
            due,
            tolerance: due.since(heard),
            alive_at: None,
            heard: Some(heard),
            late: false,
            kept_since: None,
            meant: None,
        }
    }

    /// True if an `expired` event that was handled by `now` may be about this arming, and not about an older one that
    /// Redis removed when the key was armed again.
    pub fn may_have_expired(&self, now: UnixMs) -> bool {
        self.due.since(now) <= KEY_TOLERANCE
    }

    /// True if this may be newer than the row. A late event may be about the arming that the row has, and about one that
    /// has run since. So a key that is gone counts only if its event was surely published after the last change. A key
    /// that was alive after it counts if a fresh inspection confirms that.
    fn may_be_younger(&self, heard: UnixMs, row: &RowEvidence, now: UnixMs) -> bool {
        match (self.late, self.alive_at) {
            _ if row.is_ahead_of(now) => self.alive_at.is_some(),
            (false, _) => is_younger(heard, row),
            (true, Some(alive_at)) => alive_at > row.last_word(),
            (true, None) => self.is_surely_younger(row),
        }
    }

    /// True if only a fresh inspection can tell whether this is newer than the row.
    pub fn needs_inspection(&self, row: &RowEvidence, now: UnixMs) -> bool {
        // A row does not tell in which order a program deleted and armed a key.
        let is_near = |heard: UnixMs| {
            // An arming received before a run ended may have been replaced by the one that ran.
            let ended = row.ended.unwrap_or_default();
            heard < row.last_word().plus(EVENT_DELAY_MAX) || heard <= ended || row.deleted
        };
        self.due > now
            && self
                .heard
                .is_some_and(|heard| is_near(heard) || row.state == State::Cancelled)
    }

    /// True if it counts without a fresh inspection.
    pub fn is_surely_younger(&self, row: &RowEvidence) -> bool {
        self.heard
            .is_some_and(|heard| heard > row.last_word().plus(ADOPTION_CLOCK_ERROR_MAX))
    }

    /// Decides about a key that was armed after the last change of the row.
    fn decide_armed(&self, row: &RowEvidence, heard: UnixMs, now: UnixMs) -> AdoptionDecision {
        let is_from_key = row.is_from_key();
        // No daemon saw the key alive. It may be the task's own key, for its due time or a retry, or for a redrive,
        // whose key expires at once.
        let is_redriven =
            row.state != State::Pending && self.is_near(row.changed, PROGRAM_TOLERANCE);
        let may_be_own = !is_from_key
            || is_redriven
            || self.fits(row, PROGRAM_TOLERANCE)
            || row.may_have_rearmed(heard);
        if self.alive_at.is_none() && may_be_own {
            return AdoptionDecision::Leave;
        }
        let has_started = row.due <= now && row.state != State::Pending;
        let tolerance = match () {
            () if row.deleted => PROGRAM_TOLERANCE,
            () if is_from_key => KEY_TOLERANCE,
            () if row.is_legacy() => PROGRAM_TOLERANCE,
            // A key of `TaskClient` has a value of lapsed, so another program armed this one.
            () if has_started => KEY_TOLERANCE,
            () => Duration::ZERO,
        };
        let has_ended = row.ended.is_some_and(|ended| heard > ended);
        let fits = self.fits(row, tolerance) && !self.outlives(row);
        match row.state {
            // Only its undelete shows whether the row was armed again.
            State::Cancelled if row.deleted && fits => AdoptionDecision::Leave,
            State::Cancelled => AdoptionDecision::Recreate,
            // Same due time, armed again: older evidence no longer counts.
            State::Pending
                if fits && is_from_key && heard > row.last_word().plus(EVENT_DELAY_MAX) =>
            {
                AdoptionDecision::Move
            }
            _ if fits && !has_ended => AdoptionDecision::Leave,
            // The run did not start before this due time.
            _ if has_started && !has_ended && self.due <= row.due => AdoptionDecision::Leave,
            // Both are due; the row decides.
            State::Pending if self.alive_at.is_none() && row.due <= now && self.due <= now => {
                AdoptionDecision::Leave
            }
            State::Pending | State::Waiting | State::Running => AdoptionDecision::Move,
            State::Done | State::Dead => AdoptionDecision::Recreate,
        }
    }

    /// Decides about a key from a scan. It is newer than the row if the server has lost no data since the row changed,
    /// because the change replaced any older key. After a restart it may be older data.
    fn decide_scanned(&self, row: &RowEvidence, now: UnixMs) -> AdoptionDecision {
        let last_word = row.last_word();
        let may_be_restored = self.kept_since.is_none_or(|since| last_word <= since);
        let was_seen_before = self.alive_at.is_none_or(|seen| seen < last_word);
        if may_be_restored || was_seen_before {
            return AdoptionDecision::Leave;
        }
        if row.origin == Origin::DeletedKey && row.state == State::Cancelled {
            return AdoptionDecision::Recreate;
        }
        // The program that wrote or cancelled the row may have failed to change the key, so this may be an older one.
        if row.origin == Origin::Row || row.state == State::Cancelled {
            return AdoptionDecision::Leave;
        }
        let outlives = self.outlives(row);
        if !outlives && self.fits(row, PROGRAM_TOLERANCE) {
            return AdoptionDecision::Leave;
        }
        match row.state {
            State::Pending if row.due <= now && self.due <= now => AdoptionDecision::Leave,
            State::Pending => AdoptionDecision::Move,
            // The row fell due. A key that was due earlier is a leftover.
            State::Waiting | State::Running if outlives || self.due > row.due => {
                AdoptionDecision::Move
            }
            State::Done | State::Dead if outlives || self.due > row.due => {
                AdoptionDecision::Recreate
            }
            _ => AdoptionDecision::Leave,
        }
    }

    /// Decides about a key of lapsed that expires earlier than its value says: a program called `EXPIRE`, and the
    /// latest call counts. A key that expires later may be an arming that a stalled server executed late.
    fn decide_shortened(&self, row: &RowEvidence, meant: UnixMs, now: UnixMs) -> AdoptionDecision {
        // A pending arming may wait for a run to end.
        let waits = matches!(row.state, State::Pending | State::Running) && row.due > now;
        match waits && self.due < meant && !self.fits(row, Duration::ZERO) {
            true => AdoptionDecision::Move,
            false => AdoptionDecision::Leave,
        }
    }

    /// Returns the due time for the row.
    pub fn row_due(&self) -> UnixMs {
        row_due(self.due)
    }

    /// True if its due time matches the row's, within `tolerance`.
    fn fits(&self, row: &RowEvidence, tolerance: Duration) -> bool {
        let is_near = |due| self.is_near(due, tolerance);
        is_near(row.due) || (self.alive_at.is_none() && is_near(row.due_at))
    }

    fn is_near(&self, due: UnixMs, tolerance: Duration) -> bool {
        let behind = self.due.since(due).saturating_sub(self.tolerance);
        behind.max(due.since(self.due)) <= tolerance
    }

    /// True if the key was alive after the row's arming had expired. A legacy row may fall due before its key.
    fn outlives(&self, row: &RowEvidence) -> bool {
        row.is_from_key()
            && self
                .alive_at
                .is_some_and(|alive_at| alive_at >= row.due.plus(OUTLIVES))
    }
}

#[cfg(test)]
mod tests;
