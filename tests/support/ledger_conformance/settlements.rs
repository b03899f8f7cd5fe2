//! What is written of a run that has ended.

use std::time::Duration;

use lapsed::ledger::{CancelAnswer, Ledger, NewTask, RunNowAnswer, Settled};
use lapsed::task::{How, Reason, State, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, attempt_error, bury, bury_for, claim, claim_due, create, key, pass, record, retry_at,
    settle, state,
};

rules! {
    success_is_done
    a_retry_waits_and_counts_its_attempts
    an_attempt_that_ends_by_itself_clears_the_crashes
    a_buried_task_is_dead_and_can_be_redriven
    a_released_task_has_not_been_tried
    a_task_moved_away_and_back_during_its_run_can_be_released
    settling_twice_answers_the_same
    another_report_of_a_settled_claim_is_fenced
    a_task_forced_to_run_starts_once_although_its_claim_is_released
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
        snooze(),
        Verdict::Release,
        Verdict::GiveBack,
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
        let counts = matches!(
            verdict,
            Verdict::Complete | Verdict::RetryAt { .. } | Verdict::Bury(_)
        );
        assert_eq!(attempts, u16::from(counts), "{verdict:?}");
    }
}

fn snooze() -> Verdict {
    Verdict::Snooze {
        at: UnixMs(9_000_000_000_000),
        attempt_error: attempt_error(How::Snoozed, 1, ""),
    }
}

async fn another_report_of_a_settled_claim_is_fenced(ledger: &impl Ledger) {
    let kinds = [
        ("done", Verdict::Complete),
        ("failed", retry_at(UnixMs(9_000_000_000_000))),
        ("dead", bury()),
        ("snoozed", snooze()),
        ("released", Verdict::Release),
        ("unused", Verdict::GiveBack),
    ];
    for (first, verdict) in &kinds {
        let claimed = claim_due(ledger, &key("reports", first), LEASE).await;
        settle(ledger, &claimed, verdict.clone()).await;
        let before = record(ledger, &claimed.key).await;
        for (second, other) in &kinds {
            let is_same = match (*first, *second) {
                ("failed" | "dead", "failed" | "dead") => true,
                ("released" | "unused", "released" | "unused") => true,
                (first, second) => first == second,
            };
            let expected = match is_same {
                true => Settled::Applied,
                // Its handler may have marked it.
                false if *first == "done" => Settled::ByHandler,
                false => Settled::Fenced,
            };
            let settled = settle(ledger, &claimed, other.clone()).await;
            assert_eq!(settled, expected, "{second} after {first}");
            assert_eq!(
                record(ledger, &claimed.key).await,
                before,
                "{second} after {first}"
            );
        }
    }
    let claimed = claim_due(ledger, &key("reports", "cancelled"), LEASE).await;
    ledger
        .cancel(std::slice::from_ref(&claimed.key))
        .await
        .unwrap();
    for _ in 0..2 {
        let settled = settle(ledger, &claimed, retry_at(UnixMs(1))).await;
        assert_eq!(settled, Settled::Cancelled);
    }
    let settled = settle(ledger, &claimed, Verdict::Complete).await;
    assert_eq!(settled, Settled::Fenced);
    assert_eq!(state(ledger, &claimed.key).await, State::Cancelled);
}

async fn a_task_forced_to_run_starts_once_although_its_claim_is_released(ledger: &impl Ledger) {
    for (n, verdict, expected) in [
        (1, Verdict::Complete, State::Done),
        (2, retry_at(UnixMs(1)), State::Cancelled),
        (3, Verdict::Release, State::Cancelled),
    ] {
        let claimed = claim_due(ledger, &key("runs-once", n), LEASE).await;
        let keys = std::slice::from_ref(&claimed.key);
        assert_eq!(ledger.cancel(keys).await.unwrap(), [CancelAnswer::Running]);
        for _ in 0..2 {
            let given_back = settle(ledger, &claimed, Verdict::GiveBack).await;
            assert_eq!(given_back, Settled::Applied);
        }
        assert_eq!(state(ledger, &claimed.key).await, State::Pending);
        let again = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
        assert_eq!((again.attempt.number, again.attempt.crashes), (1, 0));
        assert!(record(ledger, &claimed.key).await.cancel_requested);
        settle(ledger, &again, verdict).await;
        assert_eq!(state(ledger, &claimed.key).await, expected, "{n}");
        assert!(claim(ledger, again.lease.arming, LEASE).await.is_none());
    }
    // What is armed anew is another task, and a cancellation of what waits is one.
    let claimed = claim_due(ledger, &key("runs-once", 4), LEASE).await;
    let keys = std::slice::from_ref(&claimed.key);
    ledger.cancel(keys).await.unwrap();
    settle(ledger, &claimed, Verdict::GiveBack).await;
    let arming = create(ledger, &claimed.key, -5).await;
    let again = claim(ledger, arming, LEASE).await.unwrap();
    assert!(!record(ledger, &claimed.key).await.cancel_requested);
    ledger.cancel(keys).await.unwrap();
    settle(ledger, &again, Verdict::GiveBack).await;
    assert_eq!(
        ledger.cancel(keys).await.unwrap(),
        [CancelAnswer::Cancelled]
    );
    assert!(claim(ledger, arming, LEASE).await.is_none());
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
