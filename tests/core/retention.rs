//! Retention in the ledger in memory, whose clock stands still: to the millisecond, and page by page.

use std::time::Duration;

use lapsed::UnixMs;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{NewTask, Producer as _, Prune, Retention as _};
use lapsed::task::{State, TaskKey, Verdict};
use tokio::time::advance;

use crate::ledger_conformance::rig::{LEASE, SHORT_LEASE, bury, cancel, claim, create, settle};

const START: UnixMs = UnixMs(1_795_291_200_500);
const HOUR: Duration = Duration::from_secs(3_600);
const MS: Duration = Duration::from_millis(1);

fn key(name: impl ToString) -> TaskKey {
    TaskKey::build("Retention", "run", [name.to_string()]).unwrap()
}

/// Cancels tasks that fell due then, a millisecond after each other, and moves them to the archive.
async fn archive_cancelled(ledger: &MemoryLedger, first_due: UnixMs, count: i64) {
    let due = |n| UnixMs(first_due.0 + n);
    let tasks = (0..count).map(|n| NewTask::new(key(n), due(n)));
    ledger.create(&tasks.collect::<Vec<_>>()).await.unwrap();
    let keys: Vec<TaskKey> = (0..count).map(key).collect();
    ledger.cancel(&keys).await.unwrap();
    archive(ledger, State::Cancelled).await;
}

/// Archives the tasks of a state that have finished.
async fn archive(ledger: &MemoryLedger, state: State) {
    let mut prune = Prune {
        state,
        age: Some(Duration::ZERO),
        surplus: None,
        after: None,
        limit: 10_000,
        archive: true,
        dry_run: false,
    };
    loop {
        prune.after = ledger.prune(&prune).await.unwrap().next;
        if prune.after.is_none() {
            return;
        }
    }
}

/// The number of archived rows that one call deletes, and whether there may be more.
async fn expire(ledger: &MemoryLedger) -> (u64, bool) {
    let done = ledger.maintain_archive(Some(HOUR)).await.unwrap();
    (done.rows, done.is_behind)
}

#[tokio::test(start_paused = true)]
async fn archived_rows_of_each_state_are_deleted_once_they_are_old_enough() {
    let ledger = MemoryLedger::new(START);
    for (name, verdict) in [("done", Verdict::Complete), ("dead", bury())] {
        let arming = create(&ledger, &key(name), 0).await;
        let claimed = claim(&ledger, arming, LEASE).await.unwrap();
        settle(&ledger, &claimed, verdict).await;
    }
    create(&ledger, &key("cancelled"), 0).await;
    cancel(&ledger, &key("cancelled")).await;
    for state in [State::Done, State::Dead, State::Cancelled] {
        archive(&ledger, state).await;
    }
    advance(HOUR - MS).await;
    assert_eq!(expire(&ledger).await, (0, false));
    advance(MS).await;
    // It has not looked for more.
    assert_eq!(expire(&ledger).await, (3, true));
    assert_eq!(expire(&ledger).await, (0, false));
}

#[tokio::test(start_paused = true)]
async fn old_rows_of_the_archive_are_deleted_a_page_in_each_call() {
    let ledger = MemoryLedger::new(START);
    archive_cancelled(&ledger, UnixMs(START.0 - 501), 501).await;
    advance(2 * HOUR).await;
    let mut deleted = Vec::new();
    while let (rows @ 1.., _) = expire(&ledger).await {
        deleted.push(rows);
    }
    assert_eq!(deleted, [500, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_old_row_of_the_archive_is_found_behind_a_page_of_rows_that_finished_late() {
    let ledger = MemoryLedger::new(START);
    let old = UnixMs(START.0 - 1_000);
    ledger
        .create(&[NewTask::new(key("old"), old)])
        .await
        .unwrap();
    cancel(&ledger, &key("old")).await;
    archive(&ledger, State::Cancelled).await;
    advance(2 * HOUR).await;
    archive_cancelled(&ledger, UnixMs(START.0 - 10_000), 500).await;
    assert_eq!(expire(&ledger).await, (1, false));
}

#[tokio::test(start_paused = true)]
async fn cancelled_runs_whose_lease_has_run_out_are_ended_after_a_place() {
    let ledger = MemoryLedger::new(START);
    let mut places = Vec::new();
    for (name, due_ms) in [("1", -3), ("2", -2), ("3", -1)] {
        let arming = create(&ledger, &key(name), due_ms).await;
        claim(&ledger, arming, SHORT_LEASE).await.unwrap();
        cancel(&ledger, &key(name)).await;
        places.push((arming.due, arming.row));
    }
    let end = async |after| ledger.end_cancelled(after).await.unwrap();
    advance(SHORT_LEASE).await;
    assert_eq!(end(None).await, (0, None));
    advance(MS).await;
    assert_eq!(end(Some(places[1])).await, (1, None));
    assert_eq!(end(None).await, (2, None));
}
