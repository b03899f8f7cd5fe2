//! Tasks of dead daemons run again as soon as that is known to be safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::Handlers;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Claim, Claimant, Claims, Ledger, NewTask, Producer, Scans};
use lapsed::task::{Arming, State, TaskKey};
use lapsed::timer::Alarm;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::engine::faults::Faults;
use crate::engine::rig::{
    Rig, START, counting, held, overdue, record, seconds, start_on, start_with,
};

const LEASE: Duration = Duration::from_secs(30);

/// The name that an engine of this process gives itself.
async fn own_name() -> String {
    let (started, mut starts) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let rig = crate::engine::rig::start("", held(started, &go));
    rig.due_now("Job@held").await;
    starts.recv().await.unwrap();
    let name = rig.record("Job@held").await.daemon;
    go.notify_one();
    rig.until("Job@held", State::Done).await;
    rig.stop().await;
    name
}

/// The name of a daemon that had the process id of this process before it.
async fn dead_name() -> String {
    let name = own_name().await;
    let (place, start) = name.rsplit_once('.').expect("its process is known");
    format!("{place}.{}", start.parse::<u64>().unwrap() - 1)
}

async fn claim(ledger: &MemoryLedger, armings: &[Arming], daemon: &str) -> Vec<Claim> {
    let by = Claimant {
        daemon: daemon.to_owned(),
        lease: LEASE,
    };
    ledger.claim(armings, &by).await.unwrap()
}

/// Time that the daemon took until `count` tasks were done.
async fn until_done(rig: &Rig, count: u64) -> Duration {
    rig.until_done(count).await;
    rig.ledger.clock().now().since(START)
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_daemon_whose_process_is_gone_run_again_at_once() {
    let dead = dead_name().await;
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 50).await;
    assert_eq!(claim(&ledger, &armings, &dead).await.len(), 50);
    let count = Arc::default();
    let rig = start_on(Arc::clone(&ledger), "", counting(&count));
    let took = until_done(&rig, 50).await;
    assert!(took < seconds(2), "{took:?}");
    let again = record(&ledger, "Job@count@7").await;
    assert_eq!((again.attempt, again.crashes), (2, 1));
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 50);
}

