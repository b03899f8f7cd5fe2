//! What becomes of armed alarms when processes and servers end, and come back empty.

use std::time::Duration;

use lapsed::timer::{Alarm, ArmMode, Remaining};
use lapsed_sandbox::PrivateRedis;

use super::TimerUnderTest;
use super::harness::Running;
use crate::support::wait::until;

pub async fn a_new_instance_finds_what_an_earlier_one_has_armed(timer: TimerUnderTest) {
    let redis = PrivateRedis::start().await.unwrap();
    let first = Running::start(timer, &redis).await;
    let alarms: Vec<Alarm> = (0..50)
        .map(|number| first.alarm(number, 2_000 + number * 20))
        .collect();
    first.arm(&alarms, ArmMode::Replace).await;
    first.stop().await;
    let second = Running::start(timer, &redis).await;
    if !timer.has_entries {
        // Without entries, the audit of the new daemon arms them.
        second.arm(&alarms, ArmMode::IfMissing).await;
    }
    second.signalled(&alarms).await;
}

pub async fn an_empty_store_is_filled_again(timer: TimerUnderTest) {
    let redis = PrivateRedis::start().await.unwrap();
    let running = Running::start(timer, &redis).await;
    let alarms: Vec<Alarm> = (0..50)
        .map(|number| running.alarm(number, 3_000 + number * 10))
        .collect();
    running.arm(&alarms, ArmMode::Replace).await;
    let mut connection = redis.connect(0).await.unwrap();
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await
        .unwrap();
    let keys: Vec<_> = alarms.iter().map(|alarm| alarm.key.clone()).collect();
    let before = running.timer.remaining(&keys).await.unwrap();
    assert_eq!(before, vec![Remaining::Missing; keys.len()]);
    running.arm(&alarms, ArmMode::IfMissing).await;
    let after = running.timer.remaining(&keys).await.unwrap();
    let held = after.iter().filter(|held| **held != Remaining::Missing);
    let expected = if timer.has_entries { keys.len() } else { 0 };
    assert_eq!(held.count(), expected);
    running.signalled(&alarms).await;
}

pub async fn a_server_that_was_away_is_used_again(timer: TimerUnderTest) {
    let mut redis = PrivateRedis::start().await.unwrap();
    let running = Running::start(timer, &redis).await;
    let held = [running.alarm("held", 500)];
    running.arm(&held, ArmMode::Replace).await;
    running.timer.expect(held.to_vec());
    redis.kill();
    // From memory, while the server is away.
    running.signalled(&held).await;
    let refused = [running.alarm("refused", 60_000)];
    match running.timer.arm(&refused, ArmMode::Replace).await {
        Ok(_) => assert!(!timer.has_entries, "armed without a server"),
        Err(error) => assert!(error.is_transient(), "{error}"),
    }
    redis.start_again().await.unwrap();
    let alarm = [running.alarm("again", 1_000)];
    until("it arms again", async || {
        running.timer.arm(&alarm, ArmMode::IfMissing).await.is_ok()
    })
    .await;
    running.signalled(&alarm).await;
}

pub async fn alarms_that_fall_due_while_the_server_is_silent_are_signalled(timer: TimerUnderTest) {
    let redis = PrivateRedis::start().await.unwrap();
    let running = Running::start(timer, &redis).await;
    let alarms: Vec<Alarm> = (0..30)
        .map(|number| running.alarm(number, 1_000 + number * 100))
        .collect();
    running.arm(&alarms, ArmMode::IfMissing).await;
    redis.stop_process().unwrap();
    until("all are overdue", async || {
        running.clock.now() > alarms[29].due.plus(Duration::from_secs(1))
    })
    .await;
    redis.continue_process().unwrap();
    running.signalled(&alarms).await;
}
