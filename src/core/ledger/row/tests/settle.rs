//! Settlements that are repeated, or that a handler's own transaction makes.

use super::*;
use crate::ledger::{Ending, Lease, Settled, Settlement};
use crate::task::{AttemptError, Death, How, OccurrenceEnd, Outcome, Reason, Verdict};

const NEXT: UnixMs = UnixMs(NOW.0 + 3_600_000);

fn lease(row: &Row) -> Lease {
    Lease {
        arming: row.arming(),
        owner: OWNER,
    }
}

fn hourly() -> Row {
    let task = NewTask {
        recurrence: Some(Recurrence::every(Duration::from_secs(3_600)).unwrap()),
        ..task(-5)
    };
    claimed(Row::new(1, &task, ms(-60_000)), NOW)
}

fn attempt_error() -> AttemptError {
    AttemptError {
        how: How::Failed,
        attempt: 1,
        started: Some(NOW),
        at: ms(1),
        error: "no such order".into(),
        daemon: "shop:1".into(),
        crashes: 0,
        snoozes: 0,
    }
}

fn next(died: bool) -> Verdict {
    let death = Death {
        reason: Reason::Permanent,
        error: "no such order".into(),
        attempt_error: attempt_error(),
    };
    Verdict::NextOccurrence {
        next: NEXT,
        end: match died {
            true => OccurrenceEnd::Failed(death),
            false => OccurrenceEnd::Succeeded,
        },
        result: None,
    }
}

#[test]
fn a_row_that_a_program_has_marked_as_processed_is_settled_by_the_handler_once() {
    let mut row = claimed(row(-5), NOW);
    row.status = Status::Processed;
    let settlement = Settlement {
        lease: lease(&row),
        verdict: Verdict::Complete,
    };
    assert_eq!(row.settle(&settlement, NOW), Settled::ByHandler);
    assert!(!row.leased(NOW));
    assert_eq!(row.settle(&settlement, NOW), Settled::Applied);
}

#[test]
fn the_end_of_a_superseded_run_ends_only_a_task_that_lapsed_has_cancelled() {
    let again = |by_program: bool| {
        let mut row = claimed(row(-5), NOW);
        let settlement = Settlement {
            lease: lease(&row),
            verdict: Verdict::Complete,
        };
        row.deleted = by_program;
        row.start_time = UnixMs(NOW.0 / 1_000 * 1_000 + 1_000);
        row.end_time = row.start_time.plus(Duration::from_secs(60));
        (row, settlement)
    };
    let (mut created, settlement) = again(true);
    let arming = created.arming();
    assert_eq!(created.settle(&settlement, ms(2_000)), Settled::Superseded);
    assert_eq!(created.status, Status::Unprocessed);
    assert!(!created.leased(ms(2_000)));
    assert!(created.undelete(arming), "its key tells");

    let (mut cancelled, settlement) = again(false);
    cancelled.cancel(ms(2_000));
    assert_eq!(
        cancelled.settle(&settlement, ms(2_000)),
        Settled::Superseded
    );
    assert_eq!(cancelled.status, Status::Cancelled);
}

#[test]
fn a_repeated_report_of_a_series_is_applied_while_nothing_has_changed_the_next_occurrence() {
    let before = hourly();
    let lease = lease(&before);
    let report = |row: &mut Row, died: bool| {
        let verdict = next(died);
        row.settle(&Settlement { lease, verdict }, ms(1))
    };
    for died in [false, true] {
        let mut advanced = before.clone();
        assert_eq!(report(&mut advanced, died), Settled::Applied);
        let is_repeated = |change: &dyn Fn(&mut Row)| {
            let mut row = advanced.clone();
            change(&mut row);
            let before = columns(&row);
            let settled = report(&mut row, died);
            assert!(settled != Settled::Applied || columns(&row) == before);
            settled == Settled::Applied
        };
        assert!(is_repeated(&|_| ()), "nothing has changed it");
        assert!(!is_repeated(&|row| row.end_time = ms(7_200_000)), "moved");
        assert!(!is_repeated(&|row| row.status = Status::Processed), "done");
        assert!(
            !is_repeated(&|row| *row = claimed(row.clone(), NEXT)),
            "claimed"
        );
        let before = columns(&advanced);
        assert_ne!(report(&mut advanced, !died), Settled::Applied);
        assert_eq!(columns(&advanced), before, "another report of this claim");
    }
}

