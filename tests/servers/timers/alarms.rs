//! When alarms are signalled: at their due time or after it, by the ledger's clock.

use lapsed::timer::{Alarm, ArmMode};
use lapsed_sandbox::PrivateRedis;

use super::TimerUnderTest;
use super::harness::Running;

async fn start(timer: TimerUnderTest) -> (PrivateRedis, Running) {
    let redis = PrivateRedis::start().await.unwrap();
    let running = Running::start(timer, &redis).await;
    (redis, running)
}

pub async fn every_alarm_is_signalled_and_none_before_its_due_time(timer: TimerUnderTest) {
    let (_redis, running) = start(timer).await;
    let alarms: Vec<Alarm> = (0..300)
        .map(|number| running.alarm(number, number % 30 * 75))
        .collect();
    running.arm(&alarms, ArmMode::Replace).await;
    running.signalled(&alarms).await;
}

pub async fn an_alarm_that_is_armed_repeatedly_is_not_early(timer: TimerUnderTest) {
    let (_redis, running) = start(timer).await;
    let alarm = [running.alarm("again", 900)];
    for mode in [ArmMode::Replace, ArmMode::IfMissing, ArmMode::Replace] {
        running.arm(&alarm, mode).await;
        running.timer.expect(alarm.to_vec());
    }
    running.signalled(&alarm).await;
}

pub async fn an_alarm_in_the_past_is_signalled_at_once(timer: TimerUnderTest) {
    let (_redis, running) = start(timer).await;
    let alarms = [running.alarm("past", -5_000), running.alarm("now", 0)];
    let later = [running.alarm("later", 60_000)];
    running.arm(&later, ArmMode::Replace).await;
    running.arm(&alarms, ArmMode::Replace).await;
    running.signalled(&alarms).await;
    assert!(running.signals(&later[0].key).is_empty());
}

pub async fn a_moved_alarm_is_signalled_at_its_new_time(timer: TimerUnderTest) {
    let (_redis, running) = start(timer).await;
    let before = [running.alarm("sooner", 60_000), running.alarm("later", 600)];
    running.arm(&before, ArmMode::Replace).await;
    let after = [running.alarm("sooner", 800), running.alarm("later", 2_000)];
    running.arm(&after, ArmMode::Replace).await;
    running.signalled(&after).await;
}

pub async fn a_disarmed_alarm_is_not_signalled(timer: TimerUnderTest) {
    let (_redis, running) = start(timer).await;
    let gone = running.alarm("gone", 700);
    let stays = [running.alarm("stays", 1_500)];
    running
        .arm(std::slice::from_ref(&gone), ArmMode::Replace)
        .await;
    running.arm(&stays, ArmMode::Replace).await;
    running
        .timer
        .disarm(std::slice::from_ref(&gone.key))
        .await
        .unwrap();
    running.signalled(&stays).await;
    assert!(running.signals(&gone.key).is_empty());
}

pub async fn ten_thousand_alarms_are_signalled(timer: TimerUnderTest) {
    let (_redis, running) = start(timer).await;
    let mut alarms = Vec::new();
    for page in 0..10 {
        // Due after the page is written, also on a busy machine.
        let due = |number: i64| running.alarm(page * 1_000 + number, 5_000 + number);
        let page: Vec<Alarm> = (0..1_000).map(due).collect();
        running.arm(&page, ArmMode::IfMissing).await;
        alarms.extend(page);
    }
    running.signalled(&alarms).await;
}

pub async fn the_ledgers_clock_decides_and_not_the_local_one(timer: TimerUnderTest) {
    let redis = PrivateRedis::start().await.unwrap();
    for ahead_ms in [-3_600_000, 3_600_000] {
        let running = Running::start_at(timer, &redis, ahead_ms).await;
        let alarms: Vec<Alarm> = (0..20)
            .map(|number| running.alarm(format!("{ahead_ms}:{number}"), number * 60))
            .collect();
        let far = [running.alarm(format!("{ahead_ms}:far"), 1_800_000)];
        running.arm(&far, ArmMode::Replace).await;
        running.arm(&alarms, ArmMode::Replace).await;
        running.signalled(&alarms).await;
        assert!(running.signals(&far[0].key).is_empty());
        running.timer.disarm(&[far[0].key.clone()]).await.unwrap();
        running.stop().await;
    }
}

pub async fn a_stop_ends_the_timer(timer: TimerUnderTest) {
    let (mut redis, running) = start(timer).await;
    let alarms: Vec<Alarm> = (0..100)
        .map(|number| running.alarm(number, number * 20))
        .collect();
    running.arm(&alarms, ArmMode::Replace).await;
    running.signalled(&alarms[..10]).await;
    running.stop().await;
    // Also while its server does not answer.
    let running = Running::start(timer, &redis).await;
    redis.stop_process().unwrap();
    running.stop().await;
    redis.kill();
}
