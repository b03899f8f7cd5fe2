//! Probes: how a timer without a server learns of tasks that another process makes due now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Ledger as _, NewTask, Producer as _};
use lapsed::task::{State, TaskKey, UnixMs};
use tokio::time::{Instant, sleep};

use crate::engine::faults::Faults;
use crate::engine::rig::{Rig, START, counting, held, seconds, start, start_with, until};

/// Only a probe finds a task that is due when it appears in the ledger.
const PROBES_ALONE: &str =
    "timer = 'ledger_poll'\nsweep.enabled = false\nledger_poll.probe = '10ms'";

/// Another process creates a task: the timer of this one does not hear of it.
async fn create_elsewhere(rig: &Rig, name: &str, in_ms: i64) {
    let due = UnixMs(rig.ledger.clock().now().0 + in_ms);
    let task = NewTask::new(TaskKey::parse(name).unwrap(), due);
    rig.ledger.create(&[task]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_another_process_makes_due_now_starts_at_the_next_probe() {
    let runs = Arc::<AtomicU32>::default();
    let rig = start(PROBES_ALONE, counting(&runs));
    sleep(seconds(30)).await;
    // Also one that is written late, and one with a delay shorter than the interval of the look-ahead.
    for (name, in_ms) in [
        ("Job@count@now", 0),
        ("Job@count@late", -500),
        ("Job@count@soon", 300),
    ] {
        create_elsewhere(&rig, name, in_ms).await;
        let created = Instant::now();
        rig.until(name, State::Done).await;
        let expected = 30 + u128::try_from(in_ms.max(0)).unwrap();
        let took = created.elapsed().as_millis();
        assert!(took <= expected, "{name}: {took} ms");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_probes_such_a_task_waits_for_the_sweep() {
    for settings in [
        "timer = 'ledger_poll'\nledger_poll.probe = 'none'",
        // A timer with a server hears of tasks by itself.
        "timer = 'key_expiry'\nledger_poll.probe = '10ms'",
    ] {
        let faults = Arc::<Faults>::default();
        let runs = Arc::default();
        let ledger = Arc::new(MemoryLedger::new(START));
        let rig = start_with(ledger, Arc::clone(&faults), settings, counting(&runs));
        sleep(seconds(30)).await;
        create_elsewhere(&rig, "Job@count@1", 0).await;
        rig.until("Job@count@1", State::Done).await;
        assert_eq!(faults.near_scans.load(Ordering::SeqCst), 0, "{settings}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_without_change_detection_is_probed_once_per_pass() {
    let faults = Arc::<Faults>::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let runs = Arc::<AtomicU32>::default();
    *faults.unsignalled_changes.lock().unwrap() = Some(0);
    let rig = start_with(ledger, Arc::clone(&faults), PROBES_ALONE, counting(&runs));
    sleep(seconds(30)).await;
    let scans = || faults.near_scans.load(Ordering::SeqCst);
    assert!((25..=35).contains(&scans()), "{}", scans());
    // At any time between two passes, and due before, at or after the commit.
    for (number, in_ms) in (1..=40).zip([0, -500, 300, 700].into_iter().cycle()) {
        let name = format!("Job@count@{number}");
        create_elsewhere(&rig, &name, in_ms).await;
        *faults.unsignalled_changes.lock().unwrap() = Some(number);
        let created = Instant::now();
        rig.until(&name, State::Done).await;
        let expected = 100 + u128::try_from(in_ms.max(0)).unwrap();
        let took = created.elapsed().as_millis();
        assert!(took <= expected, "{name}: {took} ms");
    }
    // The ledger goes on to tell of no change.
    sleep(seconds(3)).await;
    let before = scans();
    sleep(seconds(30)).await;
    assert!(
        (25..=35).contains(&(scans() - before)),
        "{}",
        scans() - before
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_task_is_not_signalled_at_each_probe() {
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let go = Arc::default();
    let rig = start(PROBES_ALONE, held(started, &go));
    create_elsewhere(&rig, "Job@held", 0).await;
    starts.recv().await.unwrap();
    sleep(seconds(3)).await;
    assert!(
        rig.metric("lapsed_signals_total{source=\"nudge\"} 1"),
        "{}",
        rig.parts.metrics.render()
    );
    go.notify_one();
    rig.until("Job@held", State::Done).await;
    assert!(starts.try_recv().is_err());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn probes_that_fail_become_rare_and_go_on_after_the_outage() {
    let faults = Arc::<Faults>::default();
    let ledger = Arc::new(MemoryLedger::new(START));
    let runs = Arc::default();
    let rig = start_with(ledger, Arc::clone(&faults), PROBES_ALONE, counting(&runs));
    let scans = || faults.near_scans.load(Ordering::SeqCst);
    until("it probes", async || scans() > 200).await;
    faults.scan_near_fails.store(true, Ordering::SeqCst);
    let before = scans();
    sleep(seconds(20)).await;
    assert!(
        (15..=25).contains(&(scans() - before)),
        "{}",
        scans() - before
    );
    faults.scan_near_fails.store(false, Ordering::SeqCst);
    sleep(seconds(2)).await;
    create_elsewhere(&rig, "Job@count@1", 0).await;
    rig.until("Job@count@1", State::Done).await;
    rig.stop().await;
}
