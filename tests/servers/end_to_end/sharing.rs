//! Daemons share the work, and come in for each other.

use lapsed::engine::DropReason;
use lapsed::{Handlers, TaskContext};
use serde_json::Value;

use crate::end_to_end::membership::members_of;
use crate::support::daemon::Daemon;
use crate::support::handlers::write_down;
use crate::support::maria::counter;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::{self, create};
use crate::support::wait::until;

/// Creates `Job@record@{prefix}0` and so on; see [`tasks::create_many`].
pub async fn create_many(rig: &Rig, prefix: &str, count: i64, first_ms: i64, apart_ms: i64) {
    let prefix = format!("Job@record@{prefix}");
    let client = rig.client().await;
    tasks::create_many(&client, &prefix, count, first_ms, apart_ms).await;
}

/// Daemons that hear events and know of each other.
pub async fn connected<const N: usize>(rig: &Rig) -> [Daemon; N] {
    let daemons = std::array::from_fn(|_| rig.daemon());
    know_each_other(&daemons).await;
    daemons
}

pub async fn know_each_other(daemons: &[Daemon]) {
    for daemon in daemons {
        daemon.hears_events().await;
        until("all know of each other", async || {
            daemon.status.members() == daemons.len()
        })
        .await;
    }
}

pub fn won(daemon: &Daemon) -> f64 {
    daemon.metric("lapsed_claims_total{result=\"won\"}")
}

#[tokio::test]
async fn two_daemons_share_the_tasks_alike() {
    let rig = Rig::new("").await;
    let daemons: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "", 400, 1_500, 10).await;
    rig.until_done(400).await;
    rig.each_ran_once(400).await;
    for daemon in &daemons {
        assert!((120.0..=280.0).contains(&won(daemon)), "{}", won(daemon));
        assert!(daemon.dropped(DropReason::NotOurs) > 100.0);
    }
    let missed = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"missed\"}"));
    // On a busy machine the sweep comes in for one or the other. Two that both did all would lose 400.
    let missed = missed.sum::<f64>();
    assert!(missed < 200.0, "{missed} claims in vain");
}

/// What the servers were asked for.
#[derive(Debug)]
struct Asked {
    updates: i64,
    selects: i64,
    pttls: i64,
}

async fn asked(rig: &Rig) -> Asked {
    Asked {
        updates: counter(&rig.sql, "Com_update").await,
        selects: counter(&rig.sql, "Com_select").await,
        pttls: rig.redis_calls("pttl").await,
    }
}

/// What is asked for while so many tasks fall due, at a pace that a busy machine keeps up with too.
async fn asked_for_tasks(rig: &Rig, prefix: &str, count: i64) -> Asked {
    let done = rig.with_status(1).await;
    create_many(rig, prefix, count, 1_500, 10).await;
    let before = asked(rig).await;
    rig.until_done((done + count) as usize).await;
    let after = asked(rig).await;
    Asked {
        updates: after.updates - before.updates,
        selects: after.selects - before.selects,
        pttls: after.pttls - before.pttls,
    }
}

#[tokio::test]
async fn a_second_daemon_asks_for_little_more() {
    const COUNT: i64 = 400;
    let rig = Setup::new("").own_maria().start().await;
    let first = rig.listening_daemon().await;
    let alone = asked_for_tasks(&rig, "a", COUNT).await;
    let daemons = [first, rig.daemon()];
    know_each_other(&daemons).await;
    let shared = asked_for_tasks(&rig, "b", COUNT).await;
    rig.each_ran_once(2 * COUNT as usize).await;
    println!("alone {alone:?}, shared {shared:?}");
    // At worst a claim and a settlement for each task, and some claims in vain; two that both did all would ask three times.
    assert!(shared.updates <= COUNT * 5 / 2, "{alone:?} {shared:?}");
    // Its owner asks three times (`costs.rs`), the next in line twice at most; two that both did all would ask six times.
    assert!(shared.pttls <= COUNT * 11 / 2, "{alone:?} {shared:?}");
    let missed = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"missed\"}"));
    let missed = missed.sum::<f64>();
    // Two that both did all would lose one claim for each task.
    let bound = COUNT as f64 / 2.0;
    println!("{missed} claims in vain");
    assert!(missed < bound, "{missed} of {COUNT} claimed in vain");
}

#[tokio::test]
async fn tasks_owned_by_a_killed_daemon_start_on_another() {
    let rig = Rig::new("").await;
    let [first, second]: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "", 200, 1_000, 25).await;
    first.kill();
    rig.until_done(200).await;
    rig.each_ran_once(200).await;
    let left = second.dropped(DropReason::NotOurs);
    assert!(left > 0.0, "none was the killed one's");
    until("it is not counted any more", async || {
        second.status.members() == 1
    })
    .await;
}

