//! Runs and claims of a stopping engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use lapsed::engine::EngineError;
use lapsed::ledger::Admin;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::task::{State, TaskKey};
use lapsed::timer::{Alarm, AlarmStore, ArmMode, Armed, EngineSink, Remaining, Timer, TimerError};
use lapsed::{Config, Engine, Handlers, Recurrence, Task};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::engine::faults::{Faults, unavailable};
use crate::engine::rig::{
    START, counting, held, overdue, parts, record, start, start_on, start_with, until,
};

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_waits_for_runs() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let rig = start("", held(started, &go));
    rig.due_now("Job@held").await;
    runs.recv().await.unwrap();
    let letting_go = Arc::clone(&go);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        letting_go.notify_one();
    });
    let ledger = rig.stop().await;
    let record = record(&ledger, "Job@held").await;
    assert_eq!(record.state, State::Done);
}

/// Sends when it is dropped.
struct OnDrop(mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_dropped_ends_its_runs() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let mut handlers = Handlers::new();
    handlers.on(("Job", "endless"), move || {
        let on_drop = OnDrop(dropped.clone());
        started.send(()).unwrap();
        async move {
            let _on_drop = on_drop;
            std::future::pending().await
        }
    });
    let rig = start("", handlers);
    rig.due_now("Job@endless").await;
    starts.recv().await.unwrap();
    rig.running.abort();
    assert!(rig.running.await.unwrap_err().is_cancelled());
    // Long before its timeout of an hour.
    let ended = tokio::time::timeout(Duration::from_secs(10), drops.recv());
    assert_eq!(ended.await, Ok(Some(())));
}

/// The task is pending, and no attempt of it was counted.
async fn assert_released(ledger: &MemoryLedger, key: &str) {
    let record = record(ledger, key).await;
    assert_eq!(
        (record.state, record.attempt, record.crashes),
        (State::Pending, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_the_drain_is_released_without_counting() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let rig = start(
        "engine.drain_timeout = '3s'",
        held(started, &Arc::default()),
    );
    rig.due_now("Job@held").await;
    runs.recv().await.unwrap();
    let ledger = rig.stop().await;
    assert_released(&ledger, "Job@held").await;
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_that_a_stop_interrupted_is_run_again_however_late() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let rig = start(
        "engine.drain_timeout = '3s'",
        held(started, &Arc::default()),
    );
    let hourly = Recurrence::every(Duration::from_secs(3_600)).unwrap();
    let task = Task::new("Job", "held", [""; 0]).unwrap();
    rig.tasks.create_recurring(task, hourly).await.unwrap();
    let interrupted = runs.recv().await.unwrap();
    let ledger = rig.stop().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (started, mut runs) = mpsc::unbounded_channel();
    let rig = start_on(
        ledger,
        "engine.drain_timeout = '3s'",
        held(started, &Arc::default()),
    );
    assert_eq!(runs.recv().await.unwrap(), interrupted);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_during_a_stop_is_released_without_counting() {
    let ledger = Arc::new(MemoryLedger::new(START));
    overdue(&ledger, 3).await;
    let faults = Arc::new(Faults::default());
    *faults.claim_answer_takes.lock().unwrap() = Duration::from_secs(2);
    let count = Arc::default();
    let rig = start_with(ledger, faults, "", counting(&count));
    until("all are claimed", async || {
        rig.ledger.stats().await.unwrap().running == 3
    })
    .await;
    let ledger = rig.stop().await;
    assert_released(&ledger, "Job@count@2").await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_meets_a_lock_while_stopping_is_written_all_the_same() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let faults = Arc::new(Faults::default());
    let rig = start_with(
        Arc::new(MemoryLedger::new(START)),
        Arc::clone(&faults),
        "engine.drain_timeout = '1s'",
        held(started, &Arc::default()),
    );
    rig.due_now("Job@held").await;
    runs.recv().await.unwrap();
    faults.settle_locked.store(4, Ordering::SeqCst);
    let ledger = rig.stop().await;
    assert_released(&ledger, "Job@held").await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_an_outage_ends() {
    let faults = Arc::new(Faults::default());
    let ledger = Arc::new(MemoryLedger::new(START));
    overdue(&ledger, 50).await;
    let outage = std::iter::repeat_with(unavailable).take(100_000);
    faults.settle_errors.lock().unwrap().extend(outage);
    let config = "engine.concurrency = 1\nengine.drain_timeout = '1s'";
    let rig = start_with(ledger, faults, config, counting(&Arc::default()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stopped = tokio::time::timeout(Duration::from_secs(30), rig.stop()).await;
    assert!(stopped.is_ok(), "still waiting for its runs");
}

/// A timer that panics.
struct Broken;

#[async_trait]
impl AlarmStore for Broken {
    async fn arm(&self, _: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        Ok(Armed::default())
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Missing; keys.len()])
    }
}

#[async_trait]
impl Timer for Broken {
    async fn run(&self, _: Arc<dyn EngineSink>, _: CancellationToken) {
        panic!("a mistake");
    }

    fn expect(&self, _: Vec<Alarm>) {}
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_part_stops_the_engine() {
    let config = Config::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let parts = parts(ledger, Arc::new(Broken), Handlers::new(), &config);
    let engine = Engine::with_parts(parts, &config);
    let ended = engine.run_until(std::future::pending()).await;
    assert!(matches!(ended, Err(EngineError::Broken)), "{ended:?}");
}
