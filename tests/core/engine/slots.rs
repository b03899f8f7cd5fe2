//! Number of concurrent runs, and order of starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::handler::Registration;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, Ledger, NewTask, Producer};
use lapsed::task::{State, TaskKey, UnixMs};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, Handlers, Task, TaskClient};
use tokio::sync::{mpsc, watch};

use crate::engine::faults::Faults;
use crate::engine::rig::{START, start, start_on, start_with};

#[tokio::test(start_paused = true)]
async fn there_are_never_more_runs_than_slots() {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut handlers = Handlers::new();
    let (at, peak) = (Arc::clone(&now), Arc::clone(&most));
    handlers.on(("Job", "slow"), move |_: u64| {
        let (at, peak) = (Arc::clone(&at), Arc::clone(&peak));
        async move {
            peak.fetch_max(at.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            at.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let rig = start("engine.concurrency = 4", handlers);
    for n in 0..40u64 {
        rig.tasks
            .create(("Job", "slow", [n]), Duration::from_secs(3))
            .await
            .unwrap();
    }
    rig.until_done(40).await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_long_runs_takes_all_slots_but_an_eighth() {
    let (started, mut runs) = mpsc::unbounded_channel();
    let mut handlers = Handlers::new();
    handlers.on(("Job", "long"), move |number: i64| {
        started.send(number).unwrap();
        std::future::pending()
    });
    let ledger = Arc::new(MemoryLedger::new(START));
    let key = |n: i64| TaskKey::build("Job", "long", [n.to_string()]).unwrap();
    let overdue: Vec<NewTask> = (0..20)
        .map(|n| NewTask::new(key(n), UnixMs(START.0 - 60_000)))
        .collect();
    ledger.create(&overdue).await.unwrap();
    let rig = start_on(
        ledger,
        "engine.concurrency = 16\nengine.drain_timeout = '0s'",
        handlers,
    );
    for _ in 0..14 {
        runs.recv().await.unwrap();
    }
    assert!(rig.ledger.clock().now().since(START) < Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(runs.try_recv().is_err(), "the rest is kept for fresh ones");
    rig.tasks
        .create(("Job", "long", [99]), Duration::from_millis(50))
        .await
        .unwrap();
    assert_eq!(runs.recv().await, Some(99));
    assert!(rig.ledger.clock().now().since(START) < Duration::from_secs(13));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_free_slot_sweeps_are_ten_seconds_apart() {
    let faults = Arc::new(Faults::default());
    let (started, mut runs) = mpsc::unbounded_channel();
    let (end, ended) = watch::channel(false);
    let mut handlers = Handlers::new();
    handlers.on(("Job", "count"), move |number: u64| {
        started.send(number).unwrap();
        let mut ended = ended.clone();
        async move {
            ended.wait_for(|ended| *ended).await.unwrap();
            Ok(())
        }
    });
    let ledger = Arc::new(MemoryLedger::new(START));
    backlog(&ledger, "Job", 1..3).await;
    let config = "engine.concurrency = 1\nengine.drain_timeout = '0s'";
    let rig = start_with(ledger, Arc::clone(&faults), config, handlers);
    assert_eq!(runs.recv().await, Some(1));
    let before = faults.overdue_scans.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let scans = faults.overdue_scans.load(Ordering::SeqCst) - before;
    assert!((5..=6).contains(&scans), "{scans} scans in 60 s");

    end.send(true).unwrap();
    rig.until_done(2).await;
    backlog(&rig.ledger, "Job", 3..4).await;
    let late = tokio::time::timeout(Duration::from_secs(2), async {
        while runs.recv().await != Some(3) {}
    });
    late.await.expect("a daemon with a free slot does not rest");
    rig.stop().await;
}

/// `count` tasks of this class that fall due now, on a ledger without a running engine.
async fn backlog(ledger: &Arc<MemoryLedger>, class: &str, numbers: std::ops::Range<u64>) {
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let client = TaskClient::with_parts(Arc::clone(ledger) as _, timer);
    let task = |n| {
        (
            Task::new(class, "count", [n]).unwrap(),
            lapsed::Due::after_ms(0).unwrap(),
        )
    };
    client
        .create_many(numbers.map(task).collect())
        .await
        .unwrap();
}

fn counting_as<'a>(handlers: &'a mut Handlers, class: &str) -> (Arc<AtomicU32>, Registration<'a>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let registered = handlers.on((class, "count"), move |_: Vec<String>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    (count, registered)
}

#[tokio::test(start_paused = true)]
async fn the_backlog_of_a_route_with_a_rate_hides_nothing_and_does_not_make_the_sweep_spin() {
    let ledger = Arc::new(MemoryLedger::new(START));
    backlog(&ledger, "Paced", 0..8_500).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    backlog(&ledger, "Other", 0..1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    backlog(&ledger, "Paced", 8_500..10_000).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut handlers = Handlers::new();
    let (paced, registered) = counting_as(&mut handlers, "Paced");
    let rate = "10/s".parse::<lapsed::Rate>().unwrap();
    registered.rate(rate.with_burst(1).unwrap());
    counting_as(&mut handlers, "Other");
    let faults = Arc::new(Faults::default());
    let rig = start_with(Arc::clone(&ledger), Arc::clone(&faults), "", handlers);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let ran = paced.load(Ordering::SeqCst);
    assert!((95..=102).contains(&ran), "{ran} in 10 s");
    assert_eq!(rig.record("Other@count@0").await.state, State::Done);
    let scans = faults.scans.load(Ordering::SeqCst);
    assert!(scans < 10 * 16, "{scans} scans in 10 s");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_backlog_of_a_slow_route_without_limits_does_not_make_the_sweep_spin() {
    let ledger = Arc::new(MemoryLedger::new(START));
    backlog(&ledger, "Slow", 0..20_000).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut handlers = Handlers::new();
    handlers.on(("Slow", "count"), |_: Vec<String>| std::future::pending());
    counting_as(&mut handlers, "Other");
    let faults = Arc::new(Faults::default());
    let config = "engine.concurrency = 64\nengine.drain_timeout = '0s'";
    let rig = start_with(Arc::clone(&ledger), Arc::clone(&faults), config, handlers);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.ledger.stats().await.unwrap().running, 56);
    let before = faults.scans.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    // A sweep a second reads the newest page and passes by eight; the rest is the look-ahead.
    let scans = faults.scans.load(Ordering::SeqCst) - before;
    assert!(scans < 10 * 16, "{scans} scans in 10 s");
    rig.due_now("Other@count@0").await;
    rig.until("Other@count@0", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_what_limits_a_route() {
    let ledger = Arc::new(MemoryLedger::new(START));
    backlog(&ledger, "Paced", 0..50).await;
    let route = "[[routes]]\nmatch = '^Paced@'\nlog = {}\n";
    let rig = start_on(ledger, &format!("{route}rate = '1/h'\n"), Handlers::new());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.ledger.stats().await.unwrap().done, 1);
    rig.parts.router.reload(&Config::from_toml(route).unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.ledger.stats().await.unwrap().done, 50);
    rig.stop().await;
}
