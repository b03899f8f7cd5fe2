//! Engines with other members on the same ledger: claims one at a time, sweeps without own buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::Handlers;
use lapsed::ledger::Ledger;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::membership::{
    Capabilities, Heartbeat, LIFETIME, MemberId, Membership, REFRESH, Readiness,
};
use lapsed::task::{State, TaskKey, UnixMs};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::engine::faults::Faults;
use crate::engine::rig::{Rig, START, counting, held, seconds, start_with, until};

/// An engine among other members, which are ready, can run tasks of `handler`, and do nothing.
async fn start_among(
    others: u64,
    handler: &str,
    faults: &Arc<Faults>,
    config: &str,
    handlers: Handlers,
) -> Rig {
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_with(ledger, Arc::clone(faults), config, handlers);
    let capabilities = capabilities(handler);
    let (membership, ledger) = (Arc::clone(&rig.parts.membership), Arc::clone(&rig.ledger));
    tokio::spawn(async move {
        loop {
            for id in 0..others {
                beat(&*membership, id, &capabilities, ledger.clock().now()).await;
            }
            sleep(REFRESH).await;
        }
    });
    until("the others are seen", async || {
        rig.status.members() == others as usize + 1
    })
    .await;
    rig
}

fn capabilities(handler: &str) -> Capabilities {
    Capabilities {
        handlers: vec![handler.to_owned()],
        ..Capabilities::default()
    }
}

/// Sends a heartbeat for a member; returns those of all members.
async fn beat(
    membership: &dyn Membership,
    id: u64,
    capabilities: &Capabilities,
    now: UnixMs,
) -> Vec<Heartbeat> {
    let heartbeat = Heartbeat {
        id: MemberId(id),
        name: "silent".into(),
        version: String::new(),
        since: UnixMs(0),
        until: now.plus(LIFETIME),
        readiness: Readiness::Ready,
        listening: false,
        expired_only: false,
        forwards: false,
        timer: String::new(),
        capabilities: capabilities.clone(),
        idle_since: Vec::new(),
        queues: Default::default(),
    };
    membership.exchange(&heartbeat, now).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn from_three_members_on_fresh_claims_go_one_at_a_time() {
    for (others, at_once) in [(1, 2), (2, 1), (3, 1)] {
        let faults = Arc::new(Faults::default());
        let count = Arc::new(AtomicU32::new(0));
        let rig = start_among(others, "Other@run", &faults, "", counting(&count)).await;
        // Several tasks fall due while one claim waits for its answer.
        *faults.claim_answer_takes.lock().unwrap() = Duration::from_millis(20);
        for n in 0..200 {
            let key = TaskKey::build("Job", "count", [n.to_string()]).unwrap();
            let delay = Duration::from_millis(3_000 + 5 * n);
            rig.tasks.create(key, delay).await.unwrap();
        }
        rig.until_done(200).await;
        let most = faults.claims_at_once_max.load(Ordering::SeqCst);
        assert_eq!(most, at_once, "claims at once among {} members", others + 1);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_gets_no_answer_does_not_hold_up_the_next() {
    let faults = Arc::new(Faults::default());
    let count = Arc::new(AtomicU32::new(0));
    let rig = start_among(2, "Other@run", &faults, "", counting(&count)).await;
    *faults.claim_answer_takes.lock().unwrap() = seconds(20);
    rig.due_now("Job@count@1").await;
    until("the first claim is on its way", async || {
        faults.claims_under_way.load(Ordering::SeqCst) == 1
    })
    .await;
    *faults.claim_answer_takes.lock().unwrap() = Duration::ZERO;
    rig.due_now("Job@count@2").await;
    rig.until("Job@count@2", State::Done).await;
    assert_eq!(
        faults.claims_under_way.load(Ordering::SeqCst),
        1,
        "the first claim still waits for its answer"
    );
    rig.until("Job@count@1", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slots_that_wait_for_the_ledger_do_not_make_a_daemon_full() {
    let faults = Arc::new(Faults::default());
    let count = Arc::new(AtomicU32::new(0));
    let config = "engine.concurrency = 4";
    let rig = start_among(1, "Other@run", &faults, config, counting(&count)).await;
    // Each claim takes all slots, and no slot becomes free until its answer.
    *faults.claim_answer_takes.lock().unwrap() = seconds(2);
    for n in 0..40 {
        rig.due_now(&format!("Job@count@{n}")).await;
    }
    let capabilities = capabilities("Other@run");
    let mut looks = 0;
    while count.load(Ordering::SeqCst) < 40 {
        let now = rig.ledger.clock().now();
        let heartbeats = beat(&*rig.parts.membership, 0, &capabilities, now).await;
        let own = heartbeats.iter().find(|beat| beat.id != MemberId(0));
        assert_eq!(own.unwrap().readiness, Readiness::Ready);
        looks += 1;
        sleep(REFRESH / 2).await;
    }
    assert!(looks > 20, "{looks}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sweep_of_no_buckets_sends_no_statement() {
    let faults = Arc::new(Faults::default());
    let (started, mut runs) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let handlers = held(started, &go);
    let rig = start_among(1, "Job@held", &faults, "engine.concurrency = 1", handlers).await;
    let sweeps = || faults.overdue_scans.load(Ordering::SeqCst);
    let swept = sweeps();
    until("it sweeps", async || sweeps() > swept).await;

    rig.due_now("Job@held").await;
    runs.recv().await.unwrap();
    let capabilities = capabilities("Job@held");
    until("the others can read that it is full", async || {
        let heartbeats = beat(
            &*rig.parts.membership,
            0,
            &capabilities,
            rig.ledger.clock().now(),
        )
        .await;
        heartbeats
            .iter()
            .any(|heartbeat| heartbeat.readiness == Readiness::Full)
    })
    .await;
    // Until the others have read so, it still owns its buckets.
    sleep(3 * REFRESH).await;
    let swept = sweeps();
    sleep(seconds(20)).await;
    assert_eq!(sweeps(), swept, "the others own every bucket");

    go.notify_one();
    until("it sweeps again", async || sweeps() > swept).await;
    rig.stop().await;
}
