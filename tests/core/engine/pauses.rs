//! Paused and held tasks do not start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Ledger as _, NewTask, Pauses as _, Producer};
use lapsed::task::{Due, Overlap, Scope, State, TaskKey, UnixMs};
use lapsed::{Recurrence, Task};

use crate::engine::faults::Faults;
use crate::engine::rig::{START, counting, start, start_on, start_with, until};

#[tokio::test(start_paused = true)]
async fn no_task_starts_while_the_pauses_are_unknown() {
    let faults = Arc::<Faults>::default();
    faults.pauses_fail.store(true, Ordering::SeqCst);
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_with(
        Arc::clone(&ledger),
        Arc::clone(&faults),
        "",
        counting(&count),
    );
    let failed = rig.running.await.unwrap().unwrap_err();
    assert_eq!(failed.to_string(), "ledger refused: no");

    faults.pauses_fail.store(false, Ordering::SeqCst);
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    let create = async |number: u32| {
        let made = rig.tasks.create(("Job", "count", [number]), Duration::ZERO);
        made.await.unwrap();
    };
    create(1).await;
    rig.until("Job@count@1", State::Done).await;

    // The known pauses are trusted for a short time.
    faults.pauses_fail.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    create(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(
        rig.metric("lapsed_claims_total{result=\"won\"} 1"),
        "no claim either"
    );
    faults.pauses_fail.store(false, Ordering::SeqCst);
    rig.until("Job@count@2", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_paused_during_its_claim_is_released() {
    let faults = Arc::<Faults>::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    *faults.claim_answer_takes.lock().unwrap() = Duration::from_secs(3);
    rig.due_now("Job@count@1").await;
    rig.until("Job@count@1", State::Running).await;
    let job = Scope::class("Job").unwrap();
    rig.tasks.pause(&job, "test", "").await.unwrap();
    let record = rig.until("Job@count@1", State::Pending).await;
    assert_eq!((record.attempt, record.crashes), (0, 0));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    rig.tasks.resume(&job).await.unwrap().unwrap();
    let record = rig.until("Job@count@1", State::Done).await;
    assert_eq!(record.attempt, 1);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_paused_during_its_claim_is_not_handed_on() {
    let faults = Arc::<Faults>::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    *faults.claim_answer_takes.lock().unwrap() = Duration::from_secs(3);
    let rule = Recurrence::every(Duration::from_secs(10)).unwrap();
    let task = Task::new("Job", "count", [1]).unwrap();
    let made = rig
        .tasks
        .create_recurring(task, rule.overlap(Overlap::Allow));
    let due = made.await.unwrap().due();
    rig.until("Job@count@1", State::Running).await;
    let job = Scope::class("Job").unwrap();
    rig.tasks.pause(&job, "test", "").await.unwrap();
    let record = rig.until("Job@count@1", State::Pending).await;
    assert_eq!(record.due, due);
    *faults.claim_answer_takes.lock().unwrap() = Duration::ZERO;
    rig.tasks.resume(&job).await.unwrap().unwrap();
    until("the series has gone on", async || {
        rig.record("Job@count@1").await.due != due
    })
    .await;
    let instance = format!("Job@count@1@~{}", due.0);
    rig.until(&instance, State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_starts_a_sweep_at_once() {
    let count = Arc::new(AtomicU32::new(0));
    // Left alone, the sweep would come much later.
    let rig = start("sweep.interval = '1h'", counting(&count));
    let job = Scope::method("Job", "count").unwrap();
    rig.tasks.pause(&job, "test", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    rig.due_now("Job@count@1").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    rig.tasks.resume(&job).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_by_itself_and_its_tasks_start() {
    let count = Arc::new(AtomicU32::new(0));
    // Left alone, the sweep would come much later.
    let rig = start("sweep.interval = '1d'", counting(&count));
    let job = Scope::class("Job").unwrap();
    let end = Due::after(Duration::from_secs(3_600)).unwrap();
    let paused = rig.tasks.pause_until(&job, end, "test", "").await.unwrap();
    let until = paused.pause.until.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(rig.metric("lapsed_pauses 1"));
    let rule = Recurrence::every(Duration::from_secs(600)).unwrap();
    let task = Task::new("Job", "count", ["series"]).unwrap();
    rig.tasks.create_recurring(task, rule).await.unwrap();
    rig.due_now("Job@count@1").await;
    let left = until.since(rig.ledger.clock().now());
    tokio::time::sleep(left - Duration::from_millis(1)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(rig.metric("lapsed_pauses 0"));
    rig.until("Job@count@1", State::Done).await;
    // The series has left out the occurrences of that time, and goes on.
    let next = rig.record("Job@count@series").await.due;
    assert!(next > until, "{next}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_comes_while_no_daemon_runs_is_one() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let job = Scope::class("Job").unwrap();
    let end = Due::after(Duration::from_secs(3_600)).unwrap();
    ledger.pause(&job, Some(end), "test", "").await.unwrap();
    let due = NewTask::new(TaskKey::build("Job", "count", ["1"]).unwrap(), START);
    ledger.create(&[due]).await.unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_on(Arc::clone(&ledger), "", counting(&count));
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 0);

    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let rig = start_on(ledger, "", counting(&count));
    rig.until("Job@count@1", State::Done).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_holds_overdue_tasks_runs_later_ones() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let old = |name: &str| {
        let due = UnixMs(START.0 - 1_000);
        NewTask::new(TaskKey::build("Job", "count", [name]).unwrap(), due)
    };
    ledger.create(&[old("a"), old("b")]).await.unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_on(ledger, "engine.hold_overdue = true", counting(&count));
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.due_now("Job@count@new").await;
    rig.until("Job@count@new", State::Done).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    rig.tasks
        .resume_held(&Scope::EVERYTHING, "test")
        .await
        .unwrap();
    rig.until("Job@count@a", State::Done).await;
    rig.until("Job@count@b", State::Done).await;
    assert_eq!(count.load(Ordering::SeqCst), 3);
    rig.stop().await;
}
