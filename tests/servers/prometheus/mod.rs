//! Each rule for Prometheus fires for the fault that it is about, by the metrics of a real daemon.

mod rule_tests;
mod server;

use std::path::Path;
use std::sync::Arc;

use lapsed::task::Scope;
use lapsed::{HandlerError, Handlers, TaskClient, UnixMs};
use tokio::sync::Notify;

use crate::prometheus::rule_tests::Fault;
use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// `Job@held` runs until it is notified; `Job@bad` fails for good.
fn handlers(go: &Arc<Notify>) -> Handlers {
    let mut handlers = crate::support::handlers::handlers();
    let go = Arc::clone(go);
    handlers.on(("Job", "held"), move |_: Vec<String>| {
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            Ok(())
        }
    });
    let bad = |_: Vec<String>| async { Err(HandlerError::permanent("bad")) };
    handlers.on(("Job", "bad"), bad);
    handlers
}

/// A daemon that is well, and has counted the tasks.
async fn daemon(rig: &Rig) -> Daemon {
    daemon_with(rig, &Arc::default()).await
}

async fn daemon_with(rig: &Rig, go: &Arc<Notify>) -> Daemon {
    let daemon = rig.daemon_with(handlers(go));
    daemon.hears_events().await;
    daemon.has_audited().await;
    daemon
        .until_counted("lapsed_ledger_up", |up| up == 1.0)
        .await;
    until("the tasks are counted", async || {
        daemon.metrics().contains("lapsed_tasks{")
    })
    .await;
    daemon
}

#[tokio::test]
async fn tasks_that_start_late() {
    let rig = Rig::new("engine.concurrency = 1").await;
    let go = Arc::new(Notify::new());
    let daemon = daemon_with(&rig, &go).await;
    daemon.create("Job@record@1", 0).await;
    let started = "lapsed_lateness_seconds_count{route=\"Job@record\"}";
    daemon.until_counted(started, |count| count == 1.0).await;
    let before = daemon.metrics();
    daemon.create("Job@held@1", 0).await;
    let held = "lapsed_lateness_seconds_count{route=\"Job@held\"}";
    daemon.until_counted(held, |count| count == 1.0).await;
    let due = UnixMs(rig.now_ms().await);
    daemon.create("Job@record@2", 0).await;
    rig.until_clock(UnixMs(due.0 + 1_500)).await;
    go.notify_one();
    daemon.until_counted(started, |count| count == 2.0).await;
    let fault = Fault {
        // The sweep may have seen the task, too.
        ignored: "LapsedOverdue",
        ..Fault::new(before, daemon.metrics())
    };
    fault.fires(&["LapsedLate"], 2);
}

#[tokio::test]
async fn a_task_that_dies() {
    let rig = Rig::new("").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    daemon.create("Job@bad@1", 0).await;
    let dead = "lapsed_dead_total{route=\"Job@bad\",reason=\"permanent\"}";
    daemon.until_counted(dead, |count| count == 1.0).await;
    let first = daemon.metrics();
    Fault::new(before, first.clone()).fires(&["LapsedTasksDie"], 1);
    daemon.create("Job@bad@2", 0).await;
    daemon.until_counted(dead, |count| count == 2.0).await;
    Fault::new(first, daemon.metrics()).fires(&["LapsedTasksDie"], 1);
}

#[tokio::test]
async fn a_task_that_nothing_starts() {
    let rig = Rig::new("").await;
    let client: TaskClient = rig.client().await.into();
    let is_paused = Scope::class("Paused").unwrap();
    client.pause(&is_paused, "test", "").await.unwrap();
    write_overdue(&rig, "Paused@for@long", 7_200).await;
    let daemon = daemon(&rig).await;
    daemon
        .until_counted("lapsed_overdue_seconds_max", |seconds| seconds > 7_000.0)
        .await;
    let before = daemon.metrics();
    write_overdue(&rig, "Nothing@runs@it", 120).await;
    let waited = |seconds| (60.0..7_000.0).contains(&seconds);
    daemon
        .until_counted("lapsed_overdue_unpaused_seconds_max", waited)
        .await;
    Fault::new(before, daemon.metrics()).fires(&["LapsedOverdue"], 1);
}

/// Writes a pending task that fell due this long ago.
async fn write_overdue(rig: &Rig, key: &str, seconds: u32) {
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) \
         VALUES ('{key}', UNIX_TIMESTAMP(NOW(3)) - {seconds}, UNIX_TIMESTAMP(NOW(3)) - {seconds})"
    ))
    .await;
}

#[tokio::test]
async fn a_daemon_that_is_gone() {
    let rig = Rig::new("").await;
    let (daemon, other) = (daemon(&rig).await, rig.daemon());
    daemon
        .until_counted("lapsed_members", |members| members == 2.0)
        .await;
    let before = daemon.metrics();
    other.kill();
    daemon
        .until_counted("lapsed_members_vanished_total", |gone| gone == 1.0)
        .await;
    Fault::new(before.clone(), daemon.metrics()).fires(&["LapsedDaemonGone"], 1);
    // Another one takes its place.
    let _new = rig.daemon();
    daemon
        .until_counted("lapsed_members", |members| members == 2.0)
        .await;
    Fault::new(before, daemon.metrics()).fires(&[], 1);
}

