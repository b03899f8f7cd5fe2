//! What happens when a daemon dies, or Redis loses its data, is gone, or holds something else.

use lapsed::timer::Source;
use std::time::Duration;

use lapsed::task::{State, UnixMs};

use crate::support::tasks::create_many;
use crate::support::wait::until;
use crate::wheel::rig::{ALONE, SMALL, WheelRig};

const ELEMENT: &str = r#"{"method":"record","params":{"uid":7},"cycle_num":0}"#;

#[tokio::test]
async fn an_entry_taken_by_a_daemon_that_died_runs_once() {
    let rig = WheelRig::new(&format!("{ALONE}\n{SMALL}")).await;
    let name = "Job@record@~0193b2f4c1d0123456789";
    let now = rig.now_ms().await;
    let taken = format!("{}:{}:{ELEMENT}", now - 1_999, now - 3_000);
    let leave = async || {
        let _: i64 = rig
            .redis_says(&["HSET", "task_lapsed:taken", name, &taken])
            .await;
    };
    // It died before the adoption.
    leave().await;
    let daemon = rig.turning().await;
    rig.until_rows(1).await;
    rig.until_state(name, State::Done).await;
    rig.until_empty().await;
    assert_eq!(rig.payloads().await, [Some(r#"{"uid":7}"#.to_owned())]);
    // It died after the adoption, before it removed the entry.
    leave().await;
    rig.until_empty().await;
    assert_eq!(rig.state(name).await, State::Done);
    rig.each_ran_once(1).await;
    // The same while no daemon runs.
    daemon.stop().await;
    leave().await;
    let _daemon = rig.turning().await;
    rig.until_empty().await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn an_emptied_redis_is_rebuilt_from_the_ledger() {
    let rig = WheelRig::new(&format!("{ALONE}\n{SMALL}")).await;
    let daemon = rig.turning().await;
    daemon.has_audited().await;
    create_many(&rig.client().await.into(), "Job@record@", 50, 3_000, 20).await;
    let () = rig.redis_says(&["FLUSHALL"]).await;
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
}

#[tokio::test]
async fn tasks_run_from_the_ledger_while_redis_is_down_and_from_the_wheel_afterwards() {
    let mut rig = WheelRig::new(SMALL).await;
    let daemon = rig.turning().await;
    create_many(&rig.client().await.into(), "Job@record@", 20, 300, 100).await;
    rig.inner().redis.kill();
    rig.until_done(20).await;
    until("the wheel stands still", async || {
        daemon.status.is_listening() == Some(false)
    })
    .await;
    rig.inner().redis.restart().await.unwrap();
    daemon.hears_events().await;
    rig.push(1, "after", 1).await;
    rig.until_done(21).await;
    rig.each_ran_once(21).await;
}

#[tokio::test]
async fn a_killed_daemon_leaves_its_entries_to_the_next_one() {
    let rig = WheelRig::new(&format!("{SMALL}\nengine.lease = '2s'")).await;
    let daemon = rig.turning().await;
    for number in 0..100 {
        rig.push(number % 5, &number.to_string(), number % 2).await;
    }
    until("some have run", async || rig.with_status(1).await > 0).await;
    daemon.kill();
    let _daemon = rig.turning().await;
    rig.until_done(100).await;
    let payloads = rig.payloads().await;
    assert_eq!(payloads.len(), 100, "none was adopted twice");
    rig.until_empty().await;
}

#[tokio::test]
async fn keys_of_another_type_do_not_stop_the_wheel() {
    let rig = WheelRig::new(&format!("{ALONE}\n{SMALL}")).await;
    for name in ["task_0", "task_lapsed:1", "task_lapsed:tick"] {
        let _: i64 = rig.redis_says(&["SADD", name, "other"]).await;
    }
    let _daemon = rig.turning().await;
    for slot in [2, 3, 4] {
        rig.push(slot, &slot.to_string(), 0).await;
    }
    rig.until_done(3).await;
    rig.each_ran_once(3).await;
    let other: i64 = rig.redis_says(&["SCARD", "task_0"]).await;
    assert_eq!(other, 1);
}

#[tokio::test]
async fn a_failed_run_is_tried_again_by_the_wheel() {
    let rig = WheelRig::new(&format!("{ALONE}\n{SMALL}")).await;
    let mut handlers = lapsed::Handlers::new();
    handlers.on(("Job", "record"), |task: lapsed::TaskContext| async move {
        match task.attempt() {
            3 => Ok(()),
            _ => Err(lapsed::HandlerError::retry_after(
                "not yet",
                Duration::from_millis(700),
            )),
        }
    });
    let daemon = rig.turning_with(handlers).await;
    rig.push(2, "retried", 0).await;
    rig.until_done(1).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
    rig.until_empty().await;
    let attempts = rig.number("SELECT CAST(attempt AS SIGNED) FROM tb_time_limit_task");
    assert_eq!(attempts.await, 3);
}

#[tokio::test]
async fn an_entry_left_behind_by_a_crash_is_removed_by_an_audit() {
    let rig = WheelRig::new(SMALL).await;
    let daemon = rig.turning().await;
    daemon.create("Job@record@1", 0).await;
    rig.until_done(1).await;
    rig.until_empty().await;
    daemon.stop().await;
    let long_ago = rig.now_ms().await - 90_000;
    let slot = UnixMs(long_ago).0 / 200 % 5;
    let _: i64 = rig
        .redis_says(&[
            "ZADD",
            &format!("task_lapsed:{slot}"),
            &long_ago.to_string(),
            "Job@record@1",
        ])
        .await;
    let _daemon = rig.turning().await;
    rig.until_empty().await;
    rig.each_ran_once(1).await;
}
