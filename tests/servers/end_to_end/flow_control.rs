//! Concurrency, rates, priorities, and routes that leave each other alone.

use lapsed::engine::DropReason;
use lapsed::timer::Source;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lapsed::handler::Registration;
use lapsed::task::Scope;
use lapsed::{Due, Handlers, Rate, Task, TaskContext, UnixMs};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::rig::Rig;
use crate::support::wait::until;

/// What started, and when.
#[derive(Debug, Clone, Default)]
pub struct Starts(Arc<Mutex<Vec<(String, Instant)>>>);

impl Starts {
    fn add(&self, task: &TaskContext) {
        let start = (task.key().as_str().to_owned(), Instant::now());
        self.0.lock().unwrap().push(start);
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub fn names(&self) -> Vec<String> {
        let starts = self.0.lock().unwrap();
        starts.iter().map(|(name, _)| name.clone()).collect()
    }

    /// At no moment since `began` had more started than a full bucket and the rate allow. `began` is before the first
    /// grant, and a start comes after its grant: a stall only makes starts later.
    pub fn keep_rate(&self, per_s: f64, burst: f64, began: Instant) {
        let mut at: Vec<Instant> = self.0.lock().unwrap().iter().map(|(_, at)| *at).collect();
        at.sort_unstable();
        for (earlier, at) in at.iter().enumerate() {
            let (started, after_s) = (earlier as f64 + 1.0, (*at - began).as_secs_f64());
            let most = burst + per_s * after_s;
            assert!(started <= most, "{started} of {most} after {after_s} s");
        }
    }

    pub async fn reach(&self, count: usize) {
        until(format!("{count} have started"), async || {
            self.len() >= count
        })
        .await;
    }
}

/// `class@run`, which does nothing.
pub fn on<'a>(handlers: &'a mut Handlers, class: &str) -> (Starts, Registration<'a>) {
    let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    gated(handlers, class, &open)
}

/// `class@run`, each run of which takes a permit to end.
fn gated<'a>(
    handlers: &'a mut Handlers,
    class: &str,
    gate: &Arc<Semaphore>,
) -> (Starts, Registration<'a>) {
    let (starts, gate) = (Starts::default(), Arc::clone(gate));
    let started = starts.clone();
    let run = move |task: TaskContext, _: Vec<String>| {
        started.add(&task);
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await?.forget();
            Ok(())
        }
    };
    (starts, handlers.on((class, "run"), run))
}

pub fn rate(text: &str, burst: u32) -> Rate {
    text.parse::<Rate>().unwrap().with_burst(burst).unwrap()
}

/// So many tasks `class@run@n`, the first due at this moment, the others so far apart.
pub async fn create(rig: &Rig, class: &str, count: i64, first: i64, apart_ms: i64) {
    let tasks = (0..count).map(|n| {
        let due = Due::at(UnixMs(first + n * apart_ms)).unwrap();
        (Task::new(class, "run", [n]).unwrap(), due)
    });
    rig.client()
        .await
        .create_many(tasks.collect())
        .await
        .unwrap();
}

#[tokio::test]
async fn the_waiting_task_of_highest_priority_starts_first() {
    let rig = Rig::new("engine.concurrency = 1").await;
    let mut handlers = Handlers::new();
    let gate = Arc::new(Semaphore::new(0));
    let (order, _) = gated(&mut handlers, "Low", &gate);
    let (high, registered) = gated(&mut handlers, "High", &gate);
    registered.priority(10);
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    create(&rig, "Low", 60, rig.now_ms().await + 500, 0).await;
    order.reach(1).await;
    create(&rig, "High", 60, rig.now_ms().await + 500, 0).await;
    // All others wait in memory while the first has the only slot.
    for (class, count) in [("Low", 58.0), ("High", 60.0)] {
        let waiting = format!("lapsed_waiting{{route=\"{class}@run\"}}");
        daemon.until_counted(&waiting, |n| n >= count).await;
    }
    gate.add_permits(120);
    rig.until_done(120).await;
    let last_high = high
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|(_, at)| *at)
        .max()
        .unwrap();
    let before = order.0.lock().unwrap();
    let before = before.iter().filter(|(_, at)| *at < last_high).count();
    // The one that had the slot, and one that was claimed before the others fell due.
    assert!(
        before <= 2,
        "{before} of 60 before the last of those that go first"
    );
}

