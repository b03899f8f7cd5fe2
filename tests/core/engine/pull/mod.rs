//! Pull queues: workers take tasks and settle them, on the memory ledger in paused time.

mod limited;
mod limits;
mod settling;
mod taking;

use lapsed::Handlers;
use lapsed::engine::{Leased, PullQueues, Report, TakenTasks};
use lapsed::task::{RetryAdvice, TaskKey, UnixMs};
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::engine::rig::{Rig, seconds, start};

pub const MAIL: &str =
    "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '10s' }\n";

/// An engine with a pull queue, and these lines for its route.
pub fn mail(lines: &str) -> Rig {
    start(&format!("{MAIL}{lines}"), Handlers::new())
}

/// Takes tasks within a minute, and keeps them.
pub async fn take(queues: &PullQueues, count: usize) -> Vec<Leased> {
    let taken = queues.take("mail", count, Some(seconds(60)), "w").await;
    taken.unwrap().keep()
}

pub async fn take_one(rig: &Rig) -> Leased {
    let mut taken = take(&rig.status.pull(), 1).await;
    assert_eq!(taken.len(), 1, "one task");
    taken.remove(0)
}

pub fn done() -> Report {
    Report::Done { result: None }
}

pub fn failed(advice: RetryAdvice) -> Report {
    Report::Failed {
        error: "no such mailbox".into(),
        advice,
    }
}

/// A taker that waits in a task of its own.
pub fn waiting(rig: &Rig, count: usize, block: Duration) -> JoinHandle<TakenTasks> {
    let queues = rig.status.pull();
    tokio::spawn(async move {
        let taken = queues.take("mail", count, Some(block), "").await;
        taken.unwrap()
    })
}

pub fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

/// Creates a task; returns its due time.
pub async fn schedule(rig: &Rig, key: &str, delay: Duration) -> UnixMs {
    let created = rig.tasks.create(self::key(key), delay);
    created.await.unwrap().due()
}

pub fn keys(tasks: &[Leased]) -> Vec<String> {
    let keys = tasks.iter().map(|leased| leased.task.key().to_string());
    keys.collect()
}

pub async fn take_one_within(rig: &Rig, time: Duration) -> Leased {
    let taken = rig.status.pull().take("mail", 1, Some(time), "").await;
    let mut taken = taken.unwrap().keep();
    assert_eq!(taken.len(), 1, "one task");
    taken.remove(0)
}