#[test]
fn a_handler_that_goes_on_is_done_if_its_task_was_cancelled_during_the_run() {
    let end = |mut row: Row, ending: Ending| {
        let outcome = row.settle_in(lease(&row), ending, Some("7".into()), NOW);
        (outcome, row.state(NOW), row.end_time)
    };
    let cancelled = |mut row: Row| {
        row.cancel(NOW);
        row
    };
    let (single, series) = (claimed(row(-5), NOW), hourly());
    let again = Ending::Again {
        now: NOW,
        due: NEXT,
    };
    let complete = Ending::Complete { next: Some(NEXT) };
    let goes_on = (Some(Outcome::Again(NEXT)), State::Pending, NEXT);
    let is_done = (Some(Outcome::Completed), State::Done, ms(-5));
    for (row, ending) in [(single, again), (series.clone(), again), (series, complete)] {
        assert_eq!(end(row.clone(), ending), goes_on, "{ending:?}");
        assert_eq!(end(cancelled(row), ending), is_done, "{ending:?}");
    }
}

#[test]
fn snoozes_are_counted_only_if_the_latest_attempt_was_one() {
    let mut row = claimed(row(-5), NOW);
    assert_eq!(row.snoozes(), 0);
    for (how, expected) in [(How::Snoozed, 3), (How::Failed, 0)] {
        let latest = AttemptError {
            how,
            // Any program may write to the column.
            snoozes: 3,
            ..attempt_error()
        };
        row.history = vec![latest];
        assert_eq!(row.snoozes(), expected, "{how:?}");
    }
}

#[test]
fn a_series_states_the_latest_occurrence_until_the_next_one_has_ended() {
    let settled = |row: &Row, end: OccurrenceEnd| {
        let mut row = claimed(row.clone(), NOW);
        let verdict = Verdict::NextOccurrence {
            next: NEXT,
            end,
            result: None,
        };
        let lease = lease(&row);
        let settlement = Settlement { lease, verdict };
        assert_eq!(row.settle(&settlement, ms(1)), Settled::Applied);
        row
    };
    let died = OccurrenceEnd::Failed(Death {
        reason: Reason::Permanent,
        error: "no such order".into(),
        attempt_error: attempt_error(),
    });
    let before = hourly();
    assert_eq!(before.record(NOW).latest_occurrence, None);
    for (end, said) in [
        (OccurrenceEnd::Succeeded, "succeeded"),
        (died, "failed: permanent"),
        (OccurrenceEnd::Skipped, "skipped: not run"),
        (OccurrenceEnd::HandedOn, "handed on to a separate task"),
    ] {
        let error = end.death().map(|death| death.error.clone());
        let row = settled(&before, end);
        let latest = |row: &Row, now| row.record(now).latest_occurrence.unwrap();
        let first = latest(&row, ms(2));
        assert_eq!((first.due, first.to_string()), (ms(-5), said.to_owned()));
        assert_eq!(first.error, error);

        let runs = claimed(row.clone(), NEXT);
        assert_eq!(latest(&runs, NEXT), first, "the next one runs");
        let mut failed = runs.clone();
        let lease = lease(&failed);
        let verdict = Verdict::RetryAt {
            at: UnixMs(NEXT.0 + 1_000),
            error: "another".into(),
            attempt_error: attempt_error(),
        };
        failed.settle(&Settlement { lease, verdict }, NEXT);
        let of_failed = latest(&failed, NEXT);
        assert_eq!((of_failed.due, of_failed.error), (first.due, None));

        let mut moved = row.clone();
        moved.reschedule(ms(9_000), ms(2));
        assert_eq!(latest(&moved, ms(2)).due, first.due, "the next one moved");
        let mut cancelled = row.clone();
        cancelled.cancel(ms(2));
        assert_eq!(latest(&cancelled, ms(2)), first);
        let mut dead = row;
        dead.status = Status::Dead;
        assert_eq!(dead.record(ms(2)).latest_occurrence, None);
    }
}

#[test]
fn a_handler_that_goes_on_notes_a_success_for_a_series_alone() {
    let again = Ending::Again {
        now: NOW,
        due: NEXT,
    };
    for (mut row, expected) in [(claimed(row(-5), NOW), None), (hourly(), Some(ms(-5)))] {
        row.settle_in(lease(&row), again, None, NOW);
        let latest = row.record(NOW).latest_occurrence;
        assert_eq!(latest.map(|latest| latest.due), expected);
        assert_eq!(row.reason.is_some(), expected.is_some());
    }
}
