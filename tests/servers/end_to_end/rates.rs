//! Rates: over several daemons, in Redis, in the ledger, and in one daemon alone.

use std::time::Duration;

use lapsed::limiter::RateLimiter;
use lapsed::limiter::redis_limiter::RedisLimiter;
use lapsed::{Handlers, Rate};
use tokio::time::{Instant, sleep};

use crate::end_to_end::flow_control::{create, on, rate};
use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::tasks::create_many;
use crate::support::wait::until;

#[tokio::test]
async fn a_rate_holds_over_two_daemons_and_its_backlog_holds_no_lease() {
    let rig = Rig::new("").await;
    let mut handlers = Handlers::new();
    let (starts, registered) = on(&mut handlers, "Paced");
    registered.rate(rate("20/s", 5));
    let (rare, registered) = on(&mut handlers, "Rare");
    registered.rate(rate("1/h", 5));
    let daemons = [rig.daemon_with(handlers.clone()), rig.daemon_with(handlers)];
    for daemon in &daemons {
        daemon.hears_events().await;
    }
    let began = Instant::now();
    create(&rig, "Paced", 105, rig.now_ms().await + 1_000, 0).await;
    rig.until_done(105).await;
    // A daemon whose limiter answers too late takes a burst of its own share.
    starts.keep_rate(20.0, 10.0, began);
    assert_eq!(starts.len(), 105);

    create(&rig, "Rare", 50, rig.now_ms().await + 500, 0).await;
    rare.reach(5).await;
    for daemon in &daemons {
        let waiting = "lapsed_waiting{route=\"Rare@run\"}";
        daemon.until_counted(waiting, |n| n >= 1.0).await;
    }
    // The rest waits for an hour, and would be leased all that time.
    let leased = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND lease_until > UNIX_TIMESTAMP(NOW(3))";
    until("the backlog holds no lease", async || {
        rig.number(leased).await == 0
    })
    .await;
    assert!(rare.len() <= 10, "{} started", rare.len());
    let info: String = rig.redis_says(&["INFO", "commandstats"]).await;
    let asked = info.lines().find(|line| line.starts_with("cmdstat_eval:"));
    let asked = asked.expect("the daemons asked redis");
    assert!(asked.contains("failed_calls=0"), "{asked}");
}

#[tokio::test]
async fn a_bucket_in_redis_allows_its_burst_then_its_rate_and_expires() {
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
    create(&rig, "Paced", 50, rig.now_ms().await + 1_000, 0).await;
    until("some are done", async || rig.with_status(1).await >= 20).await;
    rig.redis.kill();
    create_many(&daemon.tasks, "Paced@run@later", 100, 0, 0).await;
    rig.until_done(150).await;
    // One burst from Redis, and one without it.
    let took = began.elapsed().as_secs_f64();
    let most = 10.0 + 20.0 * took;
    assert!(150.0 <= most, "150 of {most} after {took} s");
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
