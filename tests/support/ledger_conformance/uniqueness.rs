//! What asking again does to a task that is still to run: it is moved, kept or refused.

use std::time::Duration;

use lapsed::ledger::{Admin, CreateResult, Created, IfPending, Ledger, NewTask, Settled};
use lapsed::task::{Contents, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, bury, cancel, claim_due, create, in_ms, key, pass, record, retry_at,
    settle, state,
};

rules! {
    keep_leaves_what_is_pending_or_waits_as_it_is
    keep_asks_for_another_run_behind_one_in_progress
    refuse_leaves_what_is_pending_or_running_as_it_is
    a_crashed_run_counts_as_pending_for_every_policy
    the_same_due_time_again_changes_the_contents_under_move_and_nothing_under_other_policies
    a_finished_task_restarts_under_every_policy
    a_call_may_mix_policies
    one_call_may_ask_twice_for_a_key
}

/// Asks for `key` in a minute, with another payload, under this policy.
async fn ask_again(ledger: &impl Ledger, key: &TaskKey, policy: IfPending) -> Created {
    let due = in_ms(ledger, 60_000).await;
    let task = NewTask {
        contents: Contents {
            payload: Some("\"again\"".into()),
            ..Contents::default()
        },
        if_pending: policy,
        ..NewTask::new(key.clone(), due)
    };
    ledger.create(&[task]).await.unwrap()[0]
}

async fn payload(ledger: &impl Admin, key: &TaskKey) -> Option<String> {
    record(ledger, key).await.payload
}

async fn keep_leaves_what_is_pending_or_waits_as_it_is(ledger: &impl Ledger) {
    let pending = key("keep_pending", 1);
    let arming = create(ledger, &pending, 5_000).await;
    let since = record(ledger, &pending).await.created;
    for _ in 0..2 {
        let again = ask_again(ledger, &pending, IfPending::Keep).await;
        assert_eq!(
            (again.arming, again.state, again.result, again.since),
            (arming, State::Pending, CreateResult::Kept, since)
        );
        assert_eq!(payload(ledger, &pending).await, None);
    }

    let waiting = key("keep_waiting", 1);
    let claimed = claim_due(ledger, &waiting, LEASE).await;
    let at = ledger.clock().now().plus(Duration::from_secs(60));
    settle(ledger, &claimed, retry_at(at)).await;
    let again = ask_again(ledger, &waiting, IfPending::Keep).await;
    assert_eq!(
        (again.arming, again.state, again.result),
        (claimed.lease.arming, State::Waiting, CreateResult::Kept)
    );
    let record = record(ledger, &waiting).await;
    assert_eq!((record.attempt, record.due_at), (1, at), "its retry stays");

    // What was moved by the default since then is not taken for moved by this.
    let moved = create(ledger, &pending, 70_000).await;
    let again = ask_again(ledger, &pending, IfPending::Keep).await;
    assert_eq!((again.arming, again.result), (moved, CreateResult::Kept));
}

async fn keep_asks_for_another_run_behind_one_in_progress(ledger: &impl Ledger) {
    let key = key("keep_running", 1);
    let running = claim_due(ledger, &key, LEASE).await;
    let next = ask_again(ledger, &key, IfPending::Keep).await;
    assert_eq!(
        (
            next.result,
            next.older_run,
            next.arming == running.lease.arming
        ),
        (CreateResult::Written, true, false)
    );
    assert_eq!(payload(ledger, &key).await.as_deref(), Some("\"again\""));
    // The next one is pending, whatever runs.
    pass(ledger, ledger.clock().now()).await;
    let third = ask_again(ledger, &key, IfPending::Keep).await;
    assert_eq!(
        (third.arming, third.result, third.older_run),
        (next.arming, CreateResult::Kept, true)
    );
    assert_eq!(
        settle(ledger, &running, Verdict::Complete).await,
        Settled::Superseded
    );
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn refuse_leaves_what_is_pending_or_running_as_it_is(ledger: &impl Ledger) {
    let pending = key("refuse", 1);
    let arming = create(ledger, &pending, 5_000).await;
    let again = ask_again(ledger, &pending, IfPending::Refuse).await;
    assert_eq!(
        (again.arming, again.state, again.result),
        (arming, State::Pending, CreateResult::Refused)
    );
    assert_eq!(payload(ledger, &pending).await, None);

    let running = key("refuse", 2);
    let claimed = claim_due(ledger, &running, LEASE).await;
    let again = ask_again(ledger, &running, IfPending::Refuse).await;
    assert_eq!(
        (again.arming, again.state, again.result),
        (claimed.lease.arming, State::Running, CreateResult::Refused)
    );
    // Cancelled, but it still runs.
    cancel(ledger, &running).await;
    let again = ask_again(ledger, &running, IfPending::Refuse).await;
    assert_eq!(again.result, CreateResult::Refused);
    assert!(
        record(ledger, &running).await.cancel_requested,
        "the cancellation stands"
    );
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
        Settled::Applied
    );
    let again = ask_again(ledger, &running, IfPending::Refuse).await;
    assert_eq!(
        (again.state, again.result),
        (State::Pending, CreateResult::Written)
    );
}

