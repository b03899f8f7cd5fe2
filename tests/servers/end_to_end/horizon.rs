//! Tasks beyond `redis.arm_horizon` are only in the ledger, until they come near.

use std::time::Duration;

use lapsed::client::{NotArmed, Receipt};
use lapsed::ledger::RescheduleAnswer;
use lapsed::{Config, Due, TaskClient, UnixMs};
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::{self, key};
use crate::support::wait::until;

/// With a horizon shorter than a file may have.
fn with_horizon(rig: &Rig, horizon: Duration) -> Config {
    let mut config = rig.config();
    config.redis.arm_horizon = Some(horizon);
    config
}

/// Creates `Job@record@{prefix}0` and so on; how many of them have no key yet, being beyond the horizon.
async fn create_many(
    client: &TaskClient,
    prefix: &str,
    count: i64,
    first_ms: i64,
    apart_ms: i64,
) -> usize {
    let prefix = format!("Job@record@{prefix}");
    let made = tasks::create_many(client, &prefix, count, first_ms, apart_ms).await;
    let beyond = |receipt: &&Receipt| receipt.not_armed() == Some(NotArmed::BeyondHorizon);
    made.iter().filter(beyond).count()
}

async fn keys(rig: &Rig, pattern: &str) -> i64 {
    let count = format!("return #redis.call('KEYS', '{pattern}')");
    rig.redis_says(&["EVAL", &count, "0"]).await
}

#[tokio::test]
async fn a_task_far_ahead_gets_its_key_when_it_comes_near_and_runs() {
    let rig = Rig::new("").await;
    let config = with_horizon(&rig, Duration::from_secs(5));
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    daemon.has_audited().await;
    assert_eq!(
        create_many(&daemon.tasks, "far", 10_000, 3_600_000, 1).await,
        10_000
    );
    assert_eq!(keys(&rig, "Job@*").await, 0);
    assert_eq!(
        create_many(&daemon.tasks, "comes", 100, 8_000, 2).await,
        100
    );
    assert_eq!(keys(&rig, "Job@*").await, 0);
    until("keys appear", async || {
        keys(&rig, "Job@record@comes*").await == 100
    })
    .await;
    assert_eq!(rig.with_status(1).await, 0, "before their tasks fall due");
    rig.until_done(100).await;
    rig.each_ran_once(100).await;
    assert_eq!(keys(&rig, "Job@*").await, 0, "the others have none");
}

#[tokio::test]
async fn keys_are_armed_for_rows_of_programs_after_a_redis_outage() {
    let mut rig = Rig::new("nudge.enabled = false\nsweep.interval = '1h'").await;
    let config = with_horizon(&rig, Duration::from_secs(8));
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    daemon.has_audited().await;
    rig.run_sql(
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) \
         VALUES ('Job@record@sql', UNIX_TIMESTAMP(NOW(3)), UNIX_TIMESTAMP(NOW(3)) + 11)",
    )
    .await;
    // With events alone it runs only if its key is armed.
    rig.until_done(1).await;
    rig.each_ran_once(1).await;

    rig.redis.kill();
    create_many(&daemon.tasks, "away", 5, 10_000, 10).await;
    // They would have been armed by then.
    let due = rig.record("Job@record@away0").await.due;
    rig.until_clock(UnixMs(due.0 - 7_000)).await;
    rig.redis.start_again().await.unwrap();
    rig.until_done(6).await;
    rig.each_ran_once(6).await;
}

#[tokio::test]
async fn a_task_that_is_moved_beyond_the_horizon_loses_its_key_and_others_keys_stay() {
    let rig = Rig::new("").await;
    let config = with_horizon(&rig, Duration::from_secs(60));
    // Switched on later: what is armed stays.
    let before = rig.client().await;
    create_many(&before, "before", 1, 3_600_000, 0).await;
    rig.arm("Job@record@bare", 7_200_000).await;
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    daemon.has_audited().await;
    assert_eq!(create_many(&daemon.tasks, "moved", 1, 30_000, 0).await, 0);
    assert!(rig.pttl("Job@record@moved0").await > 0);
    let far = Due::after(Duration::from_secs(3_600)).unwrap();
    let answer = daemon
        .tasks
        .reschedule(&key("Job@record@moved0"), far)
        .await
        .unwrap();
    assert!(matches!(answer, RescheduleAnswer::Moved(_)));
    assert_eq!(rig.pttl("Job@record@moved0").await, -2);
    let near = Due::after(Duration::from_secs(30)).unwrap();
    daemon
        .tasks
        .reschedule(&key("Job@record@moved0"), near)
        .await
        .unwrap();
    assert!(rig.pttl("Job@record@moved0").await > 0);
    rig.until_adopted("Job@record@bare").await;
    assert!(rig.pttl("Job@record@bare").await > 0);
    assert!(rig.pttl("Job@record@before0").await > 0);
}

#[tokio::test]
async fn several_daemons_arm_what_comes_near_and_one_dies() {
    let rig = Rig::new("").await;
    let config = with_horizon(&rig, Duration::from_secs(3));
    let [one, other] = [(); 2].map(|()| Daemon::start(&config, handlers()));
    for daemon in [&one, &other] {
        daemon.hears_events().await;
        until("they know each other", async || {
            daemon.status.members() == 2
        })
        .await;
    }
    assert_eq!(create_many(&one.tasks, "shared", 400, 5_000, 10).await, 400);
    until("some are armed", async || keys(&rig, "Job@*").await > 20).await;
    one.kill();
    rig.until_done(400).await;
    rig.each_ran_once(400).await;
}

#[tokio::test]
async fn the_command_says_why_there_is_no_key_and_does_not_warn() {
    let rig = Rig::new("redis.arm_horizon = '10m'").await;
    let shell = Shell::of(&rig);
    let schedule = |words: &[&str]| {
        let (_, stdout, stderr) = shell.run(&[&["--json"], words].concat());
        (serde_json::from_str::<Value>(&stdout).unwrap(), stderr)
    };
    let (far, said) = schedule(&["schedule", "Job@record@far", "--in", "1h"]);
    assert_eq!(
        (&far["armed"], &far["not_armed"], said.as_str()),
        (&false.into(), &"beyond_horizon".into(), "")
    );
    let (near, said) = schedule(&["schedule", "Job@record@near", "--in", "9m"]);
    assert_eq!(
        (&near["armed"], &near["not_armed"], said.as_str()),
        (&true.into(), &Value::Null, "")
    );
    assert_eq!(keys(&rig, "Job@*").await, 1);
    // An audit leaves it so.
    let (swept, _) = schedule(&["sweep"]);
    assert_eq!(
        (&swept["audit"]["pending"], &swept["audit"]["rearmed"]),
        (&1.into(), &0.into())
    );
    assert_eq!(keys(&rig, "Job@*").await, 1);
}
