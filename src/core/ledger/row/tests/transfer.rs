//! Rows of two ledgers that meet in a move. See [`transfer`](crate::ledger::transfer).

use super::*;
use crate::ledger::hold::{GiveUp, HELD_UNTIL};
use crate::ledger::row::{Arrival, StoredRecurrence};

const NOTE: &str = r#"{"moved_to":"there"}"#;

/// The row as a move holds it.
fn held(row: &Row) -> Row {
    row.staged(row.id, None)
}

/// A held row over which another arming was created.
fn created_over_held(ahead: i64) -> Row {
    let mut row = held(&row(60_000));
    row.create_over(&task(ahead), NOW);
    assert!(row.is_held() && !row.is_of_move());
    row
}

fn recurring(row: Row) -> Row {
    let every = Recurrence::every(Duration::from_secs(60)).unwrap();
    Row {
        recurrence: Some(StoredRecurrence::Known(every)),
        ..row
    }
}

fn changed(row: Row, ahead: i64) -> Row {
    Row {
        changed_at: ms(ahead),
        ..row
    }
}

fn ended(mut row: Row, status: Status) -> Row {
    row.finish(status, NOW);
    row
}

#[test]
fn an_arriving_row_and_the_unfinished_row_of_its_key() {
    let arriving = changed(row(60_000), -100);
    let other = |changed_at| changed(row(70_000), changed_at);
    let deleted = Row {
        deleted: true,
        ..other(0)
    };
    let mut admitted = held(&arriving);
    admitted.admit(ms(60_000), NOW);
    let later_state = Row {
        attempt: 1,
        ..arriving.clone()
    };
    for (what, existing, expected) in [
        ("staged before", held(&arriving), Arrival::Write),
        (
            "staged in a later state",
            held(&later_state),
            Arrival::Known,
        ),
        ("staged and admitted before", admitted, Arrival::Known),
        (
            "this arming, changed earlier",
            changed(row(60_000), -200),
            Arrival::Known,
        ),
        (
            "this arming, and it runs",
            claimed(row(60_000), NOW),
            Arrival::Known,
        ),
        ("another runs", claimed(other(-200), NOW), Arrival::Busy),
        (
            "another over a held row",
            created_over_held(70_000),
            Arrival::Known,
        ),
        ("another, deleted", deleted, Arrival::Write),
        ("another, changed later", other(-99), Arrival::Known),
        ("another, changed at once", other(-100), Arrival::Known),
        ("another, changed earlier", other(-101), Arrival::Write),
        ("an earlier series", recurring(other(-200)), Arrival::Write),
    ] {
        assert_eq!(arriving.arrive(Some(&existing), NOW), expected, "{what}");
    }
    assert_eq!(arriving.arrive(None, NOW), Arrival::Write);
    let series = recurring(arriving);
    for (what, existing, expected) in [
        ("its series", recurring(other(-200)), Arrival::Known),
        ("a single task", other(-200), Arrival::Write),
    ] {
        assert_eq!(series.arrive(Some(&existing), NOW), expected, "{what}");
    }
}

#[test]
fn an_arriving_row_and_the_finished_row_of_its_key() {
    let done = ended(claimed(row(60_000), NOW), Status::Processed);
    let mut moved_away = held(&row(60_000));
    moved_away.give_up(ms(60_000), GiveUp::Moved, NOTE, NOW);
    let other = ended(row(70_000), Status::Processed);
    for (what, existing, changed_at, expected) in [
        ("changed before its end", &done, -1, Arrival::Known),
        ("changed at its end", &done, 0, Arrival::Known),
        ("redriven since", &done, 1, Arrival::Write),
        ("it was moved away", &moved_away, -1, Arrival::Write),
        ("another arming", &other, -1, Arrival::Write),
    ] {
        let arriving = changed(row(60_000), changed_at);
        assert_eq!(arriving.arrive(Some(existing), NOW), expected, "{what}");
    }
}

#[test]
fn a_row_is_staged_with_all_but_its_id_and_the_entry_that_the_other_timer_has() {
    let source = claimed(row(-5), NOW);
    for (origin, expected) in [
        (Origin::Row, Origin::Row),
        (Origin::Key, Origin::Key),
        (Origin::Entry, Origin::Key),
    ] {
        let source = Row {
            origin,
            ..source.clone()
        };
        let staged = source.staged(9, None);
        assert_eq!((staged.id, staged.origin), (9, expected));
        assert_eq!(staged.lease_until, HELD_UNTIL);
        assert!(staged.is_held() && staged.is_of_move());
        assert_eq!((staged.attempt, staged.deleted), (1, false));
    }
}

#[test]
fn only_the_cancellation_of_the_same_held_arming_is_kept_when_it_is_staged_again() {
    let source = row(60_000);
    let cancelled = |mut row: Row| {
        row.cancel(NOW);
        row
    };
    for (what, over, expected) in [
        ("cancelled", cancelled(held(&source)), Some(NOW)),
        ("not cancelled", held(&source), None),
        ("another arming", cancelled(held(&row(70_000))), None),
        ("not held", cancelled(claimed(source.clone(), NOW)), None),
    ] {
        let staged = source.staged(9, Some(&over));
        assert_eq!(staged.deleted, expected.is_some(), "{what}");
        assert_eq!(staged.finished_at, expected, "{what}");
    }
}

