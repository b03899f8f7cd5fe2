//! Tasks that are created again for the due time that they have.

use lapsed::ledger::{IfPending, Ledger, NewTask, Settled};
use lapsed::task::{After, Contents, Envelope, IfDead, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim, claim_due, in_ms, key, record, retry_at, settle, state,
};

rules! {
    a_different_task_gives_its_value_to_the_same_due_time
    the_same_task_for_the_same_due_time_changes_nothing
    a_task_that_starts_after_others_gives_way_to_one_that_starts_after_other_ones
    a_task_that_does_not_replace_leaves_the_same_due_time_as_it_is
}

async fn a_different_task_gives_its_value_to_the_same_due_time(ledger: &impl Ledger) {
    let due = in_ms(ledger, 60_000).await;
    let of = |key: &TaskKey, due: UnixMs, value: &str| NewTask {
        contents: Contents {
            payload: Some(value.to_owned()),
            tag: Some(format!("t{value}")),
            max_attempts: Some(value.parse().unwrap()),
        },
        ..NewTask::new(key.clone(), due)
    };
    let names = ["pending", "cancelled", "behind"];
    let [pending, cancelled, behind] = names.map(|name| key("replaces", name));
    let older = claim_due(ledger, &behind, LEASE).await;
    let all = [&pending, &cancelled, &behind];
    let first: Vec<NewTask> = all.iter().map(|key| of(key, due, "1")).collect();
    let first = ledger.create(&first).await.unwrap();
    cancel(ledger, &cancelled).await;
    let second: Vec<NewTask> = all.iter().map(|key| of(key, due, "2")).collect();
    let second = ledger.create(&second).await.unwrap();
    for ((key, first), second) in all.iter().zip(first).zip(second) {
        assert_eq!(first.arming, second.arming, "{key}");
        let record = record(ledger, key).await;
        let of_second = (Some("2"), Some("t2"), Some(2));
        let found = (
            record.payload.as_deref(),
            record.tag.as_deref(),
            record.max_attempts,
        );
        assert_eq!(found, of_second, "{key}");
    }
    let settled = settle(ledger, &older, Verdict::Complete).await;
    assert_eq!(settled, Settled::Superseded);
    for key in all {
        assert_eq!(state(ledger, key).await, State::Pending, "{key}");
    }

    // What has started is not given another value, and does not start twice.
    for (name, verdict) in [
        ("runs", None),
        ("done", Some(Verdict::Complete)),
        ("dead", Some(bury())),
    ] {
        let key = key("replaces", name);
        let arming = ledger
            .create(&[of(&key, in_ms(ledger, -5).await, "1")])
            .await;
        let arming = arming.unwrap()[0].arming;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        if let Some(verdict) = verdict {
            settle(ledger, &claimed, verdict).await;
        }
        let before = record(ledger, &key).await;
        let created = ledger.create(&[of(&key, arming.due, "2")]).await.unwrap()[0];
        assert_eq!(
            (created.arming, created.state),
            (arming, before.state),
            "{name}"
        );
        assert_eq!(record(ledger, &key).await, before, "{name}");
    }
}

async fn a_task_that_starts_after_others_gives_way_to_one_that_starts_after_other_ones(
    ledger: &impl Ledger,
) {
    let due = in_ms(ledger, 60_000).await;
    let after = |tag: &str, if_dead| {
        let tag = tag.to_owned();
        Some(After { tag, if_dead })
    };
    let of = |name: &str, payload: Option<&str>, after: Option<After>, is_traced: bool| {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let envelope = Envelope {
            payload: payload.map(str::to_owned),
            after,
            traceparent: is_traced.then(|| trace.parse().unwrap()),
            signature: None,
        };
        NewTask {
            contents: Contents {
                payload: envelope.seal(),
                ..Contents::default()
            },
            ..NewTask::new(key("after", name), due)
        }
    };
    for (name, payload) in [("bare", None), ("loaded", Some("{\"a\": 1}"))] {
        let mut changes = vec![
            None,
            after("a}", IfDead::Wait),
            after("a", IfDead::Wait),
            after("a", IfDead::Ignore),
            None,
        ];
        while let Some(after) = changes.pop() {
            let task = of(name, payload, after.clone(), false);
            ledger.create(std::slice::from_ref(&task)).await.unwrap();
            let found = record(ledger, &task.key).await;
            assert_eq!(found.after, after, "{name}");
            assert_eq!(found.payload.as_deref(), payload, "{name}");
            // The same again changes nothing: not even the trace, which each request has.
            let again = of(name, payload, after, true);
            ledger.create(&[again]).await.unwrap();
            assert_eq!(record(ledger, &task.key).await, found, "{name}");
        }
    }
}

