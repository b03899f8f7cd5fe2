//! Which tasks start, and when.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Ledger, NewTask, Producer};
use lapsed::task::{State, TaskKey, UnixMs};
use lapsed::{Config, Handlers, Task, TaskContext};
use tokio::sync::{Notify, mpsc};

use crate::engine::faults::Faults;
use crate::engine::rig::{START, counting, held, start, start_on, start_with};

#[tokio::test(start_paused = true)]
async fn a_task_runs_once_at_its_due_millisecond() {
    let (seen, mut ran) = mpsc::unbounded_channel();
    let mut handlers = Handlers::new();
    handlers.on(
        ("Order", "close"),
        move |ctx: TaskContext, (id, why): (u64, String)| {
            let seen = seen.clone();
            async move {
                seen.send((ctx.id(), id, why, ctx.lateness_ms())).unwrap();
                Ok(())
            }
        },
    );
    let rig = start("", handlers);
    let made = rig
        .tasks
        .create(
            ("Order", "close", ["42", "unpaid"]),
            Duration::from_millis(5_000),
        )
        .await
        .unwrap();
    let (id, order, why, lateness_ms) = ran.recv().await.unwrap();
    assert_eq!((id, order, why.as_str()), (made.id(), 42, "unpaid"));
    assert!(lateness_ms <= 1, "{lateness_ms}");
    rig.until("Order@close@42@unpaid", State::Done).await;
    rig.stop().await;
    assert!(ran.recv().await.is_none(), "once");
}

#[tokio::test(start_paused = true)]
async fn tasks_that_fell_due_without_a_daemon_run_at_start() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let tasks: Vec<NewTask> = (0..5_000)
        .map(|n| {
            NewTask::new(
                TaskKey::build("Job", "count", [n.to_string()]).unwrap(),
                UnixMs(START.0 - n),
            )
        })
        .collect();
    ledger.create(&tasks).await.unwrap();
    let count = Arc::default();
    let rig = start_on(ledger, "", counting(&count));
    rig.until_done(5_000).await;
    assert!(rig.ledger.clock().now().since(START) < Duration::from_secs(10));
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_route_stays_pending_until_one_appears() {
    let count = Arc::default();
    let rig = start("", counting(&count));
    rig.due_now("Other@job@1").await;
    rig.tasks
        .create(("Job", "count", ["1"]), Duration::from_secs(5))
        .await
        .unwrap();
    rig.until("Job@count@1", State::Done).await;
    let record = rig.record("Other@job@1").await;
    assert_eq!(
        (record.state, record.attempt, record.daemon.as_str()),
        (State::Pending, 0, "")
    );
    rig.parts
        .router
        .reload(&Config::from_toml("[[routes]]\nmatch = '^Other@'\nlog = {}").unwrap());
    rig.until("Other@job@1", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_daemons_on_one_ledger_run_each_task_once() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::default();
    let one = start_on(
        Arc::clone(&ledger),
        "engine.concurrency = 8",
        counting(&count),
    );
    let two = start_on(
        Arc::clone(&ledger),
        "engine.concurrency = 8",
        counting(&count),
    );
    for n in 0..500u64 {
        one.tasks
            .create(("Job", "count", [n]), Duration::from_millis(n * 7))
            .await
            .unwrap();
    }
    one.until_done(500).await;
    one.stop().await;
    two.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 500);
}

#[tokio::test(start_paused = true)]
async fn a_key_created_again_during_its_run_runs_again_and_the_first_result_is_discarded() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let rig = start("", held(started, &go));
    let first = rig.due_now("Job@held").await;
    assert_eq!(runs.recv().await.unwrap(), first.id());
    let second = rig
        .tasks
        .create(("Job", "held", [""; 0]), Duration::from_millis(10))
        .await
        .unwrap();
    assert!(second.older_run());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(runs.try_recv().is_err(), "leases of one row never overlap");
    go.notify_one();
    assert_eq!(runs.recv().await.unwrap(), second.id());
    go.notify_one();
    let record = rig.until("Job@held", State::Done).await;
    assert_eq!(record.id, second.id());
    rig.until_metric("lapsed_fenced_total 1").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_does_not_start() {
    let count = Arc::default();
    let rig = start("", counting(&count));
    rig.tasks
        .create(("Job", "count", ["1"]), Duration::from_secs(3))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(2_999)).await;
    rig.tasks.cancel(("Job", "count", ["1"])).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.record("Job@count@1").await.state, State::Cancelled);
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_a_task_reach_its_handler() {
    let (seen, mut ran) = mpsc::unbounded_channel();
    let mut handlers = Handlers::new();
    handlers.on(("Job", "json"), move |ctx: TaskContext, _: Vec<String>| {
        let seen = seen.clone();
        async move {
            let amount: serde_json::Value = ctx.payload()?;
            seen.send((ctx.to_json(), amount)).unwrap();
            Ok(())
        }
    });
    let rig = start("", handlers);
    let key = TaskKey::parse("Job@json@a@b").unwrap();
    let due = lapsed::task::Due::at(UnixMs(START.0 + 250)).unwrap();
    let task = Task::from(key).payload("{\"amount\":3}").tag("vip");
    let made = rig.tasks.create(task, due).await.unwrap();
    let (json, amount) = ran.recv().await.unwrap();
    assert_eq!(amount["amount"], 3);
    assert_eq!(json["id"], made.id());
    assert_eq!(
        (json["class"].as_str(), json["method"].as_str()),
        (Some("Job"), Some("json"))
    );
    assert_eq!(json["args"], serde_json::json!(["a", "b"]));
    assert_eq!(
        (json["due"].as_str(), json["tag"].as_str()),
        (Some("2027-01-15T08:00:00.250Z"), Some("vip"))
    );
    assert_eq!(
        (json["attempt"].as_u64(), json["payload"]["amount"].as_u64()),
        (Some(1), Some(3))
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_a_little_early_by_the_ledgers_clock_is_made_again_at_once() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    *faults.clock_ahead.lock().unwrap() = Duration::from_millis(8);
    let rig = start_with(ledger, faults, "", counting(&Arc::default()));
    rig.tasks
        .create(("Job", "count", ["1"]), Duration::from_secs(5))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(5_020)).await;
    assert_eq!(rig.record("Job@count@1").await.state, State::Done);
    rig.stop().await;
}