#[test]
fn only_a_free_row_that_is_as_it_was_read_is_held() {
    let freezes = |row: &Row, seen: &Row| {
        let mut after = row.clone();
        let is_held = after.freeze(seen, NOW);
        let is_changed = columns(&after) != columns(row);
        assert_eq!(is_changed, is_held && !row.is_held());
        is_held
    };
    let free = row(60_000);
    assert!(freezes(&free, &free));
    let deleted = Row {
        deleted: true,
        ..free.clone()
    };
    for (what, row) in [
        ("done", ended(free.clone(), Status::Processed)),
        ("deleted", deleted),
        ("running", claimed(free.clone(), NOW)),
    ] {
        assert!(!freezes(&row, &row), "{what}");
    }
    assert!(!freezes(&changed(free.clone(), 1), &free), "changed since");

    let due = free.end_time;
    let mut back = held(&free);
    back.admit(due, NOW);
    assert!(!freezes(&back, &free), "held since, and admitted again");
    let mut open = free.clone();
    open.admit(due, NOW);
    assert!(!freezes(&open, &free), "admitted since");
    let mut unstaged = held(&free);
    unstaged.unstage(due, NOW);
    unstaged.admit(due, NOW);
    assert!(!freezes(&unstaged, &free), "unstaged since, and admitted");

    // Repeated.
    assert!(freezes(&held(&free), &free));
    let other = row(70_000);
    assert!(!freezes(&held(&free), &other), "held for another arming");
    assert!(!freezes(&created_over_held(70_000), &other), "not held yet");
}

#[test]
fn a_step_that_is_repeated_or_meets_a_row_that_is_not_held_changes_nothing() {
    let due = ms(60_000);
    let mut moved = held(&row(60_000));
    moved.give_up(due, GiveUp::Moved, NOTE, NOW);
    for (what, row) in [
        ("moved before", moved),
        ("running", claimed(row(60_000), NOW)),
        ("pending", row(60_000)),
        ("done", ended(row(60_000), Status::Processed)),
    ] {
        for how in [GiveUp::Moved, GiveUp::Cancelled] {
            let mut after = row.clone();
            assert!(!after.give_up(due, how, NOTE, ms(1)), "{what}, {how:?}");
            assert_eq!(columns(&after), columns(&row), "{what}, {how:?}");
        }
        let mut unstaged = row.clone();
        unstaged.unstage(due, ms(1));
        assert_eq!(columns(&unstaged), columns(&row), "{what}");
        for (what, other_due) in [(what, due), ("another arming", ms(70_000))] {
            let mut admitted = row.clone();
            admitted.admit(other_due, ms(1));
            let is_open = row.status == Status::Unprocessed && other_due == due;
            let later = Duration::from_millis(u64::from(is_open));
            let expected = Row {
                changed_at: row.changed_at.plus(later),
                ..row.clone()
            };
            assert_eq!(columns(&admitted), columns(&expected), "{what}");
        }
    }
    let frozen = held(&row(60_000));
    let mut after = frozen.clone();
    assert!(!after.give_up(due, GiveUp::Cancelled, NOTE, NOW));
    assert_eq!(columns(&after), columns(&frozen), "it was not cancelled");
}

#[test]
fn a_step_ends_the_hold_of_its_own_arming_and_of_what_was_created_over_a_held_row() {
    type Step = fn(&mut Row);
    let steps: [(&str, Step, State); 4] = [
        ("admit", |row| row.admit(ms(60_000), NOW), State::Pending),
        (
            "unstage",
            |row| row.unstage(ms(60_000), NOW),
            State::Cancelled,
        ),
        (
            "moved",
            |row| assert!(!row.give_up(ms(60_000), GiveUp::Moved, NOTE, NOW)),
            State::Done,
        ),
        (
            "cancelled",
            |row| assert!(!row.give_up(ms(60_000), GiveUp::Cancelled, NOTE, NOW)),
            State::Running,
        ),
    ];
    for (what, step, expected) in steps {
        let after = |mut row: Row| {
            step(&mut row);
            row
        };
        assert_eq!(after(held(&row(60_000))).state(NOW), expected, "{what}");
        let created_over = after(created_over_held(70_000));
        assert_eq!(created_over.state(NOW), State::Pending, "{what}");
        assert_eq!(created_over.end_time, ms(70_000));
        let other = held(&row(70_000));
        let before = columns(&other);
        assert_eq!(columns(&after(other)), before, "{what}: another arming");
    }
}

#[test]
fn a_status_is_the_number_of_its_column() {
    for (number, status) in [
        (0, Status::Unprocessed),
        (1, Status::Processed),
        (2, Status::Dead),
        (3, Status::Cancelled),
    ] {
        assert_eq!(status.number(), number);
        assert_eq!(Status::of_number(number.into()), Some(status));
    }
    assert_eq!(Status::of_number(-1), None);
    assert_eq!(Status::of_number(4), None);
}
