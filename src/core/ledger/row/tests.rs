//! The moments between two rules, which a test on a running clock meets by chance.

mod settle;
mod transfer;
mod view;

use std::time::Duration;

use super::{Row, Status};
use crate::ledger::{
    AdoptionRequest, CancelByKey, CancelByKeyAnswer, Change, Changed, Claimant, NewTask, Owner,
    REDRIVEN_AGO,
};
use crate::task::{Arming, Origin, Recurrence, State, TaskKey, UnixMs};

const NOW: UnixMs = UnixMs(1_795_291_200_500);
const LEASE: Duration = Duration::from_secs(30);
const OWNER: Owner = Owner([7; 16]);

fn ms(ahead: i64) -> UnixMs {
    UnixMs(NOW.0 + ahead)
}

fn task(ahead: i64) -> NewTask {
    NewTask::new(TaskKey::parse("Order@close@1").unwrap(), ms(ahead))
}

/// A row that was created a minute ago.
fn row(ahead: i64) -> Row {
    Row::new(1, &task(ahead), ms(-60_000))
}

fn claimed(mut row: Row, now: UnixMs) -> Row {
    let by = Claimant {
        daemon: "shop:1".into(),
        lease: LEASE,
    };
    row.claim(&by, OWNER, now);
    row
}

/// The columns that a rule compares.
fn columns(row: &Row) -> impl PartialEq + std::fmt::Debug + use<> {
    let times = (row.start_time, row.end_time, row.run_end, row.retry_at);
    let claim = (row.owner, row.daemon.clone(), row.lease_until, row.attempt);
    let end = (row.status, row.deleted, row.finished_at, row.crashes);
    (times, claim, end)
}

#[test]
fn a_retry_waits_until_its_time_and_not_in_that_millisecond() {
    let mut row = claimed(row(-5), ms(-4));
    row.lease_until = super::NEVER;
    row.retry_at = ms(1);
    assert_eq!(row.state(NOW), State::Waiting);
    assert_eq!(row.state(ms(1)), State::Pending);
    assert!(row.free_and_due(ms(1)) && !row.free_and_due(NOW));
}

#[test]
fn a_first_claim_and_one_after_a_redrive_count_no_crash() {
    let mut row = claimed(row(-5), NOW);
    assert_eq!((row.attempt, row.crashes), (1, 0));
    row.finish(Status::Dead, NOW);
    assert!(row.redrive(ms(1_000)));
    let row = claimed(row, ms(1_001));
    assert_eq!((row.attempt, row.crashes), (1, 0));
}

#[test]
fn a_redriven_row_is_due_before_what_falls_due_now_and_not_before_its_due_time() {
    for (due, expected) in [
        (-3_600_000, ms(-(REDRIVEN_AGO.as_millis() as i64))),
        (-1, ms(-1)),
    ] {
        let mut row = claimed(row(due), NOW);
        row.finish(Status::Dead, NOW);
        assert!(row.redrive(NOW));
        assert_eq!(row.due_at(), expected);
    }
}

#[test]
fn an_arming_that_takes_the_place_of_a_running_one_keeps_whose_lease_it_is() {
    let mut row = claimed(row(-5), NOW);
    row.create_over(&task(60_000), NOW);
    assert_eq!((row.daemon.as_str(), row.owner), ("shop:1", Some(OWNER)));
    assert_eq!((row.lease_until, row.end_time), (ms(30_000), ms(60_000)));

    let found = AdoptionRequest {
        key: row.key.clone(),
        due: ms(90_000),
        heard: NOW,
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    };
    row.adopt(&found);
    assert_eq!((row.daemon.as_str(), row.owner), ("shop:1", Some(OWNER)));
    assert_eq!((row.lease_until, row.end_time), (ms(30_000), ms(90_000)));
}

#[test]
fn an_occurrence_that_is_run_now_is_the_one_that_was_pending() {
    let hour = Duration::from_secs(3_600);
    for (ahead, moves) in [(3_000_000, true), (0, false), (-5, false)] {
        let task = NewTask {
            recurrence: Some(Recurrence::every(hour).unwrap()),
            ..task(ahead)
        };
        let mut row = Row::new(1, &task, ms(-60_000));
        let before = row.recurrence.as_ref().map(ToString::to_string);
        assert!(row.run_now(None, NOW));
        let after = row.recurrence.as_ref().map(ToString::to_string);
        assert_eq!(after != before, moves, "due in {ahead} ms: {after:?}");
        assert_eq!(row.end_time, ms(ahead.min(0)));
    }
}

#[test]
fn only_what_a_hold_keeps_back_is_moved_to_now() {
    for (before, due) in [(-50, -50), (-49, 0)] {
        let mut row = row(-50);
        assert!(row.run_now(Some(ms(before)), NOW));
        assert_eq!(row.end_time, ms(due), "held before {before}");
    }
}

#[test]
fn a_task_of_a_key_that_is_due_now_stays_one_of_a_key() {
    for (due, origin) in [(0, Origin::Key), (1, Origin::Row)] {
        let mut row = row(due);
        row.origin = Origin::Key;
        assert!(row.run_now(None, NOW));
        assert_eq!((row.end_time, row.origin), (NOW, origin), "{due}");
    }
}