/// Holds a slot for as long as the test lasts.
fn able_to_hold(handlers: Handlers) -> Handlers {
    let mut handlers = handlers;
    handlers.on(("Job", "hold"), |_: Vec<String>| std::future::pending());
    handlers
}

#[tokio::test]
async fn a_full_daemon_does_not_keep_its_share_waiting() {
    let rig = Rig::new("").await;
    let two_slots = rig.config_with("engine.concurrency = 2");
    let handlers = able_to_hold(crate::support::handlers::handlers());
    let full = Daemon::start(&two_slots, handlers);
    for number in 0..2 {
        create(&full.tasks, &format!("Job@hold@{number}"), 0).await;
    }
    until("its slots are taken", async || full.status.running() == 2).await;
    let daemons = [full, rig.daemon()];
    know_each_other(&daemons).await;
    until_known_to_be_full(&rig).await;
    let left_waiting = daemons[1].dropped(DropReason::NotOurs);
    create_many(&rig, "", 100, 500, 20).await;
    rig.until_done(100).await;
    rig.each_ran_once(100).await;
    assert_eq!(daemons[1].dropped(DropReason::NotOurs), left_waiting);
}

/// Waits until one of two daemons says that it is full, and the other has written its own heartbeat twice since: with
/// the first it has read the others', with the second it has taken them in.
async fn until_known_to_be_full(rig: &Rig) {
    let is_full = |heartbeat: &Value| heartbeat["readiness"] == "full";
    until("one says that it is full", async || {
        heartbeats(rig).await.iter().any(is_full)
    })
    .await;
    let other = async || {
        let mut all = heartbeats(rig).await.into_iter();
        let other = all.find(|heartbeat| !is_full(heartbeat));
        other.expect("the other has free slots")["until"].clone()
    };
    for _ in 0..2 {
        let before = other().await;
        until("the other writes its heartbeat", async || {
            other().await != before
        })
        .await;
    }
}

/// What daemons say of themselves.
async fn heartbeats(rig: &Rig) -> Vec<Value> {
    let fields: Vec<String> = rig.redis_says(&["HVALS", &members_of(rig).await]).await;
    let parse = |text: &String| serde_json::from_str(text).unwrap();
    fields.iter().map(parse).collect()
}

#[tokio::test]
async fn without_redis_each_daemon_owns_all() {
    let mut rig = Rig::new("").await;
    let [first, second]: [Daemon; 2] = connected(&rig).await;
    rig.redis.kill();
    create_many(&rig, "a", 100, 500, 40).await;
    rig.until_done(100).await;
    until("neither counts with the other", async || {
        first.status.members() == 1 && second.status.members() == 1
    })
    .await;
    second.kill();
    create_many(&rig, "b", 100, 1_500, 10).await;
    rig.until_done(200).await;
    rig.each_ran_once(200).await;
    rig.redis.start_again().await.unwrap();
    let other = rig.daemon();
    know_each_other(&[first, other]).await;
}

#[tokio::test]
async fn a_task_that_only_one_daemon_can_run_is_its_own() {
    let rig = Rig::new("").await;
    let with = |method: &str| {
        let mut handlers = Handlers::new();
        handlers.on(
            ("Job", method),
            |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
        );
        handlers
    };
    let daemons = [
        rig.daemon_with(with("record")),
        rig.daemon_with(with("other")),
    ];
    know_each_other(&daemons).await;
    for number in 0..60 {
        create(&daemons[0].tasks, &format!("Job@other@{number}"), 1_500).await;
    }
    create_many(&rig, "", 60, 1_500, 10).await;
    rig.until_done(120).await;
    rig.each_ran_once(120).await;
    assert_eq!(daemons.each_ref().map(won), [60.0, 60.0]);
}

#[tokio::test]
async fn a_stopping_daemon_transfers_its_tasks() {
    let rig = Rig::new("").await;
    let [first, second]: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "", 300, 1_000, 20).await;
    first.stop().await;
    assert_eq!(
        rig.redis_says::<i64>(&["HLEN", &members_of(&rig).await])
            .await,
        1
    );
    until("it is not counted any more", async || {
        second.status.members() == 1
    })
    .await;
    let left = second.dropped(DropReason::NotOurs);
    rig.until_done(300).await;
    rig.each_ran_once(300).await;
    // From then on all are its own. That none is late is tested on a paused clock (`tests/core/membership/sharing.rs`).
    assert_eq!(second.dropped(DropReason::NotOurs), left);
}
