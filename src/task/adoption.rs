//! What becomes of a key that some program armed with a bare `SETEX`: pure.
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
    /// Whoever wrote the row.
    #[default]
    Row,
    /// The row was written on behalf of a bare `SETEX`.
    Key,
    /// So it was, and called off because that key was deleted: any key of this name is a new one.
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

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// Nothing: the ledger has it, or had it, or something newer.
    Leave,
    /// There is no row: write one.
    Insert,
    /// The row is another arming of this task: give it this due time.
    Move,
    /// The row is over and done with: begin anew.
    Recreate,
}

/// Judges a key that was seen, against the row of its name.
pub fn adoption(row: Option<&Booked>, key: &Countdown, now: UnixMs) -> Adoption {
    match (row, key.meant, key.heard) {
        (None, Some(_), _) => Adoption::Leave,
        (None, None, _) => Adoption::Insert,
        (Some(row), _, Some(heard)) if !is_younger(heard, row) => Adoption::Leave,
        (Some(row), Some(meant), Some(_)) => key.hastens(row, meant, now),
        (Some(_), Some(_), None) => Adoption::Leave,
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
    fn armed_since(&self, row: &Booked, heard: UnixMs, now: UnixMs) -> Adoption {
        let is_a_keys = row.is_a_keys();
        // Nobody saw whose key it was: it may have been the task's own, for its due time or for a retry.
        if self.alive_at.is_none() && (!is_a_keys || self.fits(row, FITS_A_PROGRAM)) {
            return Adoption::Leave;
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
            State::Cancelled if row.deleted && fits => Adoption::Leave,
            State::Cancelled => Adoption::Recreate,
            // The same moment once more: what was heard before this does not count any more.
            State::Pending if fits && is_a_keys && heard > row.last_word().plus(HEARD_LATE) => {
                Adoption::Move
            }
            _ if fits && !has_ended => Adoption::Leave,
            // It has begun no sooner than this would have.
            _ if has_begun && !has_ended && self.due <= row.due => Adoption::Leave,
            // Due either way; but what was seen of it is the last word now.
            State::Pending if self.alive_at.is_none() && row.due <= now && self.due <= now => {
                Adoption::Leave
            }
            State::Pending | State::Waiting | State::Running => Adoption::Move,
            State::Done | State::Dead => Adoption::Recreate,
        }
    }

    /// A key that was found. It is younger than the last word on the row, if the server has lost nothing since: of an older
    /// one there is nothing left. After a restart it may be older data.
    fn found_over(&self, row: &Booked, now: UnixMs) -> Adoption {
        let last_word = row.last_word();
        let may_be_restored = self.kept_since.is_none_or(|since| last_word <= since);
        let was_seen_before = self.alive_at.is_none_or(|seen| seen < last_word);
        if may_be_restored || was_seen_before {
            return Adoption::Leave;
        }
        if row.origin == Origin::DeletedKey && row.state == State::Cancelled {
            return Adoption::Recreate;
        }
        // Whoever wrote the row, or cancelled it, may have failed to do so to the key: an older one was left there.
        if row.origin == Origin::Row || row.state == State::Cancelled {
            return Adoption::Leave;
        }
        let outlives = self.outlives(row);
        if !outlives && self.fits(row, FITS_A_PROGRAM) {
            return Adoption::Leave;
        }
        match row.state {
            State::Pending if row.due <= now && self.due <= now => Adoption::Leave,
            State::Pending => Adoption::Move,
            // It has fallen due: a key that fell due before is what is left of it.
            State::Waiting | State::Running if outlives || self.due > row.due => Adoption::Move,
            State::Done | State::Dead if outlives || self.due > row.due => Adoption::Recreate,
            _ => Adoption::Leave,
        }
    }

    /// One of ours that expires sooner than it was armed to: somebody's `EXPIRE`, the latest of which counts. What expires
    /// later may be an arming of ours that a stalled server carried out late.
    fn hastens(&self, row: &Booked, meant: UnixMs, now: UnixMs) -> Adoption {
        // It may wait behind a run.
        let waits = matches!(row.state, State::Pending | State::Running) && row.due > now;
        match waits && self.due < meant && !self.fits(row, Duration::ZERO) {
            true => Adoption::Move,
            false => Adoption::Leave,
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
        let is_near = |due: UnixMs| {
            let behind = self.due.since(due).saturating_sub(self.slack);
            behind.max(due.since(self.due)) <= tolerance
        };
        is_near(row.due) || (self.alive_at.is_none() && is_near(row.due_at))
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
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(1_000_007);
    const STATES: [State; 6] = [
        State::Pending,
        State::Waiting,
        State::Running,
        State::Done,
        State::Dead,
        State::Cancelled,
    ];
    const MOVED_OR_BEGUN_ANEW: [Adoption; 6] = [
        Adoption::Move,
        Adoption::Move,
        Adoption::Move,
        Adoption::Recreate,
        Adoption::Recreate,
        Adoption::Recreate,
    ];

    fn at(ms: i64) -> UnixMs {
        UnixMs(NOW.0 + ms)
    }

    /// A row from a key, last changed a minute ago; a finished one ended a second ago.
    fn row(state: State, due_ms: i64) -> Booked {
        Booked {
            state,
            due: at(due_ms),
            due_at: at(due_ms),
            origin: Origin::Key,
            deleted: false,
            changed: at(-60_000),
            created: at(-60_000),
            ended: state.is_finished().then(|| at(-1_000)),
        }
    }

    fn of_a_client(state: State, due_ms: i64) -> Booked {
        Booked {
            origin: Origin::Row,
            ..row(state, due_ms)
        }
    }

    fn of_a_program(state: State, due_ms: i64) -> Booked {
        Booked {
            changed: UnixMs(0),
            ..of_a_client(state, due_ms)
        }
    }

    fn heard(due_ms: i64) -> Countdown {
        Countdown {
            due: at(due_ms),
            slack: Duration::ZERO,
            alive_at: Some(NOW),
            heard: Some(NOW),
            kept_since: None,
            meant: None,
        }
    }

    fn heard_at(ms: i64, due_ms: i64) -> Countdown {
        Countdown {
            heard: Some(at(ms)),
            ..heard(due_ms)
        }
    }

    fn found(due_ms: i64) -> Countdown {
        Countdown {
            heard: None,
            kept_since: Some(UnixMs(0)),
            ..heard(due_ms)
        }
    }

    fn judge(row: Booked, key: Countdown) -> Adoption {
        adoption(Some(&row), &key, NOW)
    }

    #[test]
    fn a_key_without_a_row_gets_one() {
        for key in [heard(60_000), found(60_000), Countdown::expired(NOW, NOW)] {
            assert_eq!(adoption(None, &key, NOW), Adoption::Insert);
        }
    }

    #[test]
    fn a_key_that_was_found_after_a_restart_says_nothing_about_an_older_row() {
        let deleted = Booked {
            origin: Origin::DeletedKey,
            ..row(State::Cancelled, 60_000)
        };
        let last_word = deleted.last_word();
        for (kept_since, counts) in [
            (None, false),
            (Some(NOW), false),
            (Some(last_word), false),
            (Some(UnixMs(last_word.0 - 1)), true),
        ] {
            let key = Countdown {
                kept_since,
                ..found(90_000)
            };
            assert_eq!(judge(deleted, key) == Adoption::Recreate, counts);
        }
        // Written while it waited to be judged.
        let key = Countdown {
            alive_at: Some(UnixMs(last_word.0 - 1)),
            ..found(90_000)
        };
        assert_eq!(judge(deleted, key), Adoption::Leave);
        for state in STATES {
            let since = row(state, 0).last_word();
            let key = Countdown {
                kept_since: Some(since),
                ..found(90_000)
            };
            assert_eq!(judge(row(state, -100), key), Adoption::Leave, "{state}");
        }
    }

    #[test]
    fn what_was_heard_before_a_run_ended_needs_a_look() {
        let ended = row(State::Done, -5_000);
        for (heard_ms, needs) in [(-1_001, true), (-999, false)] {
            let key = heard_at(heard_ms, 60_000);
            assert_eq!(key.needs_a_look(&ended, NOW), needs);
            assert_eq!(judge(ended, key), Adoption::Recreate);
        }
    }

    #[test]
    fn evidence_from_before_the_last_word_does_not_count_however_far_apart_the_due_times() {
        for state in STATES {
            for of in [row, of_a_client, of_a_program] {
                for due_ms in [100, 30_000, 90_000] {
                    let row = of(state, 60_000);
                    let key = heard_at(-60_021, due_ms);
                    assert_eq!(judge(row, key), Adoption::Leave, "{state}");
                    let ours = Countdown {
                        meant: Some(at(60_000)),
                        ..key
                    };
                    assert_eq!(judge(row, ours), Adoption::Leave, "{state}");
                }
            }
        }
    }

    #[test]
    fn a_key_armed_after_a_cancellation_or_an_end_begins_anew_however_near() {
        for state in [State::Done, State::Dead, State::Cancelled] {
            for of in [row, of_a_client, of_a_program] {
                for apart in [-1_000, 0, 1_000] {
                    let ended = of(state, 5_000);
                    assert_eq!(judge(ended, heard(5_000 + apart)), Adoption::Recreate);
                }
            }
        }
        // Until it ended, it was the arming that ran.
        for of in [row, of_a_client, of_a_program] {
            let done = of(State::Done, 0);
            assert_eq!(judge(done, heard_at(-2_000, 0)), Adoption::Leave);
        }
    }

    #[test]
    fn a_younger_key_that_fits_its_row_is_the_same_arming() {
        for state in [State::Pending, State::Waiting, State::Running] {
            for apart in [-100, 0, 100] {
                // As the next in line heard it.
                let key = heard_at(-59_900, 60_000 + apart);
                assert_eq!(judge(row(state, 60_000), key), Adoption::Leave, "{state}");
            }
            for apart in [-2_000, 0, 2_000] {
                let program = of_a_program(state, 60_000);
                let key = heard(60_000 + apart);
                assert_eq!(judge(program, key), Adoption::Leave, "{state}");
            }
        }
    }

    #[test]
    fn a_key_over_a_row_of_a_client_is_exact() {
        let pending = of_a_client(State::Pending, 60_000);
        for apart in [-1_900, -1, 1, 1_900] {
            let key = heard(60_000 + apart);
            assert_eq!(judge(pending, key), Adoption::Move, "{apart}");
        }
        assert_eq!(judge(pending, heard(60_000)), Adoption::Leave);
    }

    #[test]
    fn a_key_armed_for_another_time_is_a_new_arming() {
        for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW) {
            for due_ms in [5_000, 60_101] {
                assert_eq!(judge(row(state, 60_000), heard(due_ms)), wanted, "{state}");
            }
            for due_ms in [5_000, 62_001] {
                let program = of_a_program(state, 60_000);
                assert_eq!(judge(program, heard(due_ms)), wanted, "{state}");
            }
        }
    }

    #[test]
    fn what_has_begun_no_sooner_than_the_key_was_due_is_left_alone() {
        for state in [State::Waiting, State::Running, State::Done, State::Dead] {
            let begun = of_a_client(state, -1_500);
            let key = heard_at(-10_000, -5_000);
            assert_eq!(judge(begun, key), Adoption::Leave, "{state}");
        }
    }

    #[test]
    fn what_is_due_already_is_not_moved_to_another_time_in_the_past() {
        let gone = Countdown {
            alive_at: None,
            ..heard(-3_000)
        };
        assert_eq!(judge(row(State::Pending, 0), gone), Adoption::Leave);
        assert_eq!(judge(row(State::Pending, 1), gone), Adoption::Move);
    }

    #[test]
    fn a_key_that_outlives_its_row_was_armed_again_however_near() {
        for (state, wanted) in STATES.into_iter().zip(MOVED_OR_BEGUN_ANEW).take(5) {
            let due = Booked {
                ended: None,
                ..row(state, -50)
            };
            assert_eq!(judge(due, heard(40)), wanted, "{state}");
            let expired = Countdown {
                alive_at: None,
                ..heard(40)
            };
            assert_eq!(judge(due, expired), Adoption::Leave, "{state}");
        }
    }

    #[test]
    fn a_program_that_wrote_an_adopted_row_anew_is_known_by_its_whole_seconds() {
        let row = Booked {
            due: UnixMs(1_060_000),
            ..row(State::Pending, 0)
        };
        for due in [1_060_000, 1_060_900, 1_062_000] {
            let key = Countdown {
                due: UnixMs(due),
                alive_at: Some(UnixMs(due - 1)),
                ..heard(0)
            };
            assert_eq!(adoption(Some(&row), &key, UnixMs(due)), Adoption::Leave);
            assert_ne!(key.to_be_written().0 % 1000, 0);
            assert!(key.to_be_written() >= key.due);
        }
    }

    #[test]
    fn a_program_may_write_the_second_of_its_last_word() {
        let row = Booked {
            created: UnixMs(1_000_000),
            ..of_a_program(State::Pending, 60_000)
        };
        assert_eq!(row.last_word(), UnixMs(1_000_999));
        let exact = Booked {
            created: UnixMs(1_000_001),
            ..row
        };
        assert_eq!(exact.last_word(), UnixMs(1_000_001));
    }

    #[test]
    fn a_cancellation_by_an_earlier_version_is_a_last_word() {
        let cancelled = Booked {
            ended: Some(at(-10)),
            ..of_a_program(State::Cancelled, 60_000)
        };
        assert_eq!(judge(cancelled, heard_at(-31, 90_000)), Adoption::Leave);
        assert_eq!(judge(cancelled, heard(90_000)), Adoption::Recreate);
    }

    #[test]
    fn a_key_that_nobody_saw_alive_speaks_only_against_rows_that_came_from_keys() {
        let gone = |due_ms| Countdown::expired(at(due_ms), at(due_ms));
        for state in STATES {
            for of in [of_a_client, of_a_program] {
                assert_eq!(
                    judge(of(state, 60_000), gone(0)),
                    Adoption::Leave,
                    "{state}"
                );
            }
            assert_eq!(
                judge(row(state, 0), gone(2_000)),
                Adoption::Leave,
                "{state}"
            );
        }
        assert_eq!(judge(row(State::Pending, 60_000), gone(0)), Adoption::Move);
        assert_eq!(judge(row(State::Done, -2_001), gone(0)), Adoption::Recreate);
        // It may have been ours, armed for a retry.
        let waiting = Booked {
            due_at: at(-1),
            ..row(State::Waiting, -30_000)
        };
        assert_eq!(judge(waiting, gone(0)), Adoption::Leave);
    }

    #[test]
    fn each_expiry_that_is_sooner_than_a_key_of_ours_was_armed_for_counts() {
        let ours = |meant_ms, due_ms| Countdown {
            meant: Some(at(meant_ms)),
            ..heard(due_ms)
        };
        assert_eq!(adoption(None, &ours(60_000, 5_000), NOW), Adoption::Leave);
        for state in STATES {
            let hastened = match state {
                State::Pending | State::Running => Adoption::Move,
                _ => Adoption::Leave,
            };
            for row_ms in [60_000, 30_000, 2_000] {
                let row = of_a_client(state, row_ms);
                assert_eq!(judge(row, ours(60_000, 5_000)), hastened, "{state}");
                assert_eq!(judge(row, ours(60_000, 90_000)), Adoption::Leave, "{state}");
            }
        }
        let due = of_a_client(State::Pending, -1);
        assert_eq!(judge(due, ours(-1, -5_000)), Adoption::Leave);
    }

    #[test]
    fn a_slow_answer_widens_what_fits_but_only_towards_earlier() {
        let slow = |due_ms| Countdown {
            slack: Duration::from_millis(500),
            ..heard(due_ms)
        };
        let pending = Booked {
            changed: NOW,
            ..row(State::Pending, 60_000)
        };
        assert_eq!(judge(pending, slow(60_600)), Adoption::Leave);
        assert_eq!(judge(pending, slow(60_601)), Adoption::Move);
        assert_eq!(judge(pending, slow(59_899)), Adoption::Move);
    }

    #[test]
    fn what_is_merely_found_counts_only_against_rows_from_keys_and_by_seconds() {
        for state in STATES {
            let row = row(state, 60_000);
            assert_eq!(judge(row, found(62_000)), Adoption::Leave, "{state}");
        }
        let pending = row(State::Pending, 60_000);
        assert_eq!(judge(pending, found(62_001)), Adoption::Move);
        let done = row(State::Done, -5_000);
        assert_eq!(judge(done, found(60_000)), Adoption::Recreate);
        // Whatever became of it: what was moved or cancelled while redis was away left its older key there.
        for state in STATES {
            for of in [of_a_client, of_a_program] {
                assert_eq!(judge(of(state, 60_000), found(90_000)), Adoption::Leave);
            }
        }
    }

    #[test]
    fn what_is_found_over_a_cancelled_task_is_a_leftover_unless_its_key_was_deleted() {
        let cancelled = row(State::Cancelled, 60_000);
        for due_ms in [5_000, 60_000, 90_000] {
            assert_eq!(judge(cancelled, found(due_ms)), Adoption::Leave);
            let withdrawn = Booked {
                origin: Origin::DeletedKey,
                ..cancelled
            };
            assert_eq!(judge(withdrawn, found(due_ms)), Adoption::Recreate);
        }
    }

    #[test]
    fn what_an_old_program_deleted_is_taken_up_only_when_it_was_heard_and_is_due_elsewhere() {
        let deleted = Booked {
            deleted: true,
            ended: None,
            ..of_a_program(State::Cancelled, 60_000)
        };
        assert_eq!(judge(deleted, heard(61_000)), Adoption::Leave);
        assert_eq!(judge(deleted, heard(90_000)), Adoption::Recreate);
        assert_eq!(judge(deleted, found(90_000)), Adoption::Leave);
    }

    #[test]
    fn a_fresh_look_decides_where_the_clocks_are_too_coarse() {
        let doubt = |row: &Booked, key: &Countdown| {
            (key.needs_a_look(row, NOW), key.is_surely_younger(row))
        };
        let pending = of_a_client(State::Pending, 60_000);
        assert_eq!(doubt(&pending, &heard_at(-60_010, 90_000)), (true, false));
        assert_eq!(doubt(&pending, &heard_at(-59_900, 90_000)), (true, true));
        assert_eq!(doubt(&pending, &heard(90_000)), (false, true));
        let cancelled = of_a_client(State::Cancelled, 60_000);
        assert_eq!(doubt(&cancelled, &heard(90_000)), (true, true));
        // What is due by now is gone, whoever armed it.
        assert_eq!(doubt(&cancelled, &heard(-1)), (false, true));
    }
}
