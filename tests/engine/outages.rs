//! What the ledger refuses or cannot answer for a while.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::task::State;

use crate::faulty::{Faults, refused, unavailable};
use crate::rig::{START, counting, overdue, start_with};

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_won_is_run_though_the_others_cannot_be_looked_up() {
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
        .create("Job", "count", ["1"], Duration::from_secs(3))
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
