//! Tasks that come again.

pub mod catch_up;
mod commands;
mod configured;
mod failures;
mod overlap;
pub mod schedule;

use std::collections::BTreeMap;
use std::time::Duration;

use lapsed::{Recurrence, Task, TaskClient, UnixMs};

use crate::support::rig::Run;
use crate::support::scene::Scene;
use crate::support::tasks::key;

pub fn every(ms: u64) -> Recurrence {
    Recurrence::every(Duration::from_millis(ms)).unwrap()
}

pub async fn begin(
    tasks: &TaskClient,
    name: &str,
    recurrence: Recurrence,
) -> lapsed::client::Receipt {
    let task = Task::from(key(name));
    tasks.create_recurring(task, recurrence).await.unwrap()
}

/// A series that fell due that long ago for the first time, as a daemon finds it that was not there.
pub async fn begun_ago(
    scene: &impl Scene,
    name: &str,
    recurrence: Recurrence,
    ago_ms: i64,
) -> UnixMs {
    let start = UnixMs(scene.now_ms().await - ago_ms);
    let client = scene.producer().await;
    begin(&client, name, recurrence.starting(start)).await;
    scene.backdate(name, start).await;
    start
}

/// Each occurrence was run once, under an id of its own, and not before its time.
pub fn each_once(runs: &[Run]) {
    let mut counts = BTreeMap::new();
    for run in runs {
        *counts.entry(run.task.as_str()).or_insert(0) += 1;
        assert!(run.at_ms >= run.due_ms, "early: {run:?}");
        assert!(run.task.ends_with(&format!("-{}", run.due_ms)), "{run:?}");
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert_eq!(twice, [], "run more than once");
}

pub fn dues(runs: &[Run]) -> Vec<i64> {
    runs.iter().map(|run| run.due_ms).collect()
}