/// The gauge of the subscription.
async fn until_unsubscribed(daemon: &Daemon) {
    until("the daemon knows that it hears nothing", async || {
        let text = daemon.metrics();
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("lapsed_subscription_up{") && line.ends_with(" 0"))
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_is_down() {
    let mut rig = Rig::new("").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    rig.redis.kill();
    until_unsubscribed(&daemon).await;
    Fault::new(before, daemon.metrics()).fires(&["LapsedSubscriptionDown"], 2);
}

#[tokio::test]
async fn subscriptions_that_are_lost_again_and_again() {
    let rig = Rig::new("").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    for lost in 1..=3 {
        rig.redis_says::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"])
            .await;
        let counted = |count| count >= f64::from(lost);
        daemon
            .until_counted("lapsed_resubscriptions_total", counted)
            .await;
    }
    Fault::new(before, daemon.metrics()).fires(&["LapsedEventsLost"], 1);
}

#[tokio::test]
async fn a_redis_that_loses_keys() {
    let rig = Rig::new("sentinel.interval = '1s'").await;
    let daemon = daemon(&rig).await;
    daemon.create("Job@record@1", 3_600_000).await;
    until("the task is armed", async || {
        rig.pttl("Job@record@1").await > 0
    })
    .await;
    let before = daemon.metrics();
    rig.redis_says::<String>(&["FLUSHALL"]).await;
    daemon
        .until_counted("lapsed_rearmed_total", |count| count > 0.0)
        .await;
    Fault::new(before, daemon.metrics()).fires(&["LapsedKeysLost"], 1);
}

#[tokio::test]
async fn tasks_that_only_the_sweep_finds() {
    let mut rig = Rig::new("nudge.enabled = false").await;
    let daemon = daemon(&rig).await;
    daemon.create("Job@record@on-time", 300).await;
    rig.until_done(1).await;
    let before = daemon.metrics();
    rig.redis.kill();
    for number in 0..12 {
        daemon.create(&format!("Job@record@{number}"), 100).await;
    }
    let swept = |count| count >= 12.0;
    daemon
        .until_counted("lapsed_starts_total{source=\"sweep\"}", swept)
        .await;
    let fault = Fault {
        ignored: "LapsedSubscriptionDown|LapsedLate",
        ..Fault::new(before, daemon.metrics())
    };
    fault.fires(&["LapsedSweepRecovers"], 2);
}

#[tokio::test]
async fn sentinels_that_are_not_heard() {
    let rig = Rig::new("sentinel.interval = '1s'").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    rig.redis_says::<String>(&["CONFIG", "SET", "notify-keyspace-events", ""])
        .await;
    daemon
        .until_counted("lapsed_sentinel_age_seconds", |age| age > 1.5)
        .await;
    let fault = Fault {
        ignored: "LapsedSubscriptionDown",
        ..Fault::new(before, daemon.metrics())
    };
    fault.fires(&["LapsedSentinelSilent"], 1);
}

#[tokio::test]
async fn a_database_that_is_down() {
    let mut rig = Setup::new("").own_maria().start().await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    rig.maria().kill();
    daemon
        .until_counted("lapsed_ledger_up", |up| up == 0.0)
        .await;
    Fault::new(before, daemon.metrics()).fires(&["LapsedLedgerDown"], 2);
}

/// Writes 100,010 done tasks, finished long ago.
async fn write_done(rig: &Rig) {
    let digits = "(SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)";
    for (prefix, tables) in [("many", "abcde"), ("more", "a")] {
        let from: Vec<String> = tables
            .chars()
            .map(|name| format!("{digits} {name}"))
            .collect();
        let number: Vec<String> = tables.chars().map(|name| format!("{name}.n")).collect();
        let insert = format!(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, finished_at) \
             SELECT CONCAT('Job@{prefix}@', {}), 1, 1600000000, 1600000000, 1600000000 FROM {}",
            number.join(", "),
            from.join(", ")
        );
        rig.run_sql(&insert).await;
    }
}

#[tokio::test]
async fn a_table_that_grows_without_retention() {
    let rig = Rig::new("").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    write_done(&rig).await;
    let at_least = "lapsed_tasks_at_least{state=\"done\"}";
    daemon
        .until_counted(at_least, |ended_early| ended_early == 1.0)
        .await;
    Fault::new(before, daemon.metrics()).fires(&["LapsedRowsGrow"], 62);
}

#[tokio::test]
async fn a_retention_that_is_behind() {
    let rig = Rig::new("retention = { done = '60s', rate = 1 }").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    write_done(&rig).await;
    let behind = "lapsed_prune_behind{state=\"done\"}";
    daemon.until_counted(behind, |behind| behind == 1.0).await;
    let fault = Fault {
        ignored: "LapsedRowsGrow",
        ..Fault::new(before, daemon.metrics())
    };
    fault.fires(&["LapsedRetentionBehind"], 62);
}

#[tokio::test]
async fn a_daemon_that_is_down() {
    let rig = Rig::new("").await;
    let daemon = daemon(&rig).await;
    let before = daemon.metrics();
    daemon.kill();
    let fault = Fault {
        is_up: false,
        ..Fault::new(before, String::new())
    };
    fault.fires(&["LapsedDown"], 3);
}

#[test]
fn each_rule_fires_above_its_limit_and_not_below() {
    let file = "tests/servers/prometheus/thresholds.yml";
    rule_tests::assert_holds(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file),
    );
}

#[test]
fn every_rule_has_its_fault() {
    let rules = std::fs::read_to_string(rule_tests::rules()).unwrap();
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let faults = include_str!("mod.rs");
    let mut count = 0;
    for name in names {
        assert!(
            faults.contains(&format!("[\"{name}\"]")),
            "no fault makes `{name}` fire"
        );
        count += 1;
    }
    assert_eq!(count, 13);
}
