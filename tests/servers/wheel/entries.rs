//! Entries of programs: adopted, run once, taken from their lists.

use lapsed::engine::DropReason;
use std::collections::BTreeSet;

use lapsed::Handlers;
use lapsed::task::State;

use crate::support::handlers::handlers;
use crate::support::wait::until;
use crate::wheel::rig::{SMALL, WheelRig};

#[tokio::test]
async fn entries_of_an_unchanged_producer_run_once_in_their_slots_after_their_rounds() {
    let rig = WheelRig::new(SMALL).await;
    let daemon = rig.turning().await;
    let pushed = rig.now_ms().await;
    for cycle_num in 0..3 {
        for slot in 0..5 {
            rig.push(slot, &format!("{cycle_num}--{slot}"), cycle_num)
                .await;
        }
    }
    rig.until_done(15).await;
    rig.each_ran_once(15).await;
    for run in rig.runs().await {
        // A whole second would mark a row of a legacy program.
        let into_slot = i64::from(run.due_ms % 1_000 == 1);
        assert_eq!(run.due_ms % 200, into_slot, "{run:?}");
        let task = rig.record(&run.name).await;
        let payload = task.payload.expect("the entry has one");
        let uid: serde_json::Value = serde_json::from_str(&payload).unwrap();
        let (cycle_num, slot) = uid["uid"].as_str().unwrap().split_once("--").unwrap();
        let (cycle_num, slot): (i64, i64) = (cycle_num.parse().unwrap(), slot.parse().unwrap());
        assert_eq!(run.due_ms / 200 % 5, slot, "{payload}");
        assert!(run.due_ms >= pushed + cycle_num * 1_000, "{payload}");
        assert!(task.adopted);
    }
    rig.until_empty().await;
    daemon
        .until_counted_adopted("requested", |count| count == 15.0)
        .await;
}

#[tokio::test]
async fn identical_entries_are_as_many_tasks() {
    let rig = WheelRig::new(SMALL).await;
    for _ in 0..20 {
        rig.push(3, "same", 1).await;
    }
    let _daemon = rig.turning().await;
    for _ in 0..20 {
        rig.push(3, "same", 1).await;
    }
    rig.until_done(40).await;
    rig.each_ran_once(40).await;
    rig.until_empty().await;
}

#[tokio::test]
async fn an_element_that_is_no_entry_is_rejected_once_and_kept() {
    let rig = WheelRig::new(SMALL).await;
    let daemon = rig.turning().await;
    let long = "x".repeat(10 * 1024 * 1024);
    let late = format!(r#"{{"method":"record","cycle_num":{}}}"#, i64::MAX);
    let garbage = [
        "hello",
        r#"{"params":{},"cycle_num":0}"#,
        r#"{"method":"no such name","cycle_num":0}"#,
        r#"{"method":"record","cycle_num":-1}"#,
        r#"{"method":"record","cycle_num":1.5}"#,
        r#"{"method":"record","cycle_num":"1"}"#,
        &late,
        &long,
    ];
    for (slot, element) in (0..).zip(garbage) {
        rig.push_text(slot % 5, element).await;
        rig.push(slot % 5, "good", 0).await;
        rig.push_text(slot % 5, "delete").await;
    }
    rig.until_done(8).await;
    rig.each_ran_once(8).await;
    until("the lists are empty", async || {
        let keys: Vec<String> = rig.redis_says(&["KEYS", "task_?"]).await;
        keys.is_empty()
    })
    .await;
    let refused: BTreeSet<String> = rig.list("task_refused").await.into_iter().collect();
    assert_eq!(refused, garbage.map(str::to_owned).into());
    assert_eq!(rig.list("task_refused").await.len(), garbage.len());
    assert_eq!(daemon.dropped(DropReason::NotAnEntry), garbage.len() as f64);
}

#[tokio::test]
async fn entries_that_no_route_adopts_stay_in_their_lists() {
    let rig = WheelRig::new(SMALL).await;
    let daemon = rig.turning().await;
    let other = r#"{"method":"other","params":[],"cycle_num":0}"#;
    for _ in 0..3 {
        rig.push_text(1, other).await;
        rig.push(1, "ours", 0).await;
    }
    rig.until_done(3).await;
    assert_eq!(rig.list("task_1").await, [other; 3]);
    daemon.stop().await;
    let mut handlers = handlers();
    handlers.on(("Job", "other"), |_: Vec<String>| async {
        Ok::<_, lapsed::HandlerError>(())
    });
    let _daemon = rig.turning_with(handlers).await;
    rig.until_done(6).await;
    rig.until_empty().await;
}

#[tokio::test]
async fn a_daemon_that_adopts_nothing_takes_no_entry() {
    let rig = WheelRig::new(&format!("{SMALL}\nadopt.enabled = false")).await;
    rig.push(1, "kept", 0).await;
    rig.push_text(2, "garbage").await;
    let daemon = rig.turning().await;
    daemon.create("Job@record@1", 2_500).await;
    rig.until_done(1).await;
    assert_eq!(rig.list("task_1").await.len(), 1);
    assert_eq!(rig.list("task_2").await, ["garbage"]);
}

#[tokio::test]
async fn an_entry_is_adopted_long_before_its_round() {
    let rig = WheelRig::new("").await;
    let daemon = rig.turning().await;
    let now = rig.now_ms().await;
    // One that is not about to be visited.
    let slot = (now / 1_000 + 1_800) % 3_600;
    rig.push(slot, "later", 47).await;
    rig.until_rows(1).await;
    let name: String = sqlx::query_scalar("SELECT `key` FROM tb_time_limit_task")
        .fetch_one(&rig.sql)
        .await
        .unwrap();
    let task = rig.record(&name).await;
    assert_eq!(task.state, State::Pending);
    let due_s = task.due.0 / 1_000;
    assert_eq!(due_s % 3_600, slot);
    let visit = now / 1_000 + 1_800;
    assert_eq!(due_s, visit + 47 * 3_600);
    until("its entry is in its slot", async || {
        let score: Option<i64> = rig
            .redis_says(&["ZSCORE", &format!("task_lapsed:{slot}"), &name])
            .await;
        score == Some(task.due.0)
    })
    .await;
    daemon.tasks.cancel(&task.key).await.unwrap();
    rig.until_empty().await;
}

#[tokio::test]
async fn two_daemons_take_each_entry_once() {
    let rig = WheelRig::new(SMALL).await;
    let daemons = [rig.turning().await, rig.turning().await];
    for number in 0..200 {
        rig.push(number % 5, &number.to_string(), number % 3).await;
    }
    rig.until_done(200).await;
    rig.each_ran_once(200).await;
    let payloads = rig.payloads().await;
    assert_eq!(payloads.iter().collect::<BTreeSet<_>>().len(), 200);
    rig.until_empty().await;
    drop(daemons);
}

#[tokio::test]
async fn a_daemon_without_handlers_takes_nothing() {
    let rig = WheelRig::new(SMALL).await;
    let _idle = rig.turning_with(Handlers::new()).await;
    rig.push(2, "kept", 0).await;
    let daemon = rig.turning().await;
    rig.until_done(1).await;
    drop(daemon);
}
