//! How a task gets its due time: created, created again, moved, run now.

use lapsed::ledger::{
    CancelAnswer, Ledger, NewTask, RescheduleAnswer, RunNowAnswer, Settled, Settlement,
};
use lapsed::task::{Arming, Contents, State, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, by, cancel, claim, claim_due, create, create_at, in_ms, key, record, retry_at,
    settle, state,
};

rules! {
    a_task_is_created_pending
    a_task_with_attempts_of_another_system_continues_with_the_next
    a_record_shows_a_payload_without_its_envelope
    creating_a_finished_arming_again_does_not_run_it_twice
    creating_with_another_due_time_moves_it
    creating_a_cancelled_task_again_revives_it
    creating_during_a_run_supersedes_that_run
    only_a_pending_task_can_be_rescheduled
    run_now_makes_a_task_due
    answers_come_in_the_order_of_the_questions
    requests_for_one_key_in_a_call_are_answered_with_what_is_current_after_all
}

async fn a_task_is_created_pending(ledger: &impl Ledger) {
    let key = key("create", 1);
    let due = in_ms(ledger, 60_000).await;
    let task = NewTask {
        contents: Contents {
            payload: Some("{\"a\":1}".into()),
            tag: Some("t".into()),
            max_attempts: Some(3),
        },
        ..NewTask::new(key.clone(), due)
    };
    let created = ledger.create(&[task]).await.unwrap()[0];
    assert_eq!(
        (created.arming.due, created.state, created.older_run),
        (due, State::Pending, false)
    );
    let record = record(ledger, &key).await;
    assert_eq!(
        (record.due, record.attempt, record.max_attempts),
        (due, 0, Some(3))
    );
    assert_eq!(
        (record.tag.as_deref(), record.payload.as_deref()),
        (Some("t"), Some("{\"a\":1}"))
    );
    assert_eq!(record.id, format!("{}-{}", created.arming.row, due.0));
}

async fn a_task_with_attempts_of_another_system_continues_with_the_next(ledger: &impl Ledger) {
    let key = key("attempts", 1);
    let due = in_ms(ledger, -1_000).await;
    let task = |attempts, due| NewTask {
        attempts,
        ..NewTask::new(key.clone(), due)
    };
    let created = ledger.create(&[task(3, due)]).await.unwrap()[0];
    assert_eq!(created.state, State::Pending);
    let made = record(ledger, &key).await;
    assert_eq!((made.attempt, made.due_at), (3, due));
    let claimed = claim(ledger, created.arming, LEASE).await.unwrap();
    assert_eq!(claimed.attempt.number, 4);
    // Another arming has its own count.
    let later = in_ms(ledger, 60_000).await;
    for (attempts, due) in [(0, later), (2, in_ms(ledger, 90_000).await)] {
        ledger.create(&[task(attempts, due)]).await.unwrap();
        assert_eq!(record(ledger, &key).await.attempt, attempts);
    }
    // The same again changes nothing.
    let due = record(ledger, &key).await.due;
    ledger.create(&[task(7, due)]).await.unwrap();
    assert_eq!(record(ledger, &key).await.attempt, 2);
}

async fn a_record_shows_a_payload_without_its_envelope(ledger: &impl Ledger) {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let enveloped = format!(r#"{{"$lapsed":{{"traceparent":"{TRACE}"}},"payload":[1]}}"#);
    for (n, stored, payload, trace) in [
        (1, enveloped.as_str(), "[1]", Some(TRACE)),
        (2, "[1]", "[1]", None),
    ] {
        let key = key("enveloped", n);
        let task = NewTask {
            contents: Contents {
                payload: Some(stored.into()),
                ..Contents::default()
            },
            ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
        };
        let arming = ledger.create(&[task]).await.unwrap()[0].arming;
        let record = record(ledger, &key).await;
        assert_eq!(record.payload.as_deref(), Some(payload));
        let found = record.traceparent.map(|trace| trace.to_string());
        assert_eq!(found.as_deref(), trace);
        // Who runs it opens it.
        let claim = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claim.payload.as_deref(), Some(stored));
    }
}

async fn creating_a_finished_arming_again_does_not_run_it_twice(ledger: &impl Ledger) {
    let key = key("finished", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    settle(ledger, &claimed, Verdict::Complete).await;
    let again = create_at(ledger, &key, claimed.lease.arming.due).await;
    assert_eq!(again.state, State::Done);
    assert!(claim(ledger, again.arming, LEASE).await.is_none());
}

async fn creating_with_another_due_time_moves_it(ledger: &impl Ledger) {
    let key = key("move", 1);
    let first = create(ledger, &key, 60_000).await;
    let second = create(ledger, &key, 90_000).await;
    assert_eq!(first.row, second.row);
    assert!(second.due > first.due);
    let claimed = {
        let third = create(ledger, &key, -5).await;
        claim(ledger, third, LEASE).await.unwrap()
    };
    settle(ledger, &claimed, Verdict::Complete).await;
    let fourth = create(ledger, &key, 60_000).await;
    assert_eq!(
        (state(ledger, &key).await, fourth.row),
        (State::Pending, first.row)
    );
}

async fn creating_a_cancelled_task_again_revives_it(ledger: &impl Ledger) {
    let key = key("recreate", 1);
    let arming = create(ledger, &key, -5).await;
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Cancelled);
    let again = create_at(ledger, &key, arming.due).await;
    assert_eq!(again.state, State::Pending);
    assert_eq!(
        claim(ledger, arming, LEASE).await.unwrap().attempt.number,
        1
    );
}