#[test]
fn a_deleted_key_cancels_what_is_due_later_than_the_span_alone() {
    for (ahead, answer) in [
        (2_000, CancelByKeyAnswer::Left),
        (2_001, CancelByKeyAnswer::Cancelled),
    ] {
        let mut row = row(ahead);
        row.origin = Origin::Key;
        let request = CancelByKey {
            over: row.lookup(NOW),
            heard: NOW,
        };
        let span = Duration::from_secs(2);
        assert_eq!(row.cancel_by_key(&request, span, NOW), answer, "{ahead}");
        assert_eq!(row.deleted, answer == CancelByKeyAnswer::Cancelled);
    }
}

#[test]
fn only_a_deletion_by_a_program_of_this_very_arming_is_reverted() {
    let mut deleted = row(60_000);
    deleted.deleted = true;
    let arming = deleted.arming();
    let other = Arming {
        due: ms(60_001),
        ..arming
    };
    let reverts = |mut row: Row, arming: Arming| {
        let before = columns(&row);
        let applies = row.undelete(arming);
        assert_eq!(columns(&row) != before, applies);
        assert!(!(applies && row.deleted));
        applies
    };
    assert!(reverts(deleted.clone(), arming));
    assert!(!reverts(deleted.clone(), other), "another arming");
    assert!(!reverts(row(60_000), arming), "not deleted");
    let mut finished = deleted.clone();
    finished.status = Status::Processed;
    assert!(!reverts(finished, arming), "done");
    let mut cancelled = claimed(row(-5), NOW);
    cancelled.cancel(NOW);
    let arming = cancelled.arming();
    assert!(!reverts(cancelled, arming), "cancelled during its run");
}

#[test]
fn what_ended_in_the_second_of_a_creation_by_a_program_is_no_deletion_of_it() {
    let second = UnixMs(NOW.0 / 1_000 * 1_000);
    for (ended, expected) in [(-1, true), (0, true), (999, true), (1_000, false)] {
        let mut created = row(60_000);
        (created.start_time, created.deleted) = (second, true);
        created.finished_at = Some(UnixMs(second.0 + ended));
        let arming = created.arming();
        assert_eq!(created.undelete(arming), expected, "{ended}");
    }
}

#[test]
fn a_row_of_lapsed_starts_in_no_whole_second() {
    let second = UnixMs(NOW.0 / 1_000 * 1_000);
    for (now, started) in [(second, second.0 + 1), (NOW, NOW.0)] {
        let row = Row::new(1, &task(60_000), now);
        assert_eq!((row.start_time.0, row.changed_at.0), (started, started));
    }
}

#[test]
fn only_a_cancelled_run_whose_lease_is_over_is_ended() {
    let mut cancelled = claimed(row(-5), NOW);
    cancelled.cancel(NOW);
    let ends = |mut row: Row, now: UnixMs| {
        let before = columns(&row);
        let ends = row.end_cancelled_run(now);
        assert_eq!(columns(&row) != before, ends);
        ends
    };
    assert!(ends(cancelled.clone(), ms(30_001)));
    assert!(!ends(cancelled.clone(), ms(30_000)), "the lease holds");
    assert!(
        !ends(claimed(row(-5), NOW), ms(30_001)),
        "it was not cancelled"
    );
    let mut deleted = claimed(row(-5), NOW);
    deleted.deleted = true;
    assert!(!ends(deleted, ms(30_001)), "a program has deleted it");
    let mut waits = cancelled.clone();
    waits.lease_until = super::NEVER;
    assert!(!ends(waits, ms(30_001)), "nothing ran");
    let mut done = cancelled;
    done.status = Status::Processed;
    assert!(!ends(done, ms(30_001)), "it is done");
}

#[test]
fn a_task_is_written_over_at_its_due_time_unless_that_arming_runs_or_has_ended() {
    let write = |mut row: Row| {
        let changed = row.change(Change::Write(Box::new(task(-5))), ms(1_000));
        assert!(matches!(changed, Changed::Armed(_)));
        (row.attempt, row.owner.is_some())
    };
    let runs = claimed(row(-5), NOW);
    assert_eq!(write(runs.clone()), (1, true), "it runs");
    let mut failed = runs.clone();
    failed.lease_until = super::NEVER;
    failed.retry_at = ms(60_000);
    assert_eq!(write(failed), (0, false), "it waits for a retry");
    let mut dead = runs;
    dead.finish(Status::Dead, NOW);
    assert_eq!(write(dead), (1, true), "it is dead");
}

#[test]
fn a_series_that_has_ended_begins_anew_at_the_same_due_time() {
    let hourly = NewTask {
        recurrence: Some(Recurrence::every(Duration::from_secs(3_600)).unwrap()),
        ..task(-5)
    };
    let mut row = claimed(Row::new(1, &hourly, ms(-60_000)), NOW);
    row.finish(Status::Dead, NOW);
    let seen = row.snapshot(ms(1));
    assert!(row.write_series(&hourly, &seen, ms(1)));
    assert_eq!((row.state(ms(1)), row.attempt), (State::Pending, 0));
}
