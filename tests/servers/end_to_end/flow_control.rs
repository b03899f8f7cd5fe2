//! Concurrency, rates, priorities, and routes that leave each other alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapsed::handler::Registration;
use lapsed::limiter::RateLimiter;
use lapsed::limiter::redis_limiter::RedisLimiter;
use lapsed::task::Scope;
use lapsed::{Due, Handlers, Rate, Task, TaskContext, UnixMs};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::wait::until;

/// What started, and when.
#[derive(Debug, Clone, Default)]
struct Starts(Arc<Mutex<Vec<(String, Instant)>>>);

impl Starts {
    fn add(&self, task: &TaskContext) {
        let start = (task.key().as_str().to_owned(), Instant::now());
        self.0.lock().unwrap().push(start);
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn names(&self) -> Vec<String> {
        let starts = self.0.lock().unwrap();
        starts.iter().map(|(name, _)| name.clone()).collect()
    }

    /// At no moment since `began` had more started than a full bucket and the rate allow. `began` is before the first
    /// grant, and a start comes after its grant: a stall only makes starts later.
    fn keep_rate(&self, per_s: f64, burst: f64, began: Instant) {
        let mut at: Vec<Instant> = self.0.lock().unwrap().iter().map(|(_, at)| *at).collect();
        at.sort_unstable();
        for (earlier, at) in at.iter().enumerate() {
            let (started, after_s) = (earlier as f64 + 1.0, (*at - began).as_secs_f64());
            let most = burst + per_s * after_s;
            assert!(started <= most, "{started} of {most} after {after_s} s");
        }
    }

    async fn reach(&self, count: usize) {
        until(format!("{count} have started"), async || {
            self.len() >= count
        })
        .await;
    }
}

/// `class@run`, which does nothing.
fn on<'a>(handlers: &'a mut Handlers, class: &str) -> (Starts, Registration<'a>) {
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

fn rate(text: &str, burst: u32) -> Rate {
    text.parse::<Rate>().unwrap().with_burst(burst).unwrap()
}

/// So many tasks `class@run@n`, the first due at this moment, the others so far apart.
async fn create(rig: &Rig, class: &str, count: i64, first: i64, apart_ms: i64) {
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
async fn a_rate_holds_over_two_daemons_and_its_backlog_holds_no_lease() {
    let rig = Rig::new("").await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Paced");
    registered.rate(rate("20/s", 5));
    let daemons = [rig.daemon_with(handlers.clone()), rig.daemon_with(handlers)];
    for daemon in &daemons {
        daemon.hears_events().await;
    }
    let began = Instant::now();
    create(&rig, "Paced", 105, rig.now_ms().await + 1_000, 0).await;
    starts.reach(25).await;
    let leased = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND lease_until > UNIX_TIMESTAMP(NOW(3))";
    let leased = rig.number(leased).await;
    // A backlog with leases would be all that have not started.
    assert!(leased <= 40, "{leased} are leased");
    rig.until_done(105).await;
    // A daemon whose limiter answers too late takes a burst of its own share.
    starts.keep_rate(20.0, 10.0, began);
    assert_eq!(starts.len(), 105);
    let info: String = rig.redis_says(&["INFO", "commandstats"]).await;
    let asked = info.lines().find(|line| line.starts_with("cmdstat_eval:"));
    let asked = asked.expect("the daemons asked redis");
    assert!(asked.contains("failed_calls=0"), "{asked}");
}

#[tokio::test]
async fn a_bucket_in_redis_gives_its_burst_then_its_rate_and_goes_by_itself() {
    let rig = Rig::new("").await;
    let limiter = RedisLimiter::new(&rig.config().redis, "app.tb").unwrap();
    let rate = "10/s".parse::<Rate>().unwrap().with_burst(3).unwrap();
    let take = async |wanted| limiter.take("^Mail@", rate, wanted).await.unwrap();
    let first = take(5).await;
    assert_eq!(first.granted, 3);
    assert!(first.next_in <= Duration::from_millis(100), "{first:?}");
    let slow = "3/h".parse::<Rate>().unwrap().with_burst(3).unwrap();
    assert_eq!(limiter.take("^Slow@", slow, 5).await.unwrap().granted, 3);
    let lives_ms = rig.pttl("#lapsed:rate:app.tb:^Slow@").await;
    // Until it is full again.
    assert!((1..=3_600_002).contains(&lives_ms), "{lives_ms}");
    let (began, mut granted) = (Instant::now(), 0);
    while granted < 10 {
        let grant = take(5).await;
        granted += grant.granted;
        sleep(grant.next_in).await;
    }
    let most = 3.0 + began.elapsed().as_secs_f64() * 10.0;
    assert!(f64::from(granted) <= most, "{granted} of {most}");
    until("the bucket is full, and gone", async || {
        rig.pttl("#lapsed:rate:app.tb:^Mail@").await == -2
    })
    .await;
}

#[tokio::test]
async fn a_bucket_that_redis_loses_again_and_again_gives_one_burst() {
    let rig = Rig::new("").await;
    let rate = "50/s".parse::<Rate>().unwrap().with_burst(10).unwrap();
    // Two daemons that have asked before.
    let limiter = || RedisLimiter::new(&rig.config().redis, "app.tb").unwrap();
    let limiters = [limiter(), limiter()];
    let (began, mut granted) = (Instant::now(), 0);
    for round in 0..60 {
        for limiter in &limiters {
            granted += limiter.take("^Mail@", rate, 10).await.unwrap().granted;
        }
        let most = 10.0 + began.elapsed().as_secs_f64() * 50.0;
        assert!(f64::from(granted) <= most, "{granted} of {most}");
        let name = "#lapsed:rate:app.tb:^Mail@";
        match round % 10 {
            2 => rig.redis_says::<()>(&["FLUSHALL"]).await,
            7 => drop(rig.redis_says::<i64>(&["DEL", name]).await),
            _ => {}
        }
        sleep(Duration::from_millis(30)).await;
    }
    assert!(granted > 10, "a loss does not stop it: {granted}");
    // Full again, and known to be: what is not there was not lost.
    sleep(Duration::from_millis(250)).await;
    assert_eq!(
        limiters[0].take("^Mail@", rate, 10).await.unwrap().granted,
        10
    );
}

#[tokio::test]
async fn where_redis_runs_no_scripts_a_rate_holds_in_each_daemon() {
    let rig = Rig::new("").await;
    let () = rig
        .redis_says(&["ACL", "SETUSER", "default", "-eval"])
        .await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Paced");
    registered.rate(rate("20/s", 5));
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let began = Instant::now();
    create(&rig, "Paced", 65, rig.now_ms().await + 1_000, 0).await;
    rig.until_done(65).await;
    starts.keep_rate(20.0, 5.0, began);
}

#[tokio::test]
async fn without_redis_a_route_with_a_rate_goes_on_at_it() {
    let routes = "[[routes]]\nmatch = '^Paced@'\nlog = {}\nrate = '20/s'\nburst = 5\n";
    let mut rig = Rig::new(routes).await;
    let daemon = Daemon::start(&rig.config(), Handlers::new());
    daemon.hears_events().await;
    let began = Instant::now();
    create(&rig, "Paced", 150, rig.now_ms().await + 1_000, 0).await;
    until("some are done", async || rig.with_status(1).await >= 20).await;
    rig.redis.kill();
    let done = rig.with_status(1).await;
    assert!(done < 120, "{done} are done already");
    rig.until_done(150).await;
    // One burst from Redis, and one without it.
    let took = began.elapsed().as_secs_f64();
    let most = 10.0 + 20.0 * took;
    assert!(150.0 <= most, "150 of {most} after {took} s");
}

#[tokio::test]
async fn of_what_waits_the_highest_priority_starts_first() {
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
async fn no_more_of_a_route_runs_than_its_concurrency_and_others_go_on() {
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
    assert!(names.len() < SLOTS, "{} of the slow ones run", names.len());
}

#[tokio::test]
async fn what_is_paused_takes_no_start_of_its_route() {
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
    until("it is kept", async || daemon.dropped("early") >= 1.0).await;
    until("it is signalled from memory, and dropped", async || {
        daemon.signals("nudge") >= 1.0 && daemon.dropped("paused") >= 1.0
    })
    .await;
    // And by an event that knows no row.
    let dropped = daemon.dropped("paused");
    rig.publish_expired("Rare@run@0").await;
    until("that is dropped, too", async || {
        daemon.dropped("paused") > dropped
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
async fn what_is_held_takes_no_start_and_lets_others_of_its_route_pass() {
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
    until("it is dropped", async || daemon.dropped("paused") >= 1.0).await;
    let buckets: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:rate:*"]).await;
    assert!(buckets.is_empty(), "{buckets:?}");
    // An event, too, which has to be looked up to be told from what is held.
    daemon.create("Rare@run@1", 300).await;
    rig.until_done(1).await;
    assert_eq!(starts.names(), ["Rare@run@1"]);
}

#[tokio::test]
async fn without_redis_a_rate_holds_over_two_daemons() {
    let rig = Rig::new("timer = 'ledger_poll'").await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Paced");
    registered.rate(rate("20/s", 5));
    let _daemons = [rig.daemon_with(handlers.clone()), rig.daemon_with(handlers)];
    let began = Instant::now();
    create(&rig, "Paced", 105, rig.now_ms().await + 1_000, 0).await;
    rig.until_done(105).await;
    // A daemon whose limiter answers too late takes a burst of its own share.
    starts.keep_rate(20.0, 10.0, began);
    assert_eq!(starts.len(), 105);
}

#[tokio::test]
async fn without_redis_and_the_table_of_rates_each_daemon_keeps_the_rate_itself() {
    let rig = Rig::new("timer = 'ledger_poll'").await;
    rig.run_sql("DROP TABLE tb_time_limit_task_rates").await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Paced");
    registered.rate(rate("20/s", 5));
    let _daemon = rig.daemon_with(handlers);
    let began = Instant::now();
    create(&rig, "Paced", 45, rig.now_ms().await + 500, 0).await;
    rig.until_done(45).await;
    starts.keep_rate(20.0, 5.0, began);
}