#[tokio::test]
async fn a_route_runs_no_more_tasks_than_its_concurrency_and_others_continue() {
    let rig = Rig::new("").await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut handlers = Handlers::new();
    let gate = Arc::new(Semaphore::new(0));
    let counted = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&gate));
    handlers
        .on(("Few", "run"), move |_: Vec<String>| {
            let (running, most, gate) = counted.clone();
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await?.forget();
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .concurrency(3);
    let (others, _) = on(&mut handlers, "Other");
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let due = rig.now_ms().await + 1_500;
    create(&rig, "Few", 60, due, 0).await;
    create(&rig, "Other", 60, due, 0).await;
    // None of the few ends before all others have run.
    others.reach(60).await;
    until("three of the few run", async || {
        running.load(Ordering::SeqCst) == 3
    })
    .await;
    // Many times as long as what is held waits to be looked at again.
    rig.until_clock(UnixMs(due + 3_000)).await;
    // A queue that is held costs nothing: what waits is not claimed in vain. An event after a run may be.
    let missed = daemon.metric("lapsed_claims_total{result=\"missed\"}");
    assert!(missed <= 63.0, "{missed} claims in vain");
    gate.add_permits(60);
    rig.until_done(120).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_burst_of_a_slow_class_leaves_slots_to_another_class() {
    const SLOTS: usize = 32;
    let rig = Rig::new(&format!("engine.concurrency = {SLOTS}")).await;
    let mut handlers = Handlers::new();
    // None ends.
    let gate = Arc::new(Semaphore::new(0));
    let (slow, _) = gated(&mut handlers, "Slow", &gate);
    let (quick, _) = on(&mut handlers, "Quick");
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    create(&rig, "Slow", 2_000, rig.now_ms().await + 2_000, 0).await;
    // Seven eighths, once all that is due is known.
    slow.reach(SLOTS / 8 * 7).await;
    let waiting = "lapsed_waiting{route=\"Slow@run\"}";
    daemon.until_counted(waiting, |n| n >= 1_900.0).await;
    create(&rig, "Quick", 50, rig.now_ms().await + 200, 20).await;
    // One that waited behind the burst, or for one of its slots, would never start.
    quick.reach(50).await;
    let names = slow.names();
    let once: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(once.len(), names.len(), "each started once");
    assert!(
        names.len() <= SLOTS / 8 * 7,
        "{} of the slow ones run",
        names.len()
    );
}

#[tokio::test]
async fn a_paused_task_uses_no_rate_of_its_route() {
    let rig = Rig::new("").await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Rare");
    registered.rate(rate("1/h", 1));
    let client = rig.client().await;
    let rare = Scope::class("Rare").unwrap();
    client.pause(&rare, "me", "").await.unwrap();
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    create(&rig, "Rare", 1, rig.now_ms().await + 5_000, 0).await;
    // An early event has the daemon keep the task in memory.
    rig.publish_expired("Rare@run@0").await;
    until("it is kept", async || {
        daemon.dropped(DropReason::Early) >= 1.0
    })
    .await;
    until("it is signalled from memory, and dropped", async || {
        daemon.signals(Source::Nudge) >= 1.0 && daemon.dropped(DropReason::Paused) >= 1.0
    })
    .await;
    // And by an event that knows no row.
    let dropped = daemon.dropped(DropReason::Paused);
    rig.publish_expired("Rare@run@0").await;
    until("that is dropped, too", async || {
        daemon.dropped(DropReason::Paused) > dropped
    })
    .await;
    let buckets: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:rate:*"]).await;
    assert!(buckets.is_empty(), "{buckets:?}");
    assert_eq!(starts.len(), 0);
    client.resume(&rare).await.unwrap();
    // The one start of the hour is there.
    rig.until_done(1).await;
}

#[tokio::test]
async fn a_held_task_uses_no_rate_and_delays_no_other_of_its_route() {
    let rig = Rig::new("").await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Rare");
    registered.rate(rate("1/h", 1));
    let client = rig.client().await;
    create(&rig, "Rare", 1, rig.now_ms().await - 60_000, 0).await;
    client.hold_overdue("me", "").await.unwrap();
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    rig.publish_expired("Rare@run@0").await;
    until("it is dropped", async || {
        daemon.dropped(DropReason::Paused) >= 1.0
    })
    .await;
    let buckets: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:rate:*"]).await;
    assert!(buckets.is_empty(), "{buckets:?}");
    // An event, too, which has to be looked up to be told from what is held.
    daemon.create("Rare@run@1", 300).await;
    rig.until_done(1).await;
    assert_eq!(starts.names(), ["Rare@run@1"]);
}
