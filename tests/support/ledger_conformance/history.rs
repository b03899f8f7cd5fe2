//! What is known of the runs of a task: its failures, why it is dead, its result.

use lapsed::ledger::{Ledger, Settled, TaskRecord};
use lapsed::task::{
    Arming, AttemptError, HISTORY_MAX, How, Reason, State, TaskKey, UnixMs, Verdict,
};

use crate::ledger_conformance::rig::{
    LEASE, attempt_error, bury, bury_for, cancel, claim, claim_due, create, in_ms, key, lookup,
    record, retry_at, settle,
};

rules! {
    failed_attempts_stay_in_the_history_until_the_task_is_armed_again
    a_history_has_room_for_the_newest
    a_snooze_gives_its_attempt_back_and_is_counted_in_a_row
    a_dead_task_has_a_reason
    a_result_is_kept_with_the_completion
    a_record_says_when_its_latest_run_started
    what_was_not_run_has_no_start
}

async fn fail(ledger: &impl Ledger, key: &TaskKey, entry: AttemptError) {
    let arming = arming_of(ledger, key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    let at = UnixMs(1);
    let verdict = match entry.how {
        How::Snoozed => Verdict::Snooze {
            at,
            attempt_error: entry,
        },
        _ => Verdict::RetryAt {
            at,
            error: entry.error.clone(),
            attempt_error: entry,
        },
    };
    assert_eq!(settle(ledger, &claimed, verdict).await, Settled::Applied);
}

pub async fn arming_of(ledger: &impl Ledger, key: &TaskKey) -> Arming {
    lookup(ledger, key).await.unwrap().arming
}

fn attempts(record: &TaskRecord) -> Vec<u16> {
    record.history.iter().map(|entry| entry.attempt).collect()
}

async fn failed_attempts_stay_in_the_history_until_the_task_is_armed_again(ledger: &impl Ledger) {
    let key = key("history", 1);
    create(ledger, &key, -10).await;
    let first = AttemptError {
        error: "line 1\n\"line\" 2 é \u{1f600} \\".into(),
        crashes: 2,
        ..attempt_error(How::TimedOut, 1, "")
    };
    fail(ledger, &key, first.clone()).await;
    fail(ledger, &key, attempt_error(How::Panicked, 2, "boom")).await;
    let found = record(ledger, &key).await;
    assert_eq!(
        found.history,
        [attempt_error(How::Panicked, 2, "boom"), first]
    );
    assert_eq!(found.last_error.as_deref(), Some("boom"));

    let arming = arming_of(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, bury()).await;
    assert_eq!(attempts(&record(ledger, &key).await), [1, 2, 1]);
    ledger.redrive(&key).await.unwrap();
    let redriven = record(ledger, &key).await;
    assert_eq!(attempts(&redriven), [1, 2, 1], "it survives a redrive");
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, Verdict::Complete).await;
    assert_eq!(
        attempts(&record(ledger, &key).await),
        [1, 2, 1],
        "and success"
    );

    create(ledger, &key, -60_000).await;
    let anew = record(ledger, &key).await;
    assert_eq!((anew.history.len(), anew.reason), (0, None));
    fail(ledger, &key, attempt_error(How::Failed, 1, "no")).await;
    let due = in_ms(ledger, 60_000).await;
    ledger.reschedule(&key, due).await.unwrap();
    let moved = record(ledger, &key).await;
    assert_eq!((moved.history.len(), moved.last_error), (0, None));
}

async fn a_history_has_room_for_the_newest(ledger: &impl Ledger) {
    let key = key("history", "long");
    create(ledger, &key, -10).await;
    for attempt in 1..=HISTORY_MAX as u16 + 3 {
        let error = "x".repeat(3_000);
        fail(ledger, &key, attempt_error(How::Failed, attempt, &error)).await;
    }
    let found = record(ledger, &key).await;
    let expected: Vec<u16> = (4..=13).rev().collect();
    assert_eq!(attempts(&found), expected);
    assert!(found.history.iter().all(|entry| entry.error.len() == 500));
    assert_eq!(found.last_error.unwrap().len(), 2048);
}

async fn a_snooze_gives_its_attempt_back_and_is_counted_in_a_row(ledger: &impl Ledger) {
    let key = key("snooze", 1);
    let arming = create(ledger, &key, -10).await;
    let snooze = |snoozes| AttemptError {
        snoozes,
        ..attempt_error(How::Snoozed, 1, "")
    };
    for snoozes in 0..3 {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.number, 1);
        assert_eq!(claimed.attempt.snoozes, snoozes);
        let verdict = Verdict::Snooze {
            at: UnixMs(1),
            attempt_error: snooze(snoozes + 1),
        };
        for _ in 0..2 {
            let settled = settle(ledger, &claimed, verdict.clone()).await;
            assert_eq!(settled, Settled::Applied);
        }
    }
    let snoozed = record(ledger, &key).await;
    assert_eq!((snoozed.attempt, snoozed.last_error), (0, None));
    assert_eq!(snoozed.history, [snooze(3)], "one entry for all");

    fail(ledger, &key, attempt_error(How::Failed, 1, "no")).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!((claimed.attempt.number, claimed.attempt.snoozes), (2, 0));
    let verdict = Verdict::Snooze {
        at: UnixMs(1),
        attempt_error: snooze(1),
    };
    settle(ledger, &claimed, verdict.clone()).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(claimed.attempt.snoozes, 1, "another row of them");
    settle(ledger, &claimed, verdict).await;
    let found = record(ledger, &key).await;
    let hows: Vec<How> = found.history.iter().map(|entry| entry.how).collect();
    assert_eq!(hows, [How::Snoozed, How::Failed, How::Snoozed]);
    assert_eq!(found.last_error.as_deref(), Some("no"), "it stays");
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(
        cancel(ledger, &key).await,
        lapsed::ledger::CancelAnswer::Running
    );
    let verdict = Verdict::Snooze {
        at: UnixMs(1),
        attempt_error: snooze(2),
    };
    assert_eq!(settle(ledger, &claimed, verdict).await, Settled::Cancelled);
}

