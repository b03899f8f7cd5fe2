//! Snoozes, deadlines, expiry and results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{NewTask, Producer, RunNowAnswer};
use lapsed::task::{How, Reason, RetryPolicy, State, TaskKey};
use lapsed::{HandlerError, Handlers, TaskContext};

use crate::engine::rig::{START, failing, seconds, start, start_on};

#[tokio::test(start_paused = true)]
async fn a_snoozed_task_runs_again_as_the_same_attempt_without_an_error() {
    let runs = Arc::new(AtomicU32::new(0));
    let ran = Arc::clone(&runs);
    let rig = start(
        "retry.max_attempts = 1",
        failing(move |attempt| {
            assert_eq!(attempt, 1);
            match ran.fetch_add(1, Ordering::SeqCst) {
                0..3 => Err(HandlerError::snooze(seconds(60))),
                _ => Ok(()),
            }
        }),
    );
    rig.due_now("Job@fail").await;
    let waiting = rig.until("Job@fail", State::Waiting).await;
    assert_eq!((waiting.attempt, waiting.last_error), (0, None));
    assert_eq!(waiting.history[0].how, How::Snoozed);
    let done = rig.until("Job@fail", State::Done).await;
    assert_eq!((done.attempt, done.history[0].snoozes), (1, 3));
    let waited = done.finished.unwrap().since(START).as_secs();
    assert!((180..190).contains(&waited), "{waited}");
    rig.until_metric("lapsed_runs_total{route=\"Job@fail\",outcome=\"snoozed\"} 3")
        .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn endless_snoozes_count_as_a_failure() {
    let rig = start(
        "retry.max_attempts = 1",
        failing(|_| Err(HandlerError::snooze(seconds(1)))),
    );
    rig.due_now("Job@fail").await;
    let dead = rig.until("Job@fail", State::Dead).await;
    assert_eq!(dead.reason, Some(Reason::Exhausted));
    let hows: Vec<_> = dead.history.iter().map(|entry| entry.snoozes).collect();
    assert_eq!(hows, [0, 1000]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_deadline() {
    let rig = start(
        "retry = { backoff = 'fixed', delay = '10s', jitter = 0.0, deadline = '25s' }",
        failing(|_| Err(HandlerError::new("no"))),
    );
    rig.due_now("Job@fail").await;
    let dead = rig.until("Job@fail", State::Dead).await;
    assert_eq!((dead.attempt, dead.reason), (3, Some(Reason::Deadline)));
    let error = dead.last_error.unwrap();
    assert!(error.contains("after its deadline of 25 s: no"), "{error}");
    // A redrive gives it the whole of it again.
    let key = TaskKey::parse("Job@fail").unwrap();
    tokio::time::sleep(seconds(3600)).await;
    let answer = rig.tasks.redrive(&key).await.unwrap();
    assert!(matches!(answer, RunNowAnswer::Due(_)));
    rig.until("Job@fail", State::Waiting).await;
    let again = rig.until("Job@fail", State::Dead).await;
    assert_eq!((again.attempt, again.history.len()), (3, 6));
    assert_eq!(again.id, dead.id);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handlers_policy_and_timeout_apply() {
    let mut handlers = Handlers::new();
    handlers
        .on(("Job", "hangs"), std::future::pending)
        .timeout(seconds(7))
        .retry(RetryPolicy::never());
    let rig = start("", handlers);
    rig.due_now("Job@hangs").await;
    let dead = rig.until("Job@hangs", State::Dead).await;
    let error = "gave up after 1 of 1 attempts: timed out after 7 s";
    assert_eq!(dead.last_error.as_deref(), Some(error));
    assert_eq!(dead.history[0].how, How::TimedOut);
    assert_eq!(dead.history[0].error, "timed out after 7 s");
    assert!(!dead.history[0].daemon.is_empty());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_would_start_too_late_is_dead_until_it_is_redriven() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let mut handlers = Handlers::new();
    handlers
        .on(("Job", "count"), move |_: Vec<String>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        })
        .expire_after(seconds(3600));
    let ledger = Arc::new(MemoryLedger::new(START));
    let due = |arg: &str| {
        let key = TaskKey::build("Job", "count", [arg]).unwrap();
        NewTask::new(key, START)
    };
    // No daemon is there for an hour; one task is created only then, with a due time long past.
    ledger.create(&[due("late")]).await.unwrap();
    tokio::time::sleep(seconds(3700)).await;
    ledger.create(&[due("young")]).await.unwrap();
    let rig = start_on(ledger, "", handlers);
    let dead = rig.until("Job@count@late", State::Dead).await;
    rig.until("Job@count@young", State::Done).await;
    assert_eq!((dead.attempt, dead.reason), (0, Some(Reason::Expired)));
    assert_eq!(dead.history[0].attempt, 0, "no run started");
    let error = dead.last_error.unwrap();
    assert!(
        error.starts_with("expired: it would have started 1 h 1 min after it fell due, 1 h"),
        "{error}"
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    rig.until_metric("lapsed_dead_total{route=\"Job@count\",reason=\"expired\"} 1")
        .await;
    rig.until_metric("lapsed_runs_total{route=\"Job@count\",outcome=\"succeeded\"} 1")
        .await;

    let key = TaskKey::parse("Job@count@late").unwrap();
    rig.tasks.redrive(&key).await.unwrap();
    let done = rig.until("Job@count@late", State::Done).await;
    assert_eq!((done.attempt, done.id), (1, dead.id));
    assert_eq!(done.history[0].how, How::Expired, "it is not forgotten");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_if_the_run_succeeds() {
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "result"),
        |ctx: TaskContext, what: String| async move {
            ctx.keep_result("first")?;
            match what.as_str() {
                "fine" => ctx.keep_result(serde_json::json!({ "sum": 3 })),
                "big" => ctx.keep_result("x".repeat(64 * 1024)),
                _ => Err(HandlerError::permanent("no")),
            }
        },
    );
    let rig = start("", handlers);
    for what in ["fine", "big", "fails"] {
        rig.due_now(&format!("Job@result@{what}")).await;
    }
    let fine = rig.until("Job@result@fine", State::Done).await;
    assert_eq!(fine.result.as_deref(), Some(r#"{"sum":3}"#));
    let shown = serde_json::to_value(&fine).unwrap();
    assert_eq!(shown["result"]["sum"], 3);
    let big = rig.until("Job@result@big", State::Dead).await;
    let error = "permanent failure: result has 65538 bytes of JSON, expected at most 65536";
    assert_eq!(big.last_error.as_deref(), Some(error));
    let fails = rig.until("Job@result@fails", State::Dead).await;
    assert_eq!(
        (fails.result, fails.reason),
        (None, Some(Reason::Permanent))
    );
    rig.stop().await;
}
