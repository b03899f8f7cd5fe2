//! A recurring task: one row that goes on from occurrence to occurrence.

use std::time::Duration;

use lapsed::ledger::{
    CancelAnswer, CancelByKey, CancelByKeyAnswer, Ledger, NewTask, RescheduleAnswer, RowSnapshot,
    RunNowAnswer, Settled,
};
use lapsed::task::{
    Arming, AttemptError, Contents, How, OccurrenceEnd, Reason, Recurrence, State, TaskKey, UnixMs,
    Verdict,
};

use crate::ledger_conformance::adoption::{adopt, written};
use crate::ledger_conformance::rig::{
    LEASE, attempt_error, bury, cancel, claim, create, death, in_ms, key, lookup, pass, record,
    settle, state,
};

rules! {
    a_series_goes_on_with_its_next_arming
    a_series_remembers_what_failed_and_the_result_of_its_latest_run
    a_series_that_goes_on_twice_answers_the_same
    a_series_cancelled_during_a_run_ends_with_it
    a_series_created_anew_during_a_run_is_not_moved_by_it
    an_occurrence_that_was_moved_is_remembered_until_the_series_goes_on
    an_occurrence_that_a_key_moves_is_remembered_until_the_series_goes_on
    an_occurrence_that_is_run_now_comes_at_its_own_time_too
    a_series_that_is_dead_goes_on_when_it_is_redriven
    a_release_counts_no_attempt_of_a_recurring_task
    deleting_the_key_does_not_cancel_a_recurring_task
    an_occurrence_that_was_not_run_leaves_what_is_known_of_the_one_before
    a_series_states_what_became_of_its_latest_occurrence
    a_series_that_is_written_anew_states_no_occurrence_of_the_former_one
}

/// Every hour, due 10 ms ago.
pub async fn hourly(ledger: &impl Ledger, key: &TaskKey) -> Arming {
    let due = in_ms(ledger, -10).await;
    let every = Recurrence::every(Duration::from_secs(3600)).unwrap();
    let task = NewTask {
        contents: Contents {
            payload: Some("{\"a\":1}".into()),
            ..Contents::default()
        },
        recurrence: Some(every.starting(due)),
        ..NewTask::new(key.clone(), due)
    };
    let arming = ledger.write_series(&task, None).await.unwrap();
    arming.expect("there was no row")
}

pub async fn series(ledger: &impl Ledger, key: &TaskKey) -> RowSnapshot {
    ledger.read_row(key).await.unwrap().unwrap()
}

pub async fn recurrence(ledger: &impl Ledger, key: &TaskKey) -> Recurrence {
    let stored = series(ledger, key).await.recurrence;
    stored.unwrap().parse().unwrap()
}

pub fn go_on(next: UnixMs, error: Option<&str>) -> Verdict {
    Verdict::NextOccurrence {
        next,
        end: error.map_or(OccurrenceEnd::Succeeded, |error| {
            OccurrenceEnd::Failed(death(Reason::Exhausted, error))
        }),
        result: error.is_none().then(|| "7".to_owned()),
    }
}

/// As it is when nothing was moved.
fn moved_back(recurrence: &Recurrence) -> Recurrence {
    recurrence.clone().settled()
}

async fn a_series_remembers_what_failed_and_the_result_of_its_latest_run(ledger: &impl Ledger) {
    let key = key("series-history", 1);
    let mut arming = hourly(ledger, &key).await;
    let snoozed = AttemptError {
        snoozes: 1,
        ..attempt_error(How::Snoozed, 1, "")
    };
    for (error, result) in [(None, Some("7")), (Some("no"), None), (None, Some("7"))] {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.snoozes, 0, "each occurrence counts its own");
        let verdict = Verdict::Snooze {
            at: arming.due,
            attempt_error: snoozed.clone(),
        };
        settle(ledger, &claimed, verdict).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.snoozes, 1);
        let next = UnixMs(arming.due.0 + 1);
        assert_eq!(
            settle(ledger, &claimed, go_on(next, error)).await,
            Settled::Applied
        );
        let record = record(ledger, &key).await;
        assert_eq!(record.result.as_deref(), result);
        assert_eq!(record.last_error.as_deref(), error);
        arming.due = next;
    }
    let history = record(ledger, &key).await.history;
    assert_eq!(history, [attempt_error(How::Failed, 1, "no")]);
}

