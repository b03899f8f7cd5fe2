//! What becomes of a key that some program armed with a bare `SETEX`: pure.
//!
//! A key speaks for a new arming only if it cannot be what is left of one that the ledger knows. Its remaining
//! time is the evidence, and that is known only as well as the clocks and the network allow.

use std::time::Duration;

use super::{State, UnixMs};

/// Programs that write the row themselves count in whole seconds, and their key is armed a little later.
const FITS_A_PROGRAM: Duration = Duration::from_secs(2);

/// A due time that came from a key was read from it to the millisecond.
const FITS_A_KEY: Duration = Duration::from_millis(100);

/// A key that is still alive so long after its row fell due has been armed again since.
const OUTLIVES: Duration = Duration::from_millis(50);

/// A key that some program armed, as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Countdown {
    /// When it falls due, on the ledger's clock, at the latest.
    pub due: UnixMs,
    /// How much earlier that may be: so long the answer took.
    pub slack: Duration,
    /// It was alive at this moment or later; `None` if it had expired before it could be looked at.
    pub alive_at: Option<UnixMs>,
    /// Redis has said that it was armed. Otherwise it was found there, and may be a leftover of any age.
    pub heard: bool,
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
    /// Who set that.
    pub origin: Origin,
    /// A program that knows only the seed's columns has deleted it, or armed it again since.
    pub deleted: bool,
}

impl Booked {
    /// Whether its due time came from a key. A program that does not know the mark leaves it there when it writes
    /// the row anew, but it counts in whole seconds, and [`Countdown::to_be_written`] does not.
    pub fn is_a_keys(&self) -> bool {
        self.origin == Origin::Key && self.due.0 % 1000 != 0
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// Nothing: the ledger has it, or had it.
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
    if let Some(meant) = key.meant {
        return row.map_or(Adoption::Leave, |row| key.hastens(row, meant, now));
    }
    let Some(row) = row else {
        return Adoption::Insert;
    };
    if row.origin == Origin::DeletedKey && row.state == State::Cancelled {
        return Adoption::Recreate;
    }
    let is_newer = key.outlives(row);
    if !is_newer && key.fits(row) {
        return Adoption::Leave;
    }
    // Nobody saw whose key it was: it may have been the program's own, armed for its row as it was before.
    if key.alive_at.is_none() && !row.is_a_keys() {
        return Adoption::Leave;
    }
    // Whoever wrote the row, and called it off perhaps, may have failed to do so to the key: an older one was left there.
    if !key.heard && row.origin == Origin::Row {
        return Adoption::Leave;
    }
    match row.state {
        // The revival of deleted rows asks twice; what it may not take for the same arming is one of its own.
        State::Cancelled if row.deleted && !key.heard => Adoption::Leave,
        State::Cancelled => Adoption::Recreate,
        // Due either way.
        State::Pending if row.due <= now && key.due <= now => Adoption::Leave,
        State::Pending => Adoption::Move,
        // It has fallen due: a key that fell due before is what is left of it.
        State::Waiting | State::Running if is_newer || key.due > row.due => Adoption::Move,
        State::Done | State::Dead if is_newer || key.due > row.due => Adoption::Recreate,
        State::Waiting | State::Running | State::Done | State::Dead => Adoption::Leave,
    }
}

impl Countdown {
    /// Of a key that is gone, and was due then.
    pub fn expired(due: UnixMs) -> Self {
        Self {
            due,
            slack: Duration::ZERO,
            alive_at: None,
            heard: true,
            meant: None,
        }
    }

