//! `ZREM` cancels an adopted task, and nothing else does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapsed::client::Pace;
use lapsed::ledger::ListFilter;
use lapsed::task::{Scope, State};
use lapsed::{HandlerError, Handlers, TaskContext};

use super::queue::{MAPPED, Queue, SET, seconds, until_kept, with_events};
use crate::support::handlers::write_down;
use crate::support::rig::Rig;
use crate::support::wait::{until, until_within};

/// An audit finds that the entry is gone. Audits are at least a minute apart.
async fn until_an_audit_cancels(rig: &Rig, name: &str) {
    let deadline = Duration::from_secs(300);
    until_within(deadline, format!("`{name}` is cancelled"), async || {
        rig.state(name).await == State::Cancelled
    })
    .await;
}

#[tokio::test]
async fn zrem_cancels_an_adopted_task_and_no_other() {
    let rig = with_events("timer = 'sorted_set'\nsorted_set.member = 'Job@record@{member}'").await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    until_kept(&rig).await;
    let now = seconds(&rig, 0).await;
    // Not due before it is removed, also on a busy machine.
    queue.add("near", now + 25).await;
    queue.add("far", now + 7200).await;
    queue.add("stays", now + 26).await;
    daemon.create("Job@record@made", 26_000).await;
    for member in ["near", "far"] {
        queue.until_acknowledged(member).await;
    }
    for member in ["near", "far", "made"] {
        assert!(queue.remove(member).await, "{member}");
    }
    rig.until_state("Job@record@near", State::Cancelled).await;
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    until_an_audit_cancels(&rig, "Job@record@far").await;
    let mut ran: Vec<String> = rig.runs().await.into_iter().map(|run| run.name).collect();
    ran.sort();
    assert_eq!(ran, ["Job@record@made", "Job@record@stays"]);
}

#[tokio::test]
async fn zrem_while_no_daemon_runs_cancels() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    until_kept(&rig).await;
    let due = seconds(&rig, 7200).await;
    for member in ["gone", "there"] {
        queue.add(member, due).await;
        queue.until_acknowledged(member).await;
    }
    daemon.stop().await;
    assert!(queue.remove("gone").await);
    let _next = rig.listening_daemon().await;
    rig.until_state("Job@record@gone", State::Cancelled).await;
    assert_eq!(rig.state("Job@record@there").await, State::Pending);
    // Cancelled tasks can be requested anew.
    queue.add("gone", due).await;
    queue.until_acknowledged("gone").await;
    assert_eq!(rig.state("Job@record@gone").await, State::Pending);
}

/// Their entries were removed when they died.
#[tokio::test]
async fn redriven_tasks_run_although_their_entries_are_gone() {
    let rig = with_events("timer = 'sorted_set'").await;
    let is_mended = Arc::new(AtomicBool::new(false));
    let mut handlers = Handlers::new();
    let seen = Arc::clone(&is_mended);
    handlers.on(("Job", "dies"), move |task: TaskContext, _: Vec<String>| {
        let is_mended = seen.load(Ordering::Relaxed);
        async move {
            match is_mended {
                false => Err(HandlerError::permanent("not yet")),
                true => write_down(&task).await,
            }
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let mut queue = Queue::of(&rig).await;
    until_kept(&rig).await;
    let now = seconds(&rig, 0).await;
    let names = ["Job@dies@one", "Job@dies@two", "Job@dies@three"];
    for name in names {
        queue.add(name, now).await;
    }
    until("all are dead", async || rig.with_status(2).await == 3).await;
    queue.until_empty().await;
    is_mended.store(true, Ordering::Relaxed);
    daemon.tasks.redrive(names[0]).await.unwrap();
    let rest = ListFilter {
        class: Some("Job".into()),
        ..ListFilter::default()
    };
    let redriven = daemon.tasks.redrive_where(&rest, Pace::default()).await;
    assert_eq!(redriven.unwrap(), 2);
    rig.until_done(3).await;
}

/// An audit writes their entries again, too.
#[tokio::test]
async fn tasks_that_are_due_and_wait_run_although_redis_has_lost_their_entries() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    until_kept(&rig).await;
    let job = Scope::class("Job").unwrap();
    daemon.tasks.pause(&job, "test", "").await.unwrap();
    daemon.until_counted("lapsed_pauses", |n| n == 1.0).await;
    let now = seconds(&rig, 0).await;
    let names = ["one", "two", "three"];
    for name in names {
        queue.add(name, now).await;
        queue.until_acknowledged(name).await;
    }
    let () = rig.redis_says(&["FLUSHALL"]).await;
    until_kept(&rig).await;
    // From here on, the absence of what is read counts again.
    let mut queue = Queue::of(&rig).await;
    let mut members = queue.members().await;
    members.sort();
    assert_eq!(members, ["one", "three", "two"]);
    let soon = seconds(&rig, 3).await;
    queue.add("four", soon).await;
    queue.until_acknowledged("four").await;
    assert!(queue.remove("four").await);
    daemon.tasks.resume(&job).await.unwrap();
    rig.until_done(3).await;
    rig.until_state("Job@record@four", State::Cancelled).await;
    rig.each_ran_once(3).await;
}

#[tokio::test]
async fn an_entry_removed_before_its_adoption_leaves_no_task() {
    let rig = with_events(MAPPED).await;
    let _daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    until_kept(&rig).await;
    let due = seconds(&rig, 7200).await;
    for number in 0..20 {
        let member = number.to_string();
        queue.add(&member, due).await;
        assert!(queue.remove(&member).await);
    }
    queue.add("last", due).await;
    queue.until_acknowledged("last").await;
    until("one task is pending", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND sts = 0")
            .await
            == 1
    })
    .await;
}

/// Entries that a server loses are written again; their tasks are not cancelled.
async fn loses_nothing(words: &[&str]) {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    until_kept(&rig).await;
    let now = seconds(&rig, 0).await;
    for (member, delay) in [("near", 3), ("soon", 9), ("far", 7200)] {
        queue.add(member, now + delay).await;
        queue.until_acknowledged(member).await;
    }
    daemon.create("Job@record@made", 7_200_000).await;
    let _: redis::Value = rig.redis_says(words).await;
    until("the entries are there again", async || {
        let mut members = Queue::of(&rig).await.members().await;
        members.retain(|member| member != "soon" && member != "near");
        members.sort();
        members == ["far", "made"]
    })
    .await;
    until_kept(&rig).await;
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    for name in ["Job@record@far", "Job@record@made"] {
        assert_eq!(rig.state(name).await, State::Pending);
    }
    // Absence is evidence again of what is read from now on.
    queue.add("after", now + 7200).await;
    queue.until_acknowledged("after").await;
    assert!(queue.remove("after").await);
    until_an_audit_cancels(&rig, "Job@record@after").await;
    assert_eq!(rig.state("Job@record@far").await, State::Pending);
}

#[tokio::test]
async fn flushall_cancels_nothing() {
    loses_nothing(&["FLUSHALL"]).await;
}

#[tokio::test]
async fn deleting_the_set_cancels_nothing() {
    loses_nothing(&["DEL", SET]).await;
}