/// A pending task, one that waits for a retry, and one that runs; of all, the value is "1".
async fn begun(ledger: &impl Ledger, of: &str) -> Vec<NewTask> {
    let task = |name: &str, due: UnixMs| NewTask {
        contents: Contents {
            payload: Some("1".to_owned()),
            tag: Some("t".to_owned()),
            max_attempts: Some(7),
        },
        ..NewTask::new(key(of, name), due)
    };
    let pending = task("pending", in_ms(ledger, 60_000).await);
    let past = in_ms(ledger, -5).await;
    let tasks = vec![pending, task("waiting", past), task("running", past)];
    let created = ledger.create(&tasks).await.unwrap();
    let waiting = claim(ledger, created[1].arming, LEASE).await.unwrap();
    settle(ledger, &waiting, retry_at(in_ms(ledger, 60_000).await)).await;
    claim(ledger, created[2].arming, LEASE).await.unwrap();
    tasks
}

async fn the_same_task_for_the_same_due_time_changes_nothing(ledger: &impl Ledger) {
    let tasks = begun(ledger, "again").await;
    let traced = |task: &NewTask, trace: Option<u8>| {
        let traceparent = trace.map(|n| {
            let text = format!("00-{n:032x}-{n:016x}-01");
            text.parse().unwrap()
        });
        let envelope = Envelope {
            payload: task.contents.payload.clone(),
            after: None,
            traceparent,
            signature: Some("v1=\"}".to_owned()).filter(|_| trace == Some(2)),
        };
        NewTask {
            contents: Contents {
                payload: envelope.seal(),
                ..task.contents.clone()
            },
            ..task.clone()
        }
    };
    for task in &tasks {
        let before = record(ledger, &task.key).await;
        for trace in [None, Some(1), Some(2)] {
            ledger.create(&[traced(task, trace)]).await.unwrap();
            let found = record(ledger, &task.key).await;
            assert_eq!(found, before, "{} {trace:?}", task.key);
        }
    }
    // Other contents begin anew, but of what runs.
    for task in &tasks {
        let other = NewTask {
            contents: Contents {
                payload: Some("[1]".to_owned()),
                ..task.contents.clone()
            },
            ..task.clone()
        };
        let before = record(ledger, &task.key).await;
        for trace in [1, 2] {
            ledger.create(&[traced(&other, Some(trace))]).await.unwrap();
            let found = record(ledger, &task.key).await;
            if before.state == State::Running {
                assert_eq!(found, before);
                continue;
            }
            assert_eq!(found.payload, other.contents.payload, "{}", task.key);
            assert_eq!((found.state, found.attempt), (State::Pending, 0));
            assert_eq!(
                (found.tag.as_deref(), found.max_attempts),
                (Some("t"), Some(7))
            );
        }
    }
    // Each of the contents counts.
    let pending = &tasks[0];
    for other in [
        NewTask {
            contents: Contents {
                payload: None,
                ..pending.contents.clone()
            },
            ..pending.clone()
        },
        NewTask {
            contents: Contents {
                tag: None,
                ..pending.contents.clone()
            },
            ..pending.clone()
        },
        NewTask {
            contents: Contents {
                max_attempts: Some(8),
                ..pending.contents.clone()
            },
            ..pending.clone()
        },
        pending.clone(),
    ] {
        ledger.create(&[traced(&other, Some(1))]).await.unwrap();
        let found = record(ledger, &other.key).await;
        let found = (found.payload, found.tag, found.max_attempts);
        assert_eq!(
            found,
            (
                other.contents.payload,
                other.contents.tag,
                other.contents.max_attempts
            )
        );
    }
}

async fn a_task_that_does_not_replace_leaves_the_same_due_time_as_it_is(ledger: &impl Ledger) {
    for task in begun(ledger, "kept").await {
        let before = record(ledger, &task.key).await;
        let policies = IfPending::ALL.map(|policy| (policy, policy != IfPending::Move));
        for (if_pending, replaces) in policies {
            let other = NewTask {
                contents: Contents {
                    payload: Some("2".to_owned()),
                    ..task.contents.clone()
                },
                if_pending,
                replaces,
                ..task.clone()
            };
            ledger.create(&[other]).await.unwrap();
            assert_eq!(record(ledger, &task.key).await, before, "{if_pending:?}");
        }
    }
}
