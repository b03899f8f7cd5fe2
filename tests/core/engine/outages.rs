//! Outages of the ledger, and statements that it refuses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Claimant, Claims, Settled, Settlement};
use lapsed::task::{State, Verdict};
use lapsed::{Handlers, TaskContext};
use tokio::time::Instant;

use crate::engine::faults::{Faults, refused, unavailable};
use crate::engine::rig::{START, counting, held, overdue, start_with, until};

#[tokio::test(start_paused = true)]
async fn a_won_claim_runs_if_the_other_tasks_cannot_be_looked_up() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 2).await;
    let faults = Arc::new(Faults::default());
    *faults.locked_row.lock().unwrap() = Some(armings[1].row);
    faults.look_up_fails.store(true, Ordering::SeqCst);
    let rig = start_with(ledger, faults, "", counting(&Arc::default()));
    let record = rig.until("Job@count@0", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_claimed_is_not_swept_without_a_pause() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 1).await;
    let faults = Arc::new(Faults::default());
    *faults.locked_row.lock().unwrap() = Some(armings[0].row);
    let count = Arc::default();
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let scans = faults.scans.load(Ordering::SeqCst);
    assert!(scans < 100, "{scans} scans in 10 s");
    *faults.locked_row.lock().unwrap() = None;
    rig.until("Job@count@0", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sweeping_goes_on_after_a_settlement_was_refused_in_an_outage() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&Arc::default()));
    rig.tasks
        .create(("Job", "count", ["1"]), Duration::from_secs(3))
        .await
        .unwrap();
    let errors = [unavailable(), refused(), unavailable(), refused()];
    faults.settle_errors.lock().unwrap().extend(errors);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(faults.settle_errors.lock().unwrap().is_empty());
    rig.due_now("Job@count@2").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.record("Job@count@2").await.state, State::Done);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_written_singly_is_tried_again_after_an_outage() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let errors = [refused(), unavailable(), unavailable()];
    faults.settle_errors.lock().unwrap().extend(errors);
    let count = Arc::default();
    let rig = start_with(ledger, faults, "", counting(&count));
    rig.due_now("Job@count@1").await;
    let record = rig.until("Job@count@1", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_settlement_is_refused_for_minutes_is_not_run_again() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let errors = std::iter::repeat_with(refused).take(400);
    faults.settle_errors.lock().unwrap().extend(errors);
    let count = Arc::default();
    let config = "engine.lease = '10s'";
    let rig = start_with(ledger, Arc::clone(&faults), config, counting(&count));
    let status = rig.status.clone();
    rig.due_now("Job@count@1").await;
    until("the refusal is known", async || !status.ledger_answers()).await;
    let trouble = status.ledger_trouble();
    assert_eq!(
        trouble.as_deref(),
        Some("could not settle runs: the ledger refuses it, see the log")
    );
    let record = rig.until("Job@count@1", State::Done).await;
    assert!(faults.settle_errors.lock().unwrap().is_empty());
    assert_eq!((record.attempt, record.crashes), (1, 0));
    until("it is ready again", async || status.ledger_answers()).await;
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_refused_delays_no_other() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 60).await;
    let faults = Arc::new(Faults::default());
    *faults.refused_row.lock().unwrap() = Some(armings[17].row);
    let count = Arc::default();
    let rig = start_with(ledger, Arc::clone(&faults), "", counting(&count));
    rig.until_done(59).await;
    rig.due_now("Job@count@later").await;
    rig.until_done(60).await;
    // Longer than its lease.
    tokio::time::sleep(Duration::from_secs(300)).await;
    *faults.refused_row.lock().unwrap() = None;
    rig.until_done(61).await;
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 61);
}

#[tokio::test(start_paused = true)]
async fn runs_that_cannot_be_settled_are_bounded() {
    let ledger = Arc::new(MemoryLedger::new(START));
    overdue(&ledger, 1_000).await;
    let faults = Arc::new(Faults::default());
    faults.settle_refused.store(true, Ordering::SeqCst);
    let count = Arc::default();
    let config = "engine.concurrency = 4";
    let rig = start_with(ledger, Arc::clone(&faults), config, counting(&count));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let ran = count.load(Ordering::SeqCst);
    assert!((100..=540).contains(&ran), "{ran} runs wait to be settled");
    faults.settle_refused.store(false, Ordering::SeqCst);
    rig.until_done(1_000).await;
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 1_000, "each ran once");
}

