//! What is written of a run that has ended.

use std::time::Duration;

use lapsed::ledger::{Ledger, NewTask, RunNowAnswer, Settled};
use lapsed::task::{Reason, State, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, bury_for, claim, claim_due, key, pass, record, retry_at, settle, state,
};

rules! {
    success_is_done
    a_retry_waits_and_counts_its_attempts
    an_attempt_that_ends_by_itself_clears_the_crashes
    a_buried_task_is_dead_and_can_be_redriven
    a_released_task_has_not_been_tried
    a_task_moved_away_and_back_during_its_run_can_be_released
    settling_twice_answers_the_same
    a_fenced_settlement_writes_nothing
    long_errors_are_cut
}

async fn success_is_done(ledger: &impl Ledger) {
    let key = key("done", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
        Settled::Applied
    );
    let record = record(ledger, &key).await;
    assert_eq!(
        (record.state, record.attempt, record.finished.is_some()),
        (State::Done, 1, true)
    );
}

async fn a_retry_waits_and_counts_its_attempts(ledger: &impl Ledger) {
    let key = key("retry", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    let at = ledger
        .sync_clock()
        .await
        .unwrap()
        .plus(Duration::from_secs(2));
    assert_eq!(
        settle(ledger, &claimed, retry_at(at)).await,
        Settled::Applied
    );
    let record = record(ledger, &key).await;
    assert_eq!(
        (record.state, record.due_at, record.last_error.as_deref()),
        (State::Waiting, at, Some("no"))
    );
    assert!(claim(ledger, claimed.lease.arming, LEASE).await.is_none());
    pass(ledger, at).await;
    let again = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    assert_eq!((again.attempt.number, again.due_at), (2, at));
}

async fn an_attempt_that_ends_by_itself_clears_the_crashes(ledger: &impl Ledger) {
    let key = key("clears", 1);
    let first = claim_due(ledger, &key, Duration::from_millis(20)).await;
    pass(ledger, ledger.clock().now().plus(Duration::from_millis(50))).await;
    let second = claim(ledger, first.lease.arming, LEASE).await.unwrap();
    assert_eq!(second.attempt.crashes, 1);
    settle(ledger, &second, retry_at(UnixMs(1))).await;
    assert_eq!(
        claim(ledger, first.lease.arming, LEASE)
            .await
            .unwrap()
            .attempt
            .crashes,
        0
    );
}

async fn a_buried_task_is_dead_and_can_be_redriven(ledger: &impl Ledger) {
    let key = key("bury", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    assert_eq!(settle(ledger, &claimed, bury()).await, Settled::Applied);
    let record = record(ledger, &key).await;
    assert_eq!(
        (record.state, record.last_error.as_deref()),
        (State::Dead, Some("for good"))
    );
    assert_eq!(
        ledger.run_now(&key).await.unwrap(),
        RunNowAnswer::Refused(State::Dead)
    );
    assert_eq!(
        ledger.redrive(&key).await.unwrap(),
        RunNowAnswer::Due(claimed.lease.arming),
        "the same stable id"
    );
    assert_eq!(
        claim(ledger, claimed.lease.arming, LEASE)
            .await
            .unwrap()
            .attempt
            .number,
        1
    );
    assert_eq!(
        ledger.redrive(&key).await.unwrap(),
        RunNowAnswer::Refused(State::Running)
    );
}

async fn a_released_task_has_not_been_tried(ledger: &impl Ledger) {
    let key = key("release", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    assert_eq!(
        settle(ledger, &claimed, Verdict::Release).await,
        Settled::Applied
    );
    let again = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    assert_eq!((again.attempt.number, again.attempt.crashes), (1, 0));
}

async fn settling_twice_answers_the_same(ledger: &impl Ledger) {
    for (n, verdict) in [
        Verdict::Complete,
        retry_at(UnixMs(9_000_000_000_000)),
        bury(),
        Verdict::Release,
    ]
    .into_iter()
    .enumerate()
    {
        let claimed = claim_due(ledger, &key("twice", n), LEASE).await;
        for _ in 0..2 {
            assert_eq!(
                settle(ledger, &claimed, verdict.clone()).await,
                Settled::Applied,
                "{verdict:?}"
            );
        }
        let attempts = record(ledger, &claimed.key).await.attempt;
        assert_eq!(
            attempts,
            u16::from(verdict != Verdict::Release),
            "{verdict:?}"
        );
    }
}

async fn a_fenced_settlement_writes_nothing(ledger: &impl Ledger) {
    for (n, verdict) in [
        Verdict::Complete,
        retry_at(UnixMs(1)),
        bury(),
        Verdict::Release,
    ]
    .into_iter()
    .enumerate()
    {
        let mut claimed = claim_due(ledger, &key("fenced", n), LEASE).await;
        claimed.lease.owner = lapsed::ledger::Owner::random();
        assert_eq!(settle(ledger, &claimed, verdict).await, Settled::Fenced);
        assert_eq!(state(ledger, &claimed.key).await, State::Running);
    }
}

async fn long_errors_are_cut(ledger: &impl Ledger) {
    let claimed = claim_due(ledger, &key("long", 1), LEASE).await;
    settle(
        ledger,
        &claimed,
        bury_for(Reason::Exhausted, &"é".repeat(100_000)),
    )
    .await;
    let error = record(ledger, &claimed.key).await.last_error.unwrap();
    assert_eq!(error, "é".repeat(1024));
}

async fn a_task_moved_away_and_back_during_its_run_can_be_released(ledger: &impl Ledger) {
    let key = key("moved", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    for due in [
        claimed.lease.arming.due.0 + 5_000,
        claimed.lease.arming.due.0,
    ] {
        let moved = NewTask::new(key.clone(), UnixMs(due));
        ledger.create(&[moved]).await.unwrap();
    }
    let settled = settle(ledger, &claimed, Verdict::Release).await;
    assert_eq!(settled, Settled::Applied);
    let record = record(ledger, &key).await;
    assert_eq!((record.state, record.attempt), (State::Pending, 0));
}