async fn a_series_goes_on_with_its_next_arming(ledger: &impl Ledger) {
    let key = key("series-goes-on", 1);
    let first = hourly(ledger, &key).await;
    let claimed = claim(ledger, first, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.next(first.due), Some(UnixMs(first.due.0 + 3_600_000)));

    let next = UnixMs(first.due.0 + 20);
    let verdict = go_on(next, Some("not today"));
    assert_eq!(settle(ledger, &claimed, verdict).await, Settled::Applied);
    let failed = record(ledger, &key).await;
    assert_eq!((failed.due, failed.state), (next, State::Pending));
    assert_eq!((failed.attempt, failed.crashes), (0, 0));
    assert_eq!(failed.last_error.as_deref(), Some("not today"));
    assert_eq!(failed.payload.as_deref(), Some("{\"a\":1}"));

    pass(ledger, next).await;
    let second = Arming {
        row: first.row,
        due: next,
    };
    let claimed = claim(ledger, second, LEASE).await.unwrap();
    assert_eq!((claimed.lease.arming, claimed.attempt.number), (second, 1));
    let next = UnixMs(next.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    let succeeded = record(ledger, &key).await;
    assert_eq!((succeeded.due, succeeded.last_error), (next, None));
}

async fn a_series_that_goes_on_twice_answers_the_same(ledger: &impl Ledger) {
    let key = key("series-goes-on-twice", 1);
    let claimed = {
        let arming = hourly(ledger, &key).await;
        claim(ledger, arming, LEASE).await.unwrap()
    };
    let next = UnixMs(claimed.lease.arming.due.0 + 3_600_000);
    for _ in 0..2 {
        let settled = settle(ledger, &claimed, go_on(next, None)).await;
        assert_eq!(settled, Settled::Applied);
    }
    assert_eq!(record(ledger, &key).await.due, next);
}

async fn a_series_cancelled_during_a_run_ends_with_it(ledger: &impl Ledger) {
    for (error, ends) in [(None, State::Done), (Some("no"), State::Cancelled)] {
        let key = key("series-ends", ends);
        let arming = hourly(ledger, &key).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(cancel(ledger, &key).await, CancelAnswer::Running);
        let next = UnixMs(arming.due.0 + 3_600_000);
        // There is nothing to arm.
        let ended = error.map_or(Settled::Ended, |_| Settled::Cancelled);
        for _ in 0..2 {
            let settled = settle(ledger, &claimed, go_on(next, error)).await;
            assert_eq!(settled, ended);
        }
        let record = record(ledger, &key).await;
        assert_eq!((record.state, record.due), (ends, arming.due));
    }
}

async fn a_series_created_anew_during_a_run_is_not_moved_by_it(ledger: &impl Ledger) {
    let key = key("series-anew", 1);
    let arming = hourly(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    let newer = create(ledger, &key, 60_000).await;
    let next = UnixMs(arming.due.0 + 3_600_000);
    let settled = settle(ledger, &claimed, go_on(next, None)).await;
    assert_eq!(settled, Settled::Superseded);
    assert_eq!(record(ledger, &key).await.due, newer.due);
}

async fn an_occurrence_that_was_moved_is_remembered_until_the_series_goes_on(ledger: &impl Ledger) {
    let key = key("series-moved", 1);
    let arming = hourly(ledger, &key).await;
    let now = ledger.sync_clock().await.unwrap();
    for delay in [7_000, 8_000] {
        let moved = ledger
            .reschedule(&key, UnixMs(now.0 + delay))
            .await
            .unwrap();
        assert!(matches!(moved, RescheduleAnswer::Moved(_)), "{moved:?}");
    }
    let moved = recurrence(ledger, &key).await;
    assert_eq!(
        moved.continues_after(UnixMs(0)),
        arming.due,
        "the first one"
    );

    let moved = ledger.reschedule(&key, now).await.unwrap();
    let RescheduleAnswer::Moved(present) = moved else {
        panic!("{moved:?}")
    };
    pass(ledger, now).await;
    let claimed = claim(ledger, present, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.continues_after(UnixMs(0)), arming.due);
    let next = UnixMs(arming.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    let settled = recurrence(ledger, &key).await;
    assert_eq!(settled.continues_after(UnixMs(0)), UnixMs(0));
    assert_eq!(settled, moved_back(&settled));
}

async fn an_occurrence_that_a_key_moves_is_remembered_until_the_series_goes_on(
    ledger: &impl Ledger,
) {
    let key = key("series-moved-by-a-key", 1);
    let arming = hourly(ledger, &key).await;
    let moved = async |due: UnixMs| {
        let over = lookup(ledger, &key).await;
        written(adopt(ledger, &key, due, over).await)
    };
    moved(in_ms(ledger, 7_000).await).await;
    let present = moved(in_ms(ledger, -5).await).await;
    let known = recurrence(ledger, &key).await;
    assert_eq!(
        known.continues_after(UnixMs(0)),
        arming.due,
        "the first one"
    );
    let claimed = claim(ledger, present, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.continues_after(UnixMs(0)), arming.due);
    let next = UnixMs(arming.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    let settled = recurrence(ledger, &key).await;
    assert_eq!(settled, moved_back(&settled));
}

async fn an_occurrence_that_is_run_now_comes_at_its_own_time_too(ledger: &impl Ledger) {
    let key = key("series-run-now", 1);
    let first = hourly(ledger, &key).await;
    let begun = record(ledger, &key).await.created;
    pass(ledger, UnixMs(begun.0 + 1)).await;
    // Overdue: there is nothing besides.
    ledger.run_now(&key).await.unwrap();
    let wanted = record(ledger, &key).await.created;
    assert!(wanted > begun, "what it was missed by counts from now");
    let claimed = claim(ledger, first, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.continues_after(first.due), first.due);
    let next = UnixMs(first.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;

    let RunNowAnswer::Due(now) = ledger.run_now(&key).await.unwrap() else {
        panic!("it was pending")
    };
    assert!(now.due < next);
    let claimed = claim(ledger, now, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.next(read.continues_after(now.due)), Some(next));
}

async fn a_series_that_is_dead_goes_on_when_it_is_redriven(ledger: &impl Ledger) {
    let key = key("series-redriven", 1);
    let arming = hourly(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, bury()).await;
    assert_eq!(
        ledger.redrive(&key).await.unwrap(),
        RunNowAnswer::Due(arming)
    );
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert!(claimed.recurrence.is_some());
    let next = UnixMs(arming.due.0 + 3_600_000);
    assert_eq!(
        settle(ledger, &claimed, go_on(next, None)).await,
        Settled::Applied
    );
}

async fn a_release_counts_no_attempt_of_a_recurring_task(ledger: &impl Ledger) {
    let key = key("series-released", 1);
    let arming = hourly(ledger, &key).await;
    for verdict in [Verdict::Release, Verdict::GiveBack, Verdict::Release] {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.number, 1);
        let settled = settle(ledger, &claimed, verdict).await;
        assert_eq!(settled, Settled::Applied);
    }
    // It has begun: the engine does not take it for missed.
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert!(claimed.due_at > arming.due);
}

async fn deleting_the_key_does_not_cancel_a_recurring_task(ledger: &impl Ledger) {
    let key = key("series-withdrawn", 1);
    hourly(ledger, &key).await;
    let over = lookup(ledger, &key).await;
    let due = in_ms(ledger, 60_000).await;
    written(adopt(ledger, &key, due, over).await);
    let seen = lookup(ledger, &key).await.unwrap();
    let heard = in_ms(ledger, 0).await;
    let withdrawal = CancelByKey { over: seen, heard };
    let ahead = Duration::from_secs(1);
    let answers = ledger.cancel_by_key(&[withdrawal], ahead).await.unwrap();
    assert_eq!(answers, [CancelByKeyAnswer::Left]);
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn an_occurrence_that_was_not_run_leaves_what_is_known_of_the_one_before(
    ledger: &impl Ledger,
) {
    let key = key("series-not-run", 1);
    let mut arming = hourly(ledger, &key).await;
    let missed = |next| Verdict::NextOccurrence {
        next,
        end: OccurrenceEnd::Skipped,
        result: None,
    };
    for verdict in [go_on as fn(UnixMs, Option<&str>) -> Verdict, |next, _| {
        go_on(next, Some("no"))
    }] {
        let mut known = Vec::new();
        for missed in [None, Some(missed)] {
            let claimed = claim(ledger, arming, LEASE).await.unwrap();
            arming.due = UnixMs(arming.due.0 + 1);
            let verdict = missed.map_or_else(|| verdict(arming.due, None), |it| it(arming.due));
            let settled = settle(ledger, &claimed, verdict).await;
            assert_eq!(settled, Settled::Applied);
            let record = record(ledger, &key).await;
            known.push((record.last_error, record.result));
        }
        assert_eq!(known[0], known[1]);
        assert_ne!(known[0], (None, None));
    }
}

async fn a_series_states_what_became_of_its_latest_occurrence(ledger: &impl Ledger) {
    let key = key("series-latest", 1);
    let mut arming = hourly(ledger, &key).await;
    assert_eq!(record(ledger, &key).await.latest_occurrence, None);
    let died = OccurrenceEnd::Failed(death(Reason::Deadline, "no"));
    for (end, expected, error) in [
        (OccurrenceEnd::Succeeded, "succeeded", None),
        (OccurrenceEnd::Skipped, "skipped: not run", None),
        (died, "failed: deadline", Some("no")),
        (OccurrenceEnd::Skipped, "skipped: not run", None),
        (
            OccurrenceEnd::HandedOn,
            "handed on to a separate task",
            None,
        ),
        (OccurrenceEnd::Succeeded, "succeeded", None),
    ] {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        let due = UnixMs(arming.due.0 + 1);
        let verdict = Verdict::NextOccurrence {
            next: due,
            end,
            result: None,
        };
        let settled = settle(ledger, &claimed, verdict.clone()).await;
        assert_eq!(settled, Settled::Applied);
        assert_eq!(settle(ledger, &claimed, verdict).await, Settled::Applied);
        let stated = record(ledger, &key).await;
        assert_eq!(stated.reason, None, "it is not dead");
        let latest = stated.latest_occurrence.unwrap();
        let said = (latest.due, latest.to_string(), latest.error.as_deref());
        assert_eq!(said, (arming.due, expected.to_owned(), error));
        arming.due = due;
    }
    let before = record(ledger, &key).await.latest_occurrence;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(record(ledger, &key).await.latest_occurrence, before);
    let retry = Verdict::RetryAt {
        at: arming.due,
        error: "no".into(),
        attempt_error: attempt_error(How::Failed, 1, "no"),
    };
    settle(ledger, &claimed, retry).await;
    assert_eq!(record(ledger, &key).await.latest_occurrence, before);
    let later = in_ms(ledger, 60_000).await;
    ledger.reschedule(&key, later).await.unwrap();
    assert_eq!(record(ledger, &key).await.latest_occurrence, before);
    ledger.run_now(&key).await.unwrap();
    assert_eq!(record(ledger, &key).await.latest_occurrence, before);
    cancel(ledger, &key).await;
    assert_eq!(record(ledger, &key).await.latest_occurrence, before);
}

async fn a_series_that_is_written_anew_states_no_occurrence_of_the_former_one(
    ledger: &impl Ledger,
) {
    let key = key("series-latest-anew", 1);
    let next = async |end| {
        let arming = lookup(ledger, &key).await.unwrap().arming;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        let next = UnixMs(arming.due.0 + 1);
        let verdict = Verdict::NextOccurrence {
            next,
            end,
            result: None,
        };
        settle(ledger, &claimed, verdict).await;
        claimed
    };
    hourly(ledger, &key).await;
    next(OccurrenceEnd::Succeeded).await;
    let stated = async || {
        let record = record(ledger, &key).await;
        let latest = record.latest_occurrence;
        (record.reason, latest.map(|latest| latest.to_string()))
    };
    assert_eq!(stated().await, (None, Some("succeeded".to_owned())));
    create(ledger, &key, -5).await;
    assert_eq!(stated().await, (None, None), "it recurs no more");

    let seen = series(ledger, &key).await;
    let every = Recurrence::every(Duration::from_secs(60)).unwrap();
    let due = in_ms(ledger, -10).await;
    let task = NewTask {
        recurrence: Some(every),
        ..NewTask::new(key.clone(), due)
    };
    ledger.write_series(&task, Some(&seen)).await.unwrap();
    assert_eq!(stated().await, (None, None));
    next(OccurrenceEnd::Skipped).await;
    assert_eq!(stated().await, (None, Some("skipped: not run".to_owned())));
    let arming = lookup(ledger, &key).await.unwrap().arming;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, bury()).await;
    let (reason, latest) = stated().await;
    assert_eq!((reason.is_some(), latest), (true, None));
    ledger.redrive(&key).await.unwrap();
    assert_eq!(stated().await, (None, None));
}
