//! What `ZREM` answers is kept: 1 before the start means that the task never starts, 0 that it does.

use std::collections::HashSet;
use std::time::Duration;

use lapsed::UnixMs;
use lapsed::task::State;

use super::queue::{MAPPED, Queue, SET, seconds, until_kept, with_events};
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::wait::until;

async fn ran(rig: &Rig) -> HashSet<String> {
    rig.runs().await.into_iter().map(|run| run.name).collect()
}

/// Adds tasks that are due in some seconds, and waits until lapsed has them. Returns when they are due.
async fn adopted(rig: &Rig, queue: &mut Queue, members: &[String], from_now: i64) -> i64 {
    let due = seconds(rig, from_now).await;
    for member in members {
        queue.add(member, due).await;
    }
    for member in members {
        queue.until_acknowledged(member).await;
    }
    due
}

fn members(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect()
}

#[tokio::test]
async fn an_entry_removed_by_zrem_while_no_daemon_runs_never_starts() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    until_kept(&rig).await;
    let mut queue = Queue::of(&rig).await;
    let (gone, kept) = (members("gone", 20), members("kept", 20));
    adopted(&rig, &mut queue, &kept, 12).await;
    let due = adopted(&rig, &mut queue, &gone, 12).await;
    daemon.kill();
    for member in &gone {
        assert!(queue.remove(member).await, "{member}");
    }
    rig.until_clock(UnixMs(due * 1000 + 500)).await;
    let _next = rig.listening_daemon().await;
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    for member in &gone {
        let name = format!("Job@record@{member}");
        rig.until_state(&name, State::Cancelled).await;
    }
    assert!(ran(&rig).await.iter().all(|name| name.contains("kept")));
}

#[tokio::test]
async fn an_entry_removed_by_zrem_during_a_pause_never_starts() {
    let rig = with_events(MAPPED).await;
    let _daemon = rig.listening_daemon().await;
    until_kept(&rig).await;
    let mut queue = Queue::of(&rig).await;
    let (gone, kept) = (members("gone", 20), members("kept", 20));
    adopted(&rig, &mut queue, &kept, 10).await;
    let due = adopted(&rig, &mut queue, &gone, 10).await;
    let shell = Shell::of(&rig);
    shell.text(&["pause", "Job"]);
    rig.until_clock(UnixMs(due * 1000 + 3_000)).await;
    assert_eq!(ran(&rig).await.len(), 0);
    for member in &gone {
        assert!(queue.remove(member).await, "{member}");
    }
    shell.text(&["resume", "Job"]);
    // Without events and audits, the sweep finds them: once a second in these tests.
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    for member in &gone {
        let name = format!("Job@record@{member}");
        rig.until_state(&name, State::Cancelled).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zrem_around_the_due_time_tells_whether_the_task_starts() {
    const COUNT: i64 = 200;
    let rig = with_events(MAPPED).await;
    let _daemon = rig.listening_daemon().await;
    until_kept(&rig).await;
    let mut queue = Queue::of(&rig).await;
    let first = rig.now_ms().await + 8_000;
    for number in 0..COUNT {
        queue.add(&number.to_string(), first + number * 20).await;
    }
    for number in 0..COUNT {
        queue.until_acknowledged(&number.to_string()).await;
    }
    let (mut removed, mut started) = (HashSet::new(), HashSet::new());
    for number in 0..COUNT {
        let moment = first + number * 20 + rand::random_range(-40..15);
        rig.until_clock(UnixMs(moment)).await;
        let name = format!("Job@record@{number}");
        match queue.remove(&number.to_string()).await {
            true => removed.insert(name),
            false => started.insert(name),
        };
    }
    rig.until_done(started.len()).await;
    for name in &removed {
        rig.until_state(name, State::Cancelled).await;
    }
    assert_eq!(ran(&rig).await, started, "{} were removed", removed.len());
    rig.each_ran_once(started.len()).await;
}

#[tokio::test]
async fn a_daemon_that_dies_between_taking_an_entry_and_its_claim_loses_no_task() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    until_kept(&rig).await;
    let mut queue = Queue::of(&rig).await;
    adopted(&rig, &mut queue, &members("", 1), 6).await;
    let mut other = rig.sql.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = 'Job@record@0' FOR UPDATE";
    sqlx::query(lock).execute(&mut *other).await.unwrap();
    until("its entry is taken", async || {
        Queue::of(&rig).await.score("0").await.is_none()
    })
    .await;
    daemon.kill();
    other.rollback().await.unwrap();
    assert!(!queue.remove("0").await);
    let _next = rig.listening_daemon().await;
    rig.until_done(1).await;
    assert_eq!(rig.runs().await.len(), 1);
    until("nothing is left of it", async || {
        let register: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:sets:*"]).await;
        let fields: Vec<String> = rig.redis_says(&["HKEYS", &register[0]]).await;
        !fields.iter().any(|field| field.starts_with("taken:"))
    })
    .await;
}

#[tokio::test]
async fn a_task_that_is_moved_to_a_later_time_at_its_due_time_runs_then() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let due = adopted(&rig, &mut queue, &members("", 1), 6).await;
    daemon.kill();
    rig.until_clock(UnixMs(due * 1000 + 500)).await;
    let later = seconds(&rig, 10).await;
    queue.add("0", later).await;
    let _next = rig.listening_daemon().await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.runs().await[0].due_ms, later * 1000 + 1);
    let deadline = Duration::from_secs(60);
    tokio::time::timeout(deadline, queue.until_empty())
        .await
        .unwrap();
    let left: Vec<String> = rig
        .redis_says(&["ZRANGEBYSCORE", SET, "-inf", "(inf"])
        .await;
    assert_eq!(left, Vec::<String>::new());
}