async fn a_dead_task_has_a_reason(ledger: &impl Ledger) {
    for reason in Reason::ALL {
        let key = key("reason", reason);
        let claimed = claim_due(ledger, &key, LEASE).await;
        settle(ledger, &claimed, bury_for(reason, "broken")).await;
        let dead = record(ledger, &key).await;
        assert_eq!((dead.state, dead.reason), (State::Dead, Some(reason)));
        // What expired, and what is poison, was not run.
        let ran = u16::from(!matches!(reason, Reason::Expired | Reason::Poison));
        assert_eq!(dead.attempt, ran, "{reason}");
        ledger.redrive(&key).await.unwrap();
        assert_eq!(record(ledger, &key).await.reason, None);
    }
    let key = key("reason", "cancelled");
    let claimed = claim_due(ledger, &key, LEASE).await;
    cancel(ledger, &key).await;
    assert_eq!(settle(ledger, &claimed, bury()).await, Settled::Cancelled);
    let cancelled = record(ledger, &key).await;
    assert_eq!(cancelled.reason, None, "it is not dead");
}

async fn a_result_is_kept_with_the_completion(ledger: &impl Ledger) {
    let result = r#"{"é":[1,"\n"]}"#;
    let (with, without) = (key("result", 1), key("result", 2));
    let kept = claim_due(ledger, &with, LEASE).await;
    let plain = claim_due(ledger, &without, LEASE).await;
    let verdicts = [
        (kept.lease, Verdict::CompleteWith(result.into())),
        (plain.lease, Verdict::Complete),
    ];
    let settlements =
        verdicts.map(|(lease, verdict)| lapsed::ledger::Settlement { lease, verdict });
    for _ in 0..2 {
        let settled = ledger.settle(&settlements).await.unwrap();
        assert_eq!(settled, [Settled::Applied; 2]);
    }
    let done = record(ledger, &with).await;
    assert_eq!(
        (done.state, done.result.as_deref()),
        (State::Done, Some(result))
    );
    assert_eq!(record(ledger, &without).await.result, None);
    create(ledger, &with, -60_000).await;
    assert_eq!(
        record(ledger, &with).await.result,
        None,
        "it was the older arming's"
    );

    let key = key("result", "fenced");
    let older = claim_due(ledger, &key, LEASE).await;
    create(ledger, &key, 60_000).await;
    let verdict = Verdict::CompleteWith(result.into());
    assert_eq!(settle(ledger, &older, verdict).await, Settled::Superseded);
    assert_eq!(record(ledger, &key).await.result, None);
}

async fn a_record_says_when_its_latest_run_started(ledger: &impl Ledger) {
    let name = key("history", "started");
    create(ledger, &name, -10).await;
    assert_eq!(record(ledger, &name).await.started, None);
    let before = in_ms(ledger, 0).await;
    let claimed = claim(ledger, arming_of(ledger, &name).await, LEASE).await;
    let after = in_ms(ledger, 0).await;
    let started = record(ledger, &name).await.started.unwrap();
    assert!(before <= started && started <= after, "{started}");

    let later = in_ms(ledger, 300_000).await;
    settle(ledger, &claimed.unwrap(), retry_at(later)).await;
    let waits = record(ledger, &name).await;
    assert_eq!((waits.state, waits.started), (State::Waiting, None));

    let done = key("history", "done");
    let claimed = claim_due(ledger, &done, LEASE).await;
    settle(ledger, &claimed, Verdict::Complete).await;
    let done = record(ledger, &done).await;
    assert_eq!(done.state, State::Done);
    let started = done.started.unwrap();
    assert!(after <= started && started <= done.finished.unwrap());
}

async fn what_was_not_run_has_no_start(ledger: &impl Ledger) {
    let expired = key("history", "not-run");
    let claimed = claim_due(ledger, &expired, LEASE).await;
    settle(ledger, &claimed, bury_for(Reason::Expired, "late")).await;
    let buried = record(ledger, &expired).await;
    assert_eq!((buried.state, buried.started), (State::Dead, None));

    let ran = key("history", "ran");
    let claimed = claim_due(ledger, &ran, LEASE).await;
    settle(ledger, &claimed, bury()).await;
    assert!(record(ledger, &ran).await.started.is_some());
    ledger.redrive(&ran).await.unwrap();
    assert_eq!(record(ledger, &ran).await.started, None);
    claim(ledger, arming_of(ledger, &ran).await, LEASE).await;
    assert!(record(ledger, &ran).await.started.is_some());
}