#[tokio::test(start_paused = true)]
async fn a_success_whose_result_is_refused_is_a_success() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    faults.results_unfit.store(true, Ordering::SeqCst);
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "count"),
        |task: TaskContext, _: Vec<String>| async move {
            task.keep_result(serde_json::json!({"number": 1}))?;
            Ok(())
        },
    );
    let rig = start_with(ledger, faults, "", handlers);
    rig.due_now("Job@count@1").await;
    let record = rig.until("Job@count@1", State::Done).await;
    assert_eq!((record.attempt, record.result), (1, None));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_always_locks_its_own_row_ends() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    faults.renewals_locked.store(true, Ordering::SeqCst);
    let (started, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let handlers = held(started, &Arc::default());
    let rig = start_with(ledger, faults, "engine.lease = '10s'", handlers);
    rig.due_now("Job@held").await;
    let record = rig.until("Job@held", State::Dead).await;
    assert_eq!(record.crashes, 3);
    rig.stop().await;
    let mut count = 0;
    while runs.try_recv().is_ok() {
        count += 1;
    }
    assert_eq!(count, 4, "once for nothing, then three crashes");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_locked_out_once_counts_nothing() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    faults.renewals_locked.store(true, Ordering::SeqCst);
    let (started, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let go = Arc::default();
    let handlers = held(started, &go);
    let config = "engine.lease = '10s'";
    let rig = start_with(ledger, Arc::clone(&faults), config, handlers);
    rig.due_now("Job@held").await;
    runs.recv().await.unwrap();
    runs.recv().await.unwrap();
    faults.renewals_locked.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    go.notify_one();
    let record = rig.until("Job@held", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    rig.stop().await;
}

/// An outage in which no statement of this daemon fails: each waits for its connection until the ledger is back.
#[tokio::test(start_paused = true)]
async fn after_an_outage_that_statements_waited_out_the_owner_gives_back_its_lease_first() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 1).await;
    let owner = Claimant {
        daemon: "other:1".into(),
        lease: Duration::from_secs(4),
    };
    let claim = ledger.claim(&armings, &owner).await.unwrap().remove(0);
    let faults = Arc::new(Faults::default());
    let config = "engine.lease = '4s'";
    let rig = start_with(
        ledger,
        Arc::clone(&faults),
        config,
        counting(&Arc::default()),
    );
    until("the lease was seen", async || {
        faults.lease_scans.load(Ordering::SeqCst) > 0 && faults.scans.load(Ordering::SeqCst) > 0
    })
    .await;
    let back = Instant::now() + Duration::from_secs(10);
    *faults.silent_until.lock().unwrap() = Some(back);
    tokio::time::sleep_until(back + Duration::from_secs(1)).await;
    let settlement = Settlement {
        lease: claim.lease,
        verdict: Verdict::Release,
    };
    let settled = rig.ledger.settle(&[settlement]).await.unwrap();
    assert_eq!(settled, [Settled::Applied]);
    let record = rig.until("Job@count@0", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    rig.stop().await;
}

/// A full disk, a server that has become a replica.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_can_only_be_read_is_away_until_it_takes_writes() {
    let faults = Arc::new(Faults::default());
    let config = "engine.lease = '4s'";
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_with(
        ledger,
        Arc::clone(&faults),
        config,
        counting(&Arc::default()),
    );
    until("it is ready", async || rig.status.ledger_answers()).await;
    faults.read_only.store(true, Ordering::SeqCst);
    rig.due_now("Job@count@1").await;
    until("a claim has failed", async || !rig.status.ledger_answers()).await;
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!rig.status.ledger_answers(), "it was only read");
    }
    faults.read_only.store(false, Ordering::SeqCst);
    let record = rig.until("Job@count@1", State::Done).await;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    until("it is ready again", async || rig.status.ledger_answers()).await;
    rig.stop().await;
}