#[tokio::test(start_paused = true)]
async fn an_arming_behind_a_dead_daemons_run_starts_when_due() {
    let dead = dead_name().await;
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 5).await;
    let claims = claim(&ledger, &armings, &dead).await;
    let anew = claims.into_iter().zip(1..).map(|(claim, n)| {
        let due = START.plus(seconds(4 * n));
        NewTask::new(claim.key, due)
    });
    ledger.create(&anew.collect::<Vec<_>>()).await.unwrap();
    let rig = start_on(Arc::clone(&ledger), "", counting(&Arc::default()));
    for n in 1..=5 {
        let took = until_done(&rig, n).await;
        let due = seconds(4 * n);
        assert!(took >= due && took < due + seconds(2), "{n}: {took:?}");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_possibly_live_daemon_waits_for_its_lease() {
    let (own, dead) = (own_name().await, dead_name().await);
    // Frozen, or of another engine of this process; of an old version; in another container; on another host.
    let (host_and_pid, proof) = dead.split_once('/').unwrap();
    let elsewhere = format!("{host_and_pid}/000000000000.{}", &proof[13..]);
    for daemon in [&own, host_and_pid, &elsewhere, ""] {
        let ledger = Arc::new(MemoryLedger::new(START));
        let armings = overdue(&ledger, 5).await;
        claim(&ledger, &armings, daemon).await;
        let rig = start_on(Arc::clone(&ledger), "", counting(&Arc::default()));
        let took = until_done(&rig, 5).await;
        assert!(took >= LEASE, "{daemon}: {took:?}");
        assert!(took < LEASE + seconds(2), "{daemon}: {took:?}");
        let again = record(&ledger, "Job@count@3").await;
        assert_eq!((again.attempt, again.crashes), (2, 1), "{daemon}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_daemon_is_buried_after_three_however_soon_that_is_known() {
    let dead = dead_name().await;
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 1).await;
    for crashes in 0..3 {
        let claims = claim(&ledger, &armings, &dead).await;
        assert_eq!(claims[0].attempt.crashes, crashes);
        let leases = ledger
            .scan_leases(None, Duration::ZERO)
            .await
            .unwrap()
            .leases;
        if crashes < 2 {
            assert_eq!(ledger.end_leases(&leases).await.unwrap(), 1);
        }
    }
    let count = Arc::default();
    let rig = start_on(Arc::clone(&ledger), "", counting(&count));
    rig.until("Job@count@0", State::Dead).await;
    rig.stop().await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_dead_daemon_starts_soon_after_its_lease_without_a_sweep() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 3).await;
    claim(&ledger, &armings, "elsewhere:1").await;
    let rig = start_on(
        Arc::clone(&ledger),
        "sweep.enabled = false",
        counting(&Arc::default()),
    );
    let took = until_done(&rig, 3).await;
    assert!(took >= LEASE, "{took:?}");
    assert!(took < LEASE + seconds(2), "{took:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_row_was_locked_starts_soon_after_without_a_sweep() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let faults = Arc::new(Faults::default());
    let rig = start_with(
        Arc::clone(&ledger),
        Arc::clone(&faults),
        "sweep.enabled = false",
        counting(&Arc::default()),
    );
    let row = rig
        .tasks
        .create(("Job", "count", ["1"]), seconds(1))
        .await
        .unwrap()
        .arming()
        .row;
    *faults.locked_row.lock().unwrap() = Some(row);
    tokio::time::sleep(seconds(20)).await;
    assert_eq!(rig.record("Job@count@1").await.state, State::Pending);
    *faults.locked_row.lock().unwrap() = None;
    let took = until_done(&rig, 1).await;
    assert!(took < seconds(23), "{took:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_scan_for_leases_is_repeated() {
    let dead = dead_name().await;
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, 3).await;
    claim(&ledger, &armings, &dead).await;
    let faults = Arc::new(Faults::default());
    faults.scan_leases_fails.store(true, Ordering::SeqCst);
    let count = Arc::default();
    let rig = start_with(
        Arc::clone(&ledger),
        Arc::clone(&faults),
        "",
        counting(&count),
    );
    crate::engine::rig::until("it has been refused", async || {
        faults.lease_scans.load(Ordering::SeqCst) >= 2
    })
    .await;
    faults.scan_leases_fails.store(false, Ordering::SeqCst);
    let took = until_done(&rig, 3).await;
    assert!(took < seconds(5), "{took:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_daemon_scans_for_leases_once_per_lease() {
    let faults = Arc::new(Faults::default());
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_with(ledger, Arc::clone(&faults), "", Handlers::new());
    tokio::time::sleep(seconds(3_000)).await;
    let scans = faults.lease_scans.load(Ordering::SeqCst);
    assert!((50..=100).contains(&scans), "{scans} in 100 leases");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn more_suspects_run_together_the_more_have_ended_and_the_others_are_not_claimed_meanwhile() {
    const SUSPECTS: u64 = 12;
    let dead = dead_name().await;
    let ledger = Arc::new(MemoryLedger::new(START));
    let armings = overdue(&ledger, SUSPECTS as i64).await;
    for _ in 0..2 {
        claim(&ledger, &armings, &dead).await;
        let leases = ledger
            .scan_leases(None, Duration::ZERO)
            .await
            .unwrap()
            .leases;
        assert_eq!(ledger.end_leases(&leases).await.unwrap(), SUSPECTS);
    }
    let (running, most) = <(Arc<AtomicU32>, Arc<AtomicU32>)>::default();
    let mut handlers = Handlers::new();
    let ended = Arc::new(AtomicU32::new(0));
    let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
    handlers.on(("Job", "count"), move |_: Vec<String>| {
        let (now, peak, ended) = (Arc::clone(&now), Arc::clone(&peak), Arc::clone(&ended));
        async move {
            let beside = now.fetch_add(1, Ordering::SeqCst);
            let cleared = ended.load(Ordering::SeqCst);
            assert!(
                beside <= cleared,
                "{beside} others run after {cleared} have ended"
            );
            peak.fetch_max(beside + 1, Ordering::SeqCst);
            sleep(seconds(60)).await;
            ended.fetch_add(1, Ordering::SeqCst);
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let rig = start_on(Arc::clone(&ledger), "", handlers);
    let took = until_done(&rig, SUSPECTS).await;
    // 1, 2, 4 and 5.
    assert_eq!(most.load(Ordering::SeqCst), 5);
    assert!(took < seconds(4 * 62), "{took:?}");
    let metrics = rig.parts.metrics.render();
    let won = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lapsed_claims_total{result=\"won\"} "));
    let won: u64 = won.unwrap().parse().unwrap();
    // Each once to see that it is a suspect, once to run it, and some that two workers of the pipeline claimed at once.
    assert!(won <= 3 * SUSPECTS, "{won} claims");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_another_task_than_the_signalled_one_is_released() {
    let ledger = Arc::new(MemoryLedger::new(START));
    let count = Arc::default();
    let rig = start_on(
        Arc::clone(&ledger),
        "nudge.enabled = false",
        counting(&count),
    );
    let due = START.plus(seconds(5));
    let key = |text: &str| TaskKey::parse(text).unwrap();
    let created = ledger
        .create(&[NewTask::new(key("Job@count@new"), due)])
        .await;
    // The row had this id before, as after a `TRUNCATE`.
    rig.parts.timer.expect(vec![Alarm {
        key: key("Job@count@old"),
        due,
        arming: Some(created.unwrap()[0].arming),
    }]);
    rig.until("Job@count@new", State::Done).await;
    let late = ledger.clock().now().since(due);
    assert!(late < seconds(3), "{late:?}");
    let new = record(&ledger, "Job@count@new").await;
    assert_eq!((new.attempt, new.crashes), (1, 0));
    rig.stop().await;
}
