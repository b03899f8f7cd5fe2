//! Daemons on a Redis master that sentinels name, while it changes.
//!
//! `LAPSED_TEST_FAILOVERS` sets how often the master is killed, once by default.

mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lapsed::timer::Source;
use lapsed_doctor::{self as doctor, Severity};
use tokio::time::Instant;

use crate::doctor::rig::{assert_contains, finding};
use crate::failover::servers::{MASTER, Servers};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::redis_commands::ask;
use crate::support::rig::Rig;
use crate::support::wait::until;

pub fn failovers() -> usize {
    let text = std::env::var("LAPSED_TEST_FAILOVERS");
    text.map_or(1, |text| {
        text.parse()
            .expect("LAPSED_TEST_FAILOVERS is a number of failovers")
    })
}

/// The daemon has subscribed at this server, and hears the events of keys that it arms there.
async fn until_follows(daemon: &Daemon, servers: &Servers, master: usize) {
    let server = &servers.servers[master];
    until("the daemon listens at the new master", async || {
        let mut connection = server.connect(0).await.unwrap();
        ask::<i64>(&mut connection, &["PUBSUB", "NUMPAT"]).await > 0
    })
    .await;
    daemon.hears_events().await;
    let before = daemon.signals(Source::Event);
    until("an event of the new master is heard", async || {
        daemon.signals(Source::Event) > before
    })
    .await;
}

#[tokio::test]
async fn each_task_runs_once_and_never_early_while_masters_are_killed_and_replaced() {
    let rig = Rig::new("").await;
    let mut servers = Servers::start().await;
    let config = rig.config_with(&format!("redis.url = '{}'", servers.url()));
    let daemon = Arc::new(Daemon::start(&config, handlers()));
    let other = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    other.hears_events().await;

    let created = Arc::new(AtomicUsize::new(0));
    let stops = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (daemon, created, stops) = (daemon.clone(), created.clone(), stops.clone());
        async move {
            // 200 a second, each due within two seconds.
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            while !stops.load(Ordering::Relaxed) {
                ticks.tick().await;
                let number = created.fetch_add(1, Ordering::Relaxed);
                let delay = (number as i64 * 37) % 2_000;
                daemon.create(&format!("Job@record@{number}"), delay).await;
            }
        }
    });
    for _ in 0..failovers() {
        let before = servers.master().await;
        let killed = Instant::now();
        servers.servers[before].kill();
        let after = servers.until_another_than(before).await;
        let (promoted, epoch) = (Instant::now(), servers.epoch().await);
        until_follows(&daemon, &servers, after).await;
        println!(
            "promoted {:?} after the kill, followed {:?} after that",
            promoted - killed,
            promoted.elapsed()
        );
        // It comes back as a master without data, until a sentinel makes it a replica.
        servers.start_again(before).await;
        servers.until_ready().await;
        // On a busy machine the sentinels may have ordered another failover by now.
        let master = servers.master().await;
        assert!(master == after || servers.epoch().await > epoch, "{master}");
    }
    let before = servers.master().await;
    let _: String = servers.sentinels[0]
        .ask(&["SENTINEL", "FAILOVER", MASTER])
        .await;
    let after = servers.until_another_than(before).await;
    let promoted = Instant::now();
    until_follows(&daemon, &servers, after).await;
    println!(
        "followed {:?} after an ordered failover",
        promoted.elapsed()
    );

    stops.store(true, Ordering::Relaxed);
    load.await.unwrap();
    let created = created.load(Ordering::Relaxed);
    rig.until_done(created).await;
    rig.each_ran_once(created).await;
    let runs = rig.runs().await;
    let mut late: Vec<i64> = runs.iter().map(|run| run.at_ms - run.due_ms).collect();
    late.sort_unstable();
    println!(
        "{created} tasks; lateness p50 {} ms, p99 {} ms, max {} ms",
        late[created / 2],
        late[created * 99 / 100],
        late[created - 1]
    );
}

#[tokio::test]
async fn the_master_is_found_while_a_minority_of_the_sentinels_is_gone() {
    let rig = Rig::new("").await;
    let mut servers = Servers::start().await;
    let config = rig.config_with(&format!("redis.url = '{}'", servers.url()));
    let report = doctor::examine(&config).await;
    let found = finding(&report, "redis.sentinels", Severity::Ok);
    assert_contains(&found.found, "3 of 3 name 127.0.0.1:");
    finding(&report, "redis.role", Severity::Ok);

    servers.sentinels[2].kill();
    let report = doctor::examine(&config).await;
    finding(&report, "redis.sentinels", Severity::Warning);
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    assert!(daemon.create("Job@record@1", 200).await.armed);
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
}
