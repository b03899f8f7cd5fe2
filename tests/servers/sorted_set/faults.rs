//! Redis fails in every way; tasks are neither lost nor run twice.

use lapsed::task::State;

use super::queue::{MAPPED, Queue, SET, due_of, seconds, with_events};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

#[tokio::test]
async fn adopted_tasks_run_while_redis_is_down_and_requests_when_it_is_back() {
    let mut rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let now = seconds(&rig, 0).await;
    let mut queue = Queue::of(&rig).await;
    for (member, delay) in [("during", 3), ("far", 7200)] {
        queue.add(member, now + delay).await;
        queue.until_acknowledged(member).await;
    }
    rig.redis.kill();
    rig.until_done(1).await;
    assert!(!daemon.create("Job@record@made", 7_200_000).await.armed);
    // It comes back empty.
    rig.redis.start_again().await.unwrap();
    let mut queue = Queue::of(&rig).await;
    queue.add("after", seconds(&rig, 1).await).await;
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    until("the entries are written again", async || {
        let mut members = Queue::of(&rig).await.members().await;
        members.sort();
        members == ["far", "made"]
    })
    .await;
    assert_eq!(rig.state("Job@record@far").await, State::Pending);
}

/// As if the daemon died between the two: an adopted request is not acknowledged, and its task does not run twice.
#[tokio::test]
async fn without_scripts_nothing_is_acknowledged_and_each_task_runs_once() {
    let rig = with_events(MAPPED).await;
    let () = rig
        .redis_says(&["ACL", "SETUSER", "default", "-@scripting"])
        .await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    for member in ["a", "b"] {
        queue.add(member, now + 1).await;
    }
    rig.until_done(2).await;
    daemon.kill();
    assert_eq!(queue.members().await, ["a", "b"]);
    let () = rig
        .redis_says(&["ACL", "SETUSER", "default", "+@scripting"])
        .await;
    let _next = rig.listening_daemon().await;
    queue.until_empty().await;
    rig.each_ran_once(2).await;
}

#[tokio::test]
async fn a_key_of_another_type_leaves_tasks_to_the_ledger() {
    let rig = Setup::new("timer = 'sorted_set'\nsorted_set.keys = ['other', 'delay_queue_job']")
        .start()
        .await;
    let () = rig.redis_says(&["SET", "other", "text"]).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    queue.add("Job@record@zadd", seconds(&rig, 1).await).await;
    assert!(!daemon.create("Job@record@made", 1_000).await.armed);
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    let _: i64 = rig.redis_says(&["DEL", "other"]).await;
    queue.until_empty().await;
    assert!(daemon.create("Job@record@after", 500).await.armed);
    rig.until_done(3).await;
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_is_left_alone() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let now = seconds(&rig, 0).await;
    let mut queue = Queue::of(&rig).await;
    queue.add("a", now + 8).await;
    queue.until_acknowledged("a").await;
    // Its master never answers.
    let () = rig.redis_says(&["REPLICAOF", "127.0.0.1", "1"]).await;
    until("it is not listened to", async || {
        daemon.status.is_listening() == Some(false)
    })
    .await;
    rig.until_done(1).await;
    let () = rig.redis_says(&["REPLICAOF", "NO", "ONE"]).await;
    daemon.hears_events().await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.runs().await[0].due_ms, due_of(now + 8).0);
}

#[tokio::test]
async fn a_restart_of_redis_with_its_data_loses_nothing() {
    let redis = lapsed_sandbox::PrivateRedis::options().set("appendonly", "yes");
    let mut rig = Setup::new(MAPPED).redis(redis).start().await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    queue.add("early", now + 5).await;
    queue.add("far", now + 7200).await;
    queue.until_acknowledged("far").await;
    rig.redis.restart().await.unwrap();
    let mut queue = Queue::of(&rig).await;
    queue.add("after", seconds(&rig, 2).await).await;
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    assert_eq!(rig.state("Job@record@far").await, State::Pending);
    until("the mark is of the new process", async || {
        let marks: Vec<String> = rig.redis_says(&["ZRANGEBYSCORE", SET, "inf", "inf"]).await;
        let info: String = rig.redis_says(&["INFO", "server"]).await;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let kept = format!("#lapsed:kept:{}:", run_id.unwrap().trim());
        marks.iter().any(|mark| mark.starts_with(&kept))
    })
    .await;
    drop(daemon);
}

#[tokio::test]
async fn entries_of_tasks_that_ended_unsettled_are_removed_by_an_audit() {
    let rig = Rig::new(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@left", 0).await;
    rig.until_done(1).await;
    daemon.stop().await;
    let old = (rig.now_ms().await - 120_000) * 1000;
    let _: i64 = rig
        .redis_says(&["ZADD", SET, &old.to_string(), "left"])
        .await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@1", 0).await;
    rig.until_done(2).await;
    Queue::of(&rig).await.until_empty().await;
    rig.each_ran_once(2).await;
}
