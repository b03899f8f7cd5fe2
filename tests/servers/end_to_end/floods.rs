//! Many keys at once.

use lapsed::engine::DropReason;
use lapsed::timer::Source;
use std::time::Duration;

use lapsed::Handlers;
use lapsed_sandbox::PrivateRedis;

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::{until, until_within};

/// Bare keys in one pipeline each thousand.
async fn arm_many(rig: &Rig, prefix: &str, count: usize, delay_ms: usize) {
    let mut redis = rig.redis_connection().await;
    for start in (0..count).step_by(1_000) {
        let mut set = redis::pipe();
        for number in start..count.min(start + 1_000) {
            set.cmd("PSETEX")
                .arg(format!("{prefix}{number}"))
                .arg(delay_ms)
                .arg("")
                .ignore();
        }
        let () = set.query_async(&mut redis).await.unwrap();
    }
}

fn quick() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "quick"), |_: Vec<String>| async { Ok(()) });
    handlers
}

/// Waits until this number of tasks is done, after as many runs.
async fn each_runs_once(rig: &Rig, daemon: &Daemon, count: usize) {
    until_within(Duration::from_secs(240), "all are done", async || {
        rig.with_status(1).await == count as i64
    })
    .await;
    let succeeded = "lapsed_runs_total{route=\"Job@quick\",outcome=\"succeeded\"}";
    daemon
        .until_counted(succeeded, |runs| runs == count as f64)
        .await;
}

#[tokio::test]
async fn a_flood_of_bare_keys_is_adopted_and_each_runs_once() {
    const COUNT: usize = 50_000;
    let rig = Rig::new("").await;
    let daemon = Daemon::start(&rig.config(), quick());
    daemon.hears_events().await;
    arm_many(&rig, "Job@quick@", COUNT, 20_000).await;
    until_within(Duration::from_secs(240), "all are adopted", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == COUNT as i64
    })
    .await;
    each_runs_once(&rig, &daemon, COUNT).await;
}

#[tokio::test]
async fn a_flood_of_keys_that_expire_while_they_are_adopted_loses_none() {
    const COUNT: usize = 10_000;
    // What expires while the daemon is deaf is lost: a busy machine must not make it give up its link.
    let rig = Rig::new("redis.response_timeout = '30s'").await;
    let daemon = Daemon::start(&rig.config(), quick());
    daemon.hears_events().await;
    arm_many(&rig, "Job@quick@", COUNT, 2_000).await;
    each_runs_once(&rig, &daemon, COUNT).await;
    for reason in [DropReason::ArmingOverflow, DropReason::CandidateOverflow] {
        assert_eq!(daemon.dropped(reason), 0.0, "{reason}");
    }
}

#[tokio::test]
async fn two_daemons_adopt_a_key_and_it_runs_once() {
    const COUNT: usize = 500;
    let rig = Rig::new("").await;
    let daemons = [rig.listening_daemon().await, rig.listening_daemon().await];
    for (prefix, delay_ms) in [("Job@record@a", 40), ("Job@record@b", 1_500)] {
        arm_many(&rig, prefix, COUNT, delay_ms).await;
    }
    rig.until_done(2 * COUNT).await;
    until("both are at rest", async || {
        daemons.iter().all(|daemon| daemon.status.running() == 0)
    })
    .await;
    rig.each_ran_once(2 * COUNT).await;
}

#[tokio::test]
async fn a_short_delay_needs_no_sweep_among_many_other_keys() {
    let debuggable = PrivateRedis::options().set("enable-debug-command", "yes");
    let setup = Setup::new("sweep.interval = '1h'").redis(debuggable);
    let rig = setup.start().await;
    // Redis expires no key by itself, as one with millions of keys all but does: the daemon touches each at its time.
    let () = rig.redis_says(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    arm_many(&rig, "cache:", 100_000, 3_600_000).await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    rig.arm("Job@record@first", 50).await;
    rig.until_done(1).await;
    for number in 0..20 {
        rig.arm(&format!("Job@record@bare{number}"), 300).await;
        daemon
            .create(&format!("Job@record@made{number}"), 300)
            .await;
    }
    rig.until_done(41).await;
    rig.each_ran_once(41).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
}