async fn a_crashed_run_counts_as_pending_for_every_policy(ledger: &impl Ledger) {
    for (policy, expected) in [
        (IfPending::Move, CreateResult::Written),
        (IfPending::Keep, CreateResult::Kept),
        (IfPending::Refuse, CreateResult::Refused),
    ] {
        let key = key("policy_crash", policy.as_str());
        let claimed = claim_due(ledger, &key, SHORT_LEASE).await;
        pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
        let again = ask_again(ledger, &key, policy).await;
        let keeps = again.arming == claimed.lease.arming;
        assert_eq!(
            (again.result, keeps),
            (expected, policy != IfPending::Move),
            "{policy:?}"
        );
    }
}

async fn the_same_due_time_again_changes_the_contents_under_move_and_nothing_under_other_policies(
    ledger: &impl Ledger,
) {
    for policy in IfPending::ALL {
        let key = key("policy_same", policy.as_str());
        let first = ask_again(ledger, &key, policy).await;
        assert_eq!(first.result, CreateResult::Written);
        let mut expected = "\"again\"".to_owned();
        for other in [
            IfPending::Keep,
            IfPending::Refuse,
            IfPending::Move,
            IfPending::Keep,
            IfPending::Refuse,
        ] {
            let asked = format!("\"{}\"", other.as_str());
            if other == IfPending::Move {
                expected.clone_from(&asked);
            }
            let task = NewTask {
                contents: Contents {
                    payload: Some(asked),
                    ..Contents::default()
                },
                if_pending: other,
                ..NewTask::new(key.clone(), first.arming.due)
            };
            let second = ledger.create(&[task]).await.unwrap()[0];
            assert_eq!(
                (second.arming, second.result),
                (first.arming, CreateResult::Written)
            );
            assert_eq!(payload(ledger, &key).await.as_ref(), Some(&expected));
        }
    }
}

async fn a_finished_task_restarts_under_every_policy(ledger: &impl Ledger) {
    for policy in IfPending::ALL {
        for over in ["done", "dead", "cancelled"] {
            let key = key("policy_over", format!("{}-{over}", policy.as_str()));
            let claimed = claim_due(ledger, &key, LEASE).await;
            let (verdict, expected) = match over {
                "done" => (Verdict::Complete, State::Done),
                "dead" => (bury(), State::Dead),
                _ => (retry_at(claimed.due_at), State::Cancelled),
            };
            if over == "cancelled" {
                cancel(ledger, &key).await;
            }
            settle(ledger, &claimed, verdict).await;
            assert_eq!(state(ledger, &key).await, expected);
            let again = ask_again(ledger, &key, policy).await;
            assert_eq!(
                (again.state, again.result, again.older_run),
                (State::Pending, CreateResult::Written, false),
                "{policy:?} {over}"
            );
            let record = record(ledger, &key).await;
            assert_eq!(
                (record.attempt, record.last_error, record.finished),
                (0, None, None)
            );
            assert_eq!(record.payload.as_deref(), Some("\"again\""));
            assert!(again.arming.due > claimed.lease.arming.due);
        }
    }
}

async fn a_call_may_mix_policies(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    let task = |n: usize, in_ms: i64, policy| NewTask {
        if_pending: policy,
        ..NewTask::new(key("mixed", n), UnixMs(due.0 + in_ms))
    };
    let tasks: Vec<NewTask> = (0..9).map(|n| task(n, 10_000, IfPending::Keep)).collect();
    ledger.create(&tasks).await.unwrap();
    let policies = IfPending::ALL.into_iter().cycle().take(12).enumerate();
    let again: Vec<NewTask> = policies
        .map(|(n, policy)| task(n, 20_000, policy))
        .collect();
    let created = ledger.create(&again).await.unwrap();
    let results: Vec<CreateResult> = created.iter().map(|created| created.result).collect();
    let there = [
        CreateResult::Written,
        CreateResult::Kept,
        CreateResult::Refused,
    ];
    assert_eq!(results[..9], there.repeat(3));
    assert_eq!(results[9..], [CreateResult::Written; 3]);
}

async fn one_call_may_ask_twice_for_a_key(ledger: &impl Ledger) {
    for (policy, expected) in [
        (IfPending::Keep, CreateResult::Kept),
        (IfPending::Refuse, CreateResult::Refused),
    ] {
        let key = key("twice", policy.as_str());
        let done = claim_due(ledger, &key, LEASE).await;
        settle(ledger, &done, Verdict::Complete).await;
        let tasks = [10_000, 20_000].map(|in_ms| NewTask {
            if_pending: policy,
            ..NewTask::new(key.clone(), UnixMs(done.due_at.0 + in_ms))
        });
        let created = ledger.create(&tasks).await.unwrap();
        assert_eq!(
            (created[0].arming.due, created[0].result, created[1].result),
            (tasks[0].due, CreateResult::Written, expected),
            "{policy:?}"
        );
    }
}