    /// One of ours with another expiry than it was armed with: somebody's `EXPIRE`, or an arming that a stalled
    /// server carried out late. Only the first can make it fall due sooner.
    fn hastens(&self, row: &Booked, meant: UnixMs, now: UnixMs) -> Adoption {
        let waits = row.state == State::Pending && row.due == meant && row.due > now;
        match waits && self.due < row.due {
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

    /// Whether it may be the very arming that the row is about.
    fn fits(&self, row: &Booked) -> bool {
        // What is only known to have expired is known as late as it is heard.
        let is_exact = self.heard && self.alive_at.is_some();
        let tolerance = match is_exact && row.is_a_keys() {
            true => FITS_A_KEY,
            false => FITS_A_PROGRAM,
        };
        let behind = self.due.since(row.due).saturating_sub(self.slack);
        behind.max(row.due.since(self.due)) <= tolerance
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

    fn at(ms: i64) -> UnixMs {
        UnixMs(NOW.0 + ms)
    }

    fn row(state: State, due_ms: i64) -> Booked {
        Booked {
            state,
            due: at(due_ms),
            origin: Origin::Key,
            deleted: false,
        }
    }

    fn heard(due_ms: i64) -> Countdown {
        Countdown {
            due: at(due_ms),
            slack: Duration::ZERO,
            alive_at: Some(NOW),
            heard: true,
            meant: None,
        }
    }

    fn judge(row: Booked, key: Countdown) -> Adoption {
        adoption(Some(&row), &key, NOW)
    }

    #[test]
    fn a_key_without_a_row_gets_one() {
        assert_eq!(adoption(None, &heard(60_000), NOW), Adoption::Insert);
    }

    #[test]
    fn a_key_that_fits_its_row_changes_nothing_whatever_became_of_it() {
        for state in STATES {
            for apart in [-100, 0, 100] {
                assert_eq!(
                    judge(row(state, 60_000), heard(60_000 + apart)),
                    Adoption::Leave,
                    "{state}"
                );
            }
            let program = Booked {
                origin: Origin::Row,
                ..row(state, 60_000)
            };
            for apart in [-2_000, 0, 2_000] {
                assert_eq!(
                    judge(program, heard(60_000 + apart)),
                    Adoption::Leave,
                    "{state}"
                );
            }
        }
    }

    #[test]
    fn a_key_armed_for_later_is_a_new_arming() {
        let becomes = [
            Adoption::Move,
            Adoption::Move,
            Adoption::Move,
            Adoption::Recreate,
            Adoption::Recreate,
            Adoption::Recreate,
        ];
        for (state, wanted) in STATES.into_iter().zip(becomes) {
            assert_eq!(judge(row(state, 60_000), heard(60_101)), wanted, "{state}");
            let program = Booked {
                origin: Origin::Row,
                ..row(state, 60_000)
            };
            assert_eq!(judge(program, heard(62_001)), wanted, "{state}");
        }
    }

    #[test]
    fn a_key_armed_for_sooner_moves_what_has_not_begun_and_nothing_else() {
        let becomes = [
            Adoption::Move,
            Adoption::Leave,
            Adoption::Leave,
            Adoption::Leave,
            Adoption::Leave,
            Adoption::Recreate,
        ];
        for (state, wanted) in STATES.into_iter().zip(becomes) {
            assert_eq!(judge(row(state, 60_000), heard(5_000)), wanted, "{state}");
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
        for (state, wanted) in [
            (State::Pending, Adoption::Move),
            (State::Waiting, Adoption::Move),
            (State::Running, Adoption::Move),
            (State::Done, Adoption::Recreate),
            (State::Dead, Adoption::Recreate),
        ] {
            let due = row(state, -50);
            assert_eq!(judge(due, heard(40)), wanted, "{state}");
            let expired = Countdown {
                alive_at: None,
                ..heard(40)
            };
            assert_eq!(judge(due, expired), Adoption::Leave, "{state}");
            let program = Booked {
                origin: Origin::Row,
                ..due
            };
            assert_eq!(judge(program, heard(40)), Adoption::Leave, "{state}");
        }
    }

    #[test]
    fn a_program_that_wrote_an_adopted_row_anew_is_known_by_its_whole_seconds() {
        let row = Booked {
            due: UnixMs(1_060_000),
            ..row(State::Done, 0)
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
    fn a_key_that_nobody_saw_alive_speaks_only_against_rows_that_came_from_keys() {
        let gone = |due_ms| Countdown::expired(at(due_ms));
        for state in STATES {
            let program = Booked {
                origin: Origin::Row,
                ..row(state, 60_000)
            };
            assert_eq!(judge(program, gone(0)), Adoption::Leave, "{state}");
            assert_eq!(
                judge(row(state, 0), gone(2_000)),
                Adoption::Leave,
                "{state}"
            );
        }
        assert_eq!(judge(row(State::Pending, 60_000), gone(0)), Adoption::Move);
        assert_eq!(judge(row(State::Done, -2_001), gone(0)), Adoption::Recreate);
        assert_eq!(adoption(None, &gone(0), NOW), Adoption::Insert);
    }

    #[test]
    fn a_key_of_ours_only_hastens_the_arming_it_was_made_for() {
        let ours = |meant_ms, due_ms| Countdown {
            meant: Some(at(meant_ms)),
            ..heard(due_ms)
        };
        assert_eq!(adoption(None, &ours(60_000, 5_000), NOW), Adoption::Leave);
        for state in STATES {
            let hastened = match state {
                State::Pending => Adoption::Move,
                _ => Adoption::Leave,
            };
            let row = row(state, 60_000);
            assert_eq!(judge(row, ours(60_000, 5_000)), hastened, "{state}");
            assert_eq!(judge(row, ours(60_000, 90_000)), Adoption::Leave, "{state}");
            assert_eq!(judge(row, ours(50_000, 5_000)), Adoption::Leave, "{state}");
        }
        assert_eq!(
            judge(row(State::Pending, -1), ours(-1, -5_000)),
            Adoption::Leave
        );
    }

    #[test]
    fn a_slow_answer_widens_what_fits_but_only_towards_earlier() {
        let slow = |due_ms| Countdown {
            slack: Duration::from_millis(500),
            ..heard(due_ms)
        };
        assert_eq!(
            judge(row(State::Done, 60_000), slow(60_600)),
            Adoption::Leave
        );
        assert_eq!(
            judge(row(State::Done, 60_000), slow(60_601)),
            Adoption::Recreate
        );
        assert_eq!(
            judge(row(State::Pending, 60_000), slow(59_899)),
            Adoption::Move
        );
    }

    #[test]
    fn what_is_merely_found_must_differ_by_seconds() {
        let found = |due_ms| Countdown {
            heard: false,
            ..heard(due_ms)
        };
        for state in STATES {
            assert_eq!(
                judge(row(state, 60_000), found(62_000)),
                Adoption::Leave,
                "{state}"
            );
        }
        assert_eq!(
            judge(row(State::Pending, 60_000), found(62_001)),
            Adoption::Move
        );
        assert_eq!(
            judge(row(State::Done, -5_000), found(60_000)),
            Adoption::Recreate
        );
        // Whatever became of it: what was moved or called off while redis was away left its older key there.
        for state in STATES {
            let program = Booked {
                origin: Origin::Row,
                ..row(state, 60_000)
            };
            assert_eq!(judge(program, found(90_000)), Adoption::Leave, "{state}");
        }
    }

    #[test]
    fn a_leftover_of_a_cancelled_task_is_ignored_unless_its_key_was_deleted() {
        let cancelled = row(State::Cancelled, 60_000);
        assert_eq!(judge(cancelled, heard(60_000)), Adoption::Leave);
        let withdrawn = Booked {
            origin: Origin::DeletedKey,
            ..cancelled
        };
        assert_eq!(judge(withdrawn, heard(60_000)), Adoption::Recreate);
    }

    #[test]
    fn what_an_old_program_deleted_is_taken_up_only_when_it_was_heard_and_is_due_elsewhere() {
        let deleted = Booked {
            origin: Origin::Row,
            deleted: true,
            ..row(State::Cancelled, 60_000)
        };
        assert_eq!(judge(deleted, heard(61_000)), Adoption::Leave);
        assert_eq!(judge(deleted, heard(90_000)), Adoption::Recreate);
        let found = Countdown {
            heard: false,
            ..heard(90_000)
        };
        assert_eq!(judge(deleted, found), Adoption::Leave);
    }
}
