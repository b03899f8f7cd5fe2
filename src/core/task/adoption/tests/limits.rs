//! The millisecond at which a rule begins to hold.

use super::*;

use AdoptionDecision::{Leave, Move, Recreate};

#[test]
fn a_scanned_key_moves_what_has_not_ended_and_begins_anew_what_has() {
    // Neither is from the task's own key: they are more than two seconds apart.
    let cases = [
        // Both are due; the row decides.
        (State::Pending, -20, -5_000, Leave),
        (State::Pending, -20, 5_000, Move),
        (State::Pending, 3_000, -5_000, Move),
        // The key was due earlier, and is gone or will be.
        (State::Waiting, -20, -5_000, Leave),
        (State::Running, -20, -5_000, Leave),
        (State::Done, -20, -5_000, Leave),
        (State::Dead, -20, -5_000, Leave),
        // It was due earlier, and is alive 50 ms after the row fell due.
        (State::Waiting, -50, -5_000, Move),
        (State::Running, -49, -5_000, Leave),
        (State::Done, -50, -5_000, Recreate),
        (State::Dead, -49, -5_000, Leave),
        (State::Running, -20, 5_000, Move),
        (State::Done, -20, 5_000, Recreate),
    ];
    for (state, due, key_due, expected) in cases {
        let decided = judge(row(state, due), found(key_due));
        assert_eq!(decided, expected, "{state:?} at {due}, key at {key_due}");
    }
}

#[test]
fn a_scanned_key_counts_if_it_was_seen_in_the_millisecond_of_the_change() {
    for (changed, expected) in [(0, Move), (1, Leave)] {
        let row = RowEvidence {
            changed: at(changed),
            ..row(State::Pending, 60_000)
        };
        assert_eq!(judge(row, found(30_000)), expected, "{changed}");
    }
}

#[test]
fn a_late_event_counts_if_its_key_was_alive_after_the_change() {
    for (alive_at, expected) in [(-60_000, Leave), (-59_999, Move)] {
        let key = Countdown {
            late: true,
            alive_at: Some(at(alive_at)),
            ..heard(30_000)
        };
        assert_eq!(judge(row(State::Pending, 60_000), key), expected);
    }
}

#[test]
fn a_row_is_ahead_of_the_clock_beyond_the_second_of_a_legacy_program() {
    for (ahead, expected) in [(1_020, Leave), (1_021, Move)] {
        let row = RowEvidence {
            changed: at(ahead),
            ..row(State::Pending, 60_000)
        };
        assert_eq!(judge(row, heard(30_000)), expected, "{ahead}");
    }
}

#[test]
fn evidence_close_to_the_change_needs_an_inspection_while_its_key_may_be_there() {
    let changed = |ms: i64| RowEvidence {
        changed: at(ms),
        ..row(State::Pending, 60_000)
    };
    assert!(heard(1).needs_inspection(&changed(-1_499), NOW));
    assert!(!heard(1).needs_inspection(&changed(-1_500), NOW));
    assert!(!heard(0).needs_inspection(&changed(-1_499), NOW));
    assert!(heard(1).is_surely_younger(&changed(-21)));
    assert!(!heard(1).is_surely_younger(&changed(-20)));
}

#[test]
fn a_pending_task_changed_when_the_key_was_due_is_not_taken_for_a_redriven_one() {
    let changed = |state| RowEvidence {
        changed: at(-1_000),
        ..row(state, 60_000)
    };
    let gone = Countdown::expired(NOW, NOW);
    assert_eq!(judge(changed(State::Pending), gone), Move);
    assert_eq!(judge(changed(State::Waiting), gone), Leave);
}

#[test]
fn a_key_close_to_a_deleted_task_is_the_deleted_one() {
    let deleted = RowEvidence {
        deleted: true,
        ..row(State::Cancelled, 60_000)
    };
    assert_eq!(judge(deleted, heard(58_500)), Leave);
    assert_eq!(judge(deleted, heard(57_900)), Recreate);
}

#[test]
fn a_key_read_twice_differs_by_a_tenth_of_a_second_at_most() {
    for (due, expected) in [(-450, Leave), (-400, Leave), (-399, Move)] {
        let row = of_a_client(State::Running, -500);
        assert_eq!(judge(row, heard(due)), expected, "{due}");
    }
}

#[test]
fn a_key_heard_in_the_millisecond_of_the_end_is_that_of_the_run() {
    for (ended, expected) in [(0, Leave), (-1, Recreate)] {
        let row = RowEvidence {
            ended: Some(at(ended)),
            ..of_a_client(State::Done, -500)
        };
        assert_eq!(judge(row, heard(-500)), expected, "{ended}");
    }
}

#[test]
fn a_key_armed_again_for_the_same_time_counts_as_a_change() {
    for (changed, expected) in [(-1_500, Leave), (-1_501, Move)] {
        let row = RowEvidence {
            changed: at(changed),
            ..row(State::Pending, 60_000)
        };
        assert_eq!(judge(row, heard(60_000)), expected, "{changed}");
    }
}

#[test]
fn a_key_of_lapsed_moves_its_task_only_if_it_was_shortened_before_that_is_due() {
    let key = |due: i64, meant: i64| Countdown {
        meant: Some(at(meant)),
        ..heard(due)
    };
    assert_eq!(
        judge(row(State::Pending, 60_000), key(30_000, 60_000)),
        Move
    );
    assert_eq!(
        judge(row(State::Pending, 60_000), key(30_000, 30_000)),
        Leave
    );
    assert_eq!(judge(row(State::Pending, 1), key(-5, 100)), Move);
    assert_eq!(judge(row(State::Pending, 0), key(-5, 100)), Leave);
}

#[test]
fn a_row_is_unconfirmed_if_its_entry_was_read_half_a_minute_before_a_loss() {
    let lost = Removal {
        heard: at(0),
        lost: Some(at(-100_000)),
    };
    let cases = [
        (-130_001, false),
        (-130_000, true),
        (-100_001, true),
        (-100_000, false),
    ];
    for (changed, expected) in cases {
        let row = RowEvidence {
            changed: at(changed),
            ..row(State::Pending, 60_000)
        };
        assert_eq!(lost.is_unconfirmed(&row), expected, "changed at {changed}");
        let was_due = RowEvidence {
            due: row.changed,
            ..row
        };
        assert_eq!(lost.is_unconfirmed(&was_due), changed < -100_000);
        assert!(!Removal::at(at(0)).is_unconfirmed(&row));
    }
}
