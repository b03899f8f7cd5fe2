//! The hand: milliseconds within a slot, missed ticks, entries that move and vanish.

use lapsed::task::{State, UnixMs};
use lapsed::timer::Source;
use lapsed::{Due, Task};

use crate::support::tasks::{create_many, key};
use crate::support::wait::until;
use crate::wheel::rig::{ALONE, SMALL, WheelRig};

#[tokio::test]
async fn tasks_of_one_slot_start_in_order_of_their_milliseconds() {
    let rig = WheelRig::new(&format!(
        "{ALONE}\nengine.concurrency = 1\nwheel = {{ slots = 5, tick = '3s' }}"
    ))
    .await;
    let _daemon = rig.turning().await;
    let client = rig.client().await;
    let now = client.now().await.unwrap().0;
    let slot = (now / 3_000 + 2) * 3_000;
    let dues = [2_750, 20, 1_500, 333, 1_501, 900];
    let tasks = dues.map(|ms| {
        let task = Task::from(key(&format!("Job@record@{ms}")));
        (task, Due::at(UnixMs(slot + ms)).unwrap())
    });
    client.create_many(tasks.to_vec()).await.unwrap();
    rig.until_done(6).await;
    rig.each_ran_once(6).await;
    let order = rig.runs().await;
    let order: Vec<i64> = order.iter().map(|run| run.due_ms - slot).collect();
    assert_eq!(order, [20, 333, 900, 1_500, 1_501, 2_750]);
    rig.until_empty().await;
}

#[tokio::test]
async fn tasks_of_other_programs_run_by_the_wheel_alone() {
    let rig = WheelRig::new(&format!("{ALONE}\n{SMALL}")).await;
    let daemon = rig.turning().await;
    // From due at once to several rounds ahead.
    create_many(&rig.client().await.into(), "Job@record@", 100, 0, 35).await;
    rig.until_done(100).await;
    rig.each_ran_once(100).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
    rig.until_empty().await;
}

#[tokio::test]
async fn missed_ticks_are_caught_up() {
    let rig = WheelRig::new(&format!("{ALONE}\nengine.concurrency = 1")).await;
    rig.turning().await.stop().await;
    let receipts = create_many(&rig.client().await.into(), "Job@record@", 30, 500, 100).await;
    let second = rig.now_ms().await / 1_000;
    // What is pushed behind its tick waits for a round.
    rig.push((second + 4) % 3_600, "one", 0).await;
    rig.push((second + 5) % 3_600, "two", 0).await;
    let last = receipts.last().unwrap().due();
    rig.until_clock(UnixMs(last.0.max((second + 8) * 1_000)))
        .await;
    let behind = rig.now_ms().await / 1_000 - 1;
    rig.push(behind % 3_600, "behind", 0).await;
    let _daemon = rig.turning().await;
    rig.until_rows(33).await;
    rig.until_done(32).await;
    rig.each_ran_once(32).await;
    let waits = rig.number("SELECT CAST(MAX(end_time) AS SIGNED) FROM tb_time_limit_task");
    assert_eq!(waits.await, behind + 3_600, "not early");
}

#[tokio::test]
async fn a_stopped_wheel_of_several_rounds_catches_up_in_order() {
    let rig = WheelRig::new(&format!("{ALONE}\n{SMALL}\nengine.concurrency = 1")).await;
    let receipts = create_many(&rig.client().await.into(), "Job@record@", 40, 0, 75).await;
    rig.until_clock(receipts.last().unwrap().due()).await;
    let _daemon = rig.turning().await;
    rig.until_done(40).await;
    rig.each_ran_once(40).await;
    let dues: Vec<i64> = rig.runs().await.iter().map(|run| run.due_ms).collect();
    assert!(dues.is_sorted(), "{dues:?}");
    rig.until_empty().await;
}

#[tokio::test]
async fn a_moved_task_has_one_entry_and_a_cancelled_one_none() {
    let rig = WheelRig::new("").await;
    let daemon = rig.turning().await;
    daemon.create("Job@record@1", 600_000).await;
    daemon.create("Job@record@2", 600_000).await;
    let later = rig.now_ms().await + 1_200_000;
    let due = Due::at(UnixMs(later)).unwrap();
    daemon
        .tasks
        .reschedule(&key("Job@record@1"), due)
        .await
        .unwrap();
    daemon.tasks.cancel(&key("Job@record@2")).await.unwrap();
    let slot = later / 1_000 % 3_600;
    until("one entry is left", async || {
        let mut sets: Vec<String> = rig.redis_says(&["KEYS", "task_lapsed:*"]).await;
        sets.retain(|name| !name.ends_with("tick") && !name.contains("due"));
        sets == [format!("task_lapsed:{slot}")]
    })
    .await;
    let entries: Vec<(String, i64)> = rig
        .redis_says(&[
            "ZRANGE",
            &format!("task_lapsed:{slot}"),
            "0",
            "-1",
            "WITHSCORES",
        ])
        .await;
    assert_eq!(entries, [("Job@record@1".to_owned(), later)]);
    assert_eq!(rig.state("Job@record@2").await, State::Cancelled);
}