async fn creating_during_a_run_supersedes_that_run(ledger: &impl Ledger) {
    let key = key("supersede", 1);
    let older = claim_due(ledger, &key, LEASE).await;
    let due = UnixMs(older.lease.arming.due.0 + 1);
    let newer = create_at(ledger, &key, due).await;
    assert_eq!((newer.state, newer.older_run), (State::Running, true));
    assert!(
        claim(ledger, newer.arming, LEASE).await.is_none(),
        "not before the older run has ended"
    );
    assert_eq!(
        settle(ledger, &older, Verdict::Complete).await,
        Settled::Superseded
    );
    let claimed = claim(ledger, newer.arming, LEASE).await.unwrap();
    assert_eq!(
        (
            claimed.lease.arming,
            claimed.attempt.number,
            claimed.attempt.crashes
        ),
        (newer.arming, 1, 0)
    );
    assert_eq!(
        settle(ledger, &older, Verdict::Complete).await,
        Settled::Fenced
    );
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
        Settled::Applied
    );
}

async fn only_a_pending_task_can_be_rescheduled(ledger: &impl Ledger) {
    let key = key("reschedule", 1);
    let due = in_ms(ledger, -5).await;
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Unknown
    );
    let arming = create(ledger, &key, 60_000).await;
    let moved = Arming { due, ..arming };
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Moved(moved)
    );
    let claimed = claim(ledger, moved, LEASE).await.unwrap();
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Running
    );
    settle(ledger, &claimed, Verdict::Complete).await;
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Finished(State::Done)
    );
}

async fn run_now_makes_a_task_due(ledger: &impl Ledger) {
    let key = key("run_now", 1);
    assert_eq!(ledger.run_now(&key).await.unwrap(), RunNowAnswer::Unknown);
    create(ledger, &key, 60_000).await;
    let RunNowAnswer::Due(arming) = ledger.run_now(&key).await.unwrap() else {
        panic!("refused")
    };
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, retry_at(UnixMs(9_000_000_000_000))).await;
    assert_eq!(state(ledger, &key).await, State::Waiting);
    assert_eq!(
        ledger.run_now(&key).await.unwrap(),
        RunNowAnswer::Due(arming),
        "a retry keeps its stable id"
    );
    assert_eq!(
        claim(ledger, arming, LEASE).await.unwrap().attempt.number,
        2
    );
}

async fn answers_come_in_the_order_of_the_questions(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    let tasks: Vec<NewTask> = [3, 1, 2]
        .map(|n| NewTask::new(key("order", n), UnixMs(due.0 - n)))
        .to_vec();
    let created = ledger.create(&tasks).await.unwrap();
    assert_eq!(
        created
            .iter()
            .map(|created| due.0 - created.arming.due.0)
            .collect::<Vec<_>>(),
        [3, 1, 2]
    );
    let keys = [key("order", 2), key("order", "nobody"), key("order", 3)];
    let lookups = ledger.look_up(&keys).await.unwrap();
    assert_eq!(lookups[0].as_ref().unwrap().arming, created[2].arming);
    assert!(lookups[1].is_none());
    assert_eq!(lookups[2].as_ref().unwrap().arming, created[0].arming);
    let armings: Vec<Arming> = created.iter().map(|created| created.arming).collect();
    let claims = ledger.claim(&armings, &by(LEASE)).await.unwrap();
    let verdicts = [Verdict::Complete, bury(), Verdict::Release];
    let settlements: Vec<Settlement> = claims
        .iter()
        .zip(verdicts)
        .map(|(claim, verdict)| Settlement {
            lease: claim.lease,
            verdict,
        })
        .collect();
    ledger.settle(&settlements).await.unwrap();
    for (claim, expected) in claims
        .iter()
        .zip([State::Done, State::Dead, State::Pending])
    {
        assert_eq!(state(ledger, &claim.key).await, expected);
    }
}

async fn requests_for_one_key_in_a_call_are_answered_with_what_is_current_after_all(
    ledger: &impl Ledger,
) {
    let key = key("create", "twice");
    let first = in_ms(ledger, 60_000).await;
    let last = UnixMs(first.0 + 1_000);
    let tasks = [first, last].map(|due| NewTask::new(key.clone(), due));
    let created = ledger.create(&tasks).await.unwrap();
    let dues: Vec<UnixMs> = created.iter().map(|it| it.arming.due).collect();
    assert_eq!(dues, [last, last]);
}
