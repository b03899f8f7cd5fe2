//! Tasks that start after all tasks with a tag.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{Admin, TaskRecord};
use lapsed::task::{After, How, IfDead, State, TaskKey};
use lapsed::{HandlerError, Handlers, Task};
use tokio::sync::Notify;

use crate::engine::faults::Faults;
use crate::engine::pull;
use crate::engine::rig::{Rig, START, seconds, start, start_with, until};

/// `Group@last` counts its runs, `Group@wait` ends when `go` is notified, and `Group@fail` dies.
struct Group {
    runs: Arc<AtomicU32>,
    go: Arc<Notify>,
}

impl Group {
    fn handlers() -> (Self, Handlers) {
        let group = Self {
            runs: Arc::default(),
            go: Arc::default(),
        };
        let (runs, go) = (Arc::clone(&group.runs), Arc::clone(&group.go));
        let mut handlers = Handlers::new();
        handlers.on(("Group", "last"), move |_: Vec<String>| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        });
        handlers.on(("Group", "wait"), move |_: Vec<String>| {
            let go = Arc::clone(&go);
            async move {
                go.notified().await;
                Ok(())
            }
        });
        handlers.on(("Group", "fail"), |_: Vec<String>| async {
            Err::<(), _>(HandlerError::permanent("no"))
        });
        (group, handlers)
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

fn last(if_dead: IfDead) -> Task {
    let tag = "g".to_owned();
    Task::from(key("Group@last")).after(After { tag, if_dead })
}

async fn member(rig: &Rig, name: &str, delay: Duration) {
    let task = Task::from(key(name)).tag("g");
    rig.tasks.create(task, delay).await.unwrap();
}

async fn follow(rig: &Rig, task: Task) {
    rig.tasks.create(task, Duration::ZERO).await.unwrap();
}

/// Waits until the last task has been found to wait for another one.
async fn until_it_waits(rig: &Rig, text: &str) -> TaskRecord {
    until(format!("it waits: {text}"), async || {
        let history = rig.record("Group@last").await.history;
        history.first().is_some_and(|latest| latest.error == text)
    })
    .await;
    rig.record("Group@last").await
}

#[tokio::test(start_paused = true)]
async fn a_task_starts_once_when_every_task_with_the_tag_has_ended() {
    let (group, handlers) = Group::handlers();
    let rig = start("", handlers);
    member(&rig, "Group@wait@1", Duration::ZERO).await;
    member(&rig, "Group@wait@2", seconds(3_600)).await;
    member(&rig, "Group@wait@3", seconds(7_200)).await;
    follow(&rig, last(IfDead::Wait)).await;
    let waits = until_it_waits(&rig, "a task with tag `g` is running").await;
    assert_eq!((waits.state, waits.attempt), (State::Waiting, 0));
    group.go.notify_one();
    until_it_waits(&rig, "a task with tag `g` is pending").await;
    rig.tasks.cancel(key("Group@wait@3")).await.unwrap();
    tokio::time::sleep(seconds(3_600)).await;
    until_it_waits(&rig, "a task with tag `g` is running").await;
    assert_eq!(group.runs(), 0);
    group.go.notify_one();
    let ended = rig.until("Group@wait@2", State::Done).await;
    let done = rig.until("Group@last", State::Done).await;
    assert_eq!((group.runs(), done.attempt), (1, 1));
    let late = done.finished.unwrap().since(ended.finished.unwrap());
    assert!(late <= seconds(61), "{late:?}");
    // All of its waits are one entry, and none of them is a run.
    let history: Vec<(How, u16, u16)> = done
        .history
        .iter()
        .map(|entry| (entry.how, entry.attempt, entry.snoozes))
        .collect();
    assert_eq!(history, [(How::Snoozed, 0, 0)]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_is_waited_for_until_it_is_discarded() {
    let (group, handlers) = Group::handlers();
    let rig = start("", handlers);
    member(&rig, "Group@fail", Duration::ZERO).await;
    rig.until("Group@fail", State::Dead).await;
    follow(&rig, last(IfDead::Wait)).await;
    until_it_waits(&rig, "a task with tag `g` is dead").await;
    tokio::time::sleep(seconds(3_600)).await;
    let waits = rig.record("Group@last").await;
    assert_eq!((group.runs(), waits.state), (0, State::Waiting));
    assert!(rig.tasks.discard(key("Group@fail")).await.unwrap());
    let done = rig.until("Group@last", State::Done).await;
    assert_eq!((group.runs(), done.attempt), (1, 1));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_has_ended_if_it_is_to_be_ignored() {
    let (group, handlers) = Group::handlers();
    let rig = start("", handlers);
    member(&rig, "Group@fail", seconds(60)).await;
    follow(&rig, last(IfDead::Ignore)).await;
    until_it_waits(&rig, "a task with tag `g` is pending").await;
    rig.until("Group@fail", State::Dead).await;
    rig.until("Group@last", State::Done).await;
    assert_eq!(group.runs(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_waited_does_not_come_too_late() {
    let (group, handlers) = Group::handlers();
    let rig = start("", handlers);
    member(&rig, "Group@wait", Duration::ZERO).await;
    follow(&rig, last(IfDead::Wait)).await;
    until_it_waits(&rig, "a task with tag `g` is running").await;
    tokio::time::sleep(seconds(3_600)).await;
    group.go.notify_one();
    rig.until("Group@last", State::Done).await;
    assert_eq!(group.runs(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_waits_no_more_and_a_group_without_tasks_has_ended() {
    let (group, handlers) = Group::handlers();
    let rig = start("", handlers);
    member(&rig, "Group@wait", Duration::ZERO).await;
    follow(&rig, last(IfDead::Wait)).await;
    until_it_waits(&rig, "a task with tag `g` is running").await;
    rig.tasks.cancel(key("Group@last")).await.unwrap();
    rig.until("Group@last", State::Cancelled).await;
    group.go.notify_one();
    rig.until("Group@wait", State::Done).await;
    tokio::time::sleep(seconds(600)).await;
    assert_eq!(group.runs(), 0);
    follow(&rig, last(IfDead::Wait)).await;
    rig.until("Group@last", State::Done).await;
    assert_eq!(group.runs(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_gets_the_task_when_the_others_have_ended() {
    let rig = pull::mail("");
    member(&rig, "Mail@send", Duration::ZERO).await;
    let sent = pull::take_one(&rig).await;
    let tag = "g".to_owned();
    let if_dead = IfDead::Wait;
    follow(
        &rig,
        Task::from(key("Mail@last")).after(After { tag, if_dead }),
    )
    .await;
    let waiting = pull::waiting(&rig, 1, seconds(60));
    until("it waits", async || {
        !rig.record("Mail@last").await.history.is_empty()
    })
    .await;
    let queues = rig.status.pull();
    queues.settle(&sent.claim, pull::done()).await.unwrap();
    let last = waiting.await.unwrap().keep();
    assert_eq!(pull::keys(&last), ["Mail@last"]);
    assert_eq!(last[0].task.attempt(), 1);
    queues.settle(&last[0].claim, pull::done()).await.unwrap();
    rig.until("Mail@last", State::Done).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_of_many_tasks_is_searched_in_several_checks() {
    let (group, handlers) = Group::handlers();
    let faults = Arc::new(Faults::default());
    let ledger = Arc::new(MemoryLedger::new(START));
    faults.lists_stop.store(3, Ordering::SeqCst);
    let rig = start_with(ledger, Arc::clone(&faults), "", handlers);
    member(&rig, "Group@wait", Duration::ZERO).await;
    follow(&rig, last(IfDead::Wait)).await;
    until_it_waits(&rig, "tasks with tag `g` are being counted").await;
    assert!(rig.ledger.find(&key("Group@last")).await.unwrap().is_some());
    // The row of the first task is behind the place where the search stopped, so the next pass finds it.
    until("the search has ended", async || {
        faults.lists_stop.load(Ordering::SeqCst) == 0
    })
    .await;
    group.go.notify_one();
    rig.until("Group@last", State::Done).await;
    assert_eq!(group.runs(), 1);
    rig.stop().await;
}
