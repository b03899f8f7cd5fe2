//! Outcomes of runs, and the verdicts that follow.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Claimant, Claims, Ledger, NewTask, Producer};
use lapsed::task::{State, TaskKey};
use lapsed::{HandlerError, Handlers, TaskContext};

use crate::engine::rig::{START, counting, failing, start, start_on};

#[tokio::test(start_paused = true)]
async fn a_failure_climbs_the_ladder_until_it_succeeds() {
    let rig = start(
        "",
        failing(|attempt| {
            if attempt < 4 {
                Err(HandlerError::new("not yet"))
            } else {
                Ok(())
            }
        }),
    );
    rig.due_now("Job@fail").await;
    let record = rig.until("Job@fail", State::Done).await;
    assert_eq!((record.attempt, record.last_error), (4, None));
    let waited = record.finished.unwrap().since(START).as_secs_f64();
    assert!(
        (54.0..=67.0).contains(&waited),
        "15 + 15 + 30 s, each +-10 %: {waited}"
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_ladder_the_task_is_dead_and_says_why() {
    // A day and more: a sweep each second of it would be nearly all that the test does.
    let rig = start(
        "sweep.interval = '1h'",
        failing(|_| Err(HandlerError::new("never"))),
    );
    rig.due_now("Job@fail").await;
    let record = rig.until("Job@fail", State::Dead).await;
    assert_eq!(
        (record.attempt, record.last_error.as_deref()),
        (16, Some("gave up after 16 of 16 attempts: never"))
    );
    rig.until_metric("lapsed_dead_total{route=\"Job@fail\",reason=\"exhausted\"} 1")
        .await;
    rig.until_metric("lapsed_runs_total{route=\"Job@fail\",outcome=\"failed\"} 16")
        .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_and_arguments_that_do_not_parse_are_not_tried_again() {
    let mut handlers = failing(|_| Err(HandlerError::permanent("no such order")));
    handlers.on(("Job", "typed"), |_: u64| async { Ok(()) });
    let rig = start("", handlers);
    rig.due_now("Job@fail").await;
    rig.due_now("Job@typed@x").await;
    let record = rig.until("Job@fail", State::Dead).await;
    assert_eq!(
        (record.attempt, record.last_error.as_deref()),
        (1, Some("permanent failure: no such order"))
    );
    let record = rig.until("Job@typed@x", State::Dead).await;
    assert!(
        record
            .last_error
            .unwrap()
            .contains("argument 1: expected `u64`, found `x`")
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_outcome_and_the_daemon_lives() {
    let rig = start(
        "",
        failing(|attempt| if attempt == 1 { panic!("boom") } else { Ok(()) }),
    );
    rig.due_now("Job@fail").await;
    let record = rig.until("Job@fail", State::Waiting).await;
    assert_eq!(record.last_error.as_deref(), Some("panicked: boom"));
    assert_eq!(rig.until("Job@fail", State::Done).await.attempt, 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_hangs_is_ended_at_its_timeout_and_renewed_until_then() {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "hang"), |ctx: TaskContext| async move {
        if ctx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let rig = start("engine.timeout = '90s'\nengine.lease = '10s'", handlers);
    rig.due_now("Job@hang").await;
    let record = rig.until("Job@hang", State::Waiting).await;
    assert_eq!(
        (record.attempt, record.crashes, record.last_error.as_deref()),
        (1, 0, Some("timed out after 1 min 30 s"))
    );
    assert!(rig.ledger.clock().now().since(START) >= Duration::from_secs(90));
    assert_eq!(rig.until("Job@hang", State::Done).await.attempt, 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_daemons_is_buried_without_running() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let key = TaskKey::parse("Job@count").unwrap();
    let arming = ledger.create(&[NewTask::new(key, START)]).await.unwrap()[0].arming;
    let dying = Claimant {
        daemon: "dies".into(),
        lease: Duration::from_secs(1),
    };
    for _ in 0..3 {
        assert_eq!(ledger.claim(&[arming], &dying).await.unwrap().len(), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    let count = Arc::default();
    let rig = start_on(ledger, "", counting(&count));
    let record = rig.until("Job@count", State::Dead).await;
    assert_eq!(
        record.last_error.as_deref(),
        Some("poison: 3 leases ran out while it was running")
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
    rig.stop().await;
}
