//! Tasks that come again.

mod catch_up;
mod commands;
mod configured;
mod failures;
mod overlap;
mod schedule;

use std::collections::BTreeMap;
use std::time::Duration;

use lapsed::{Recurrence, Task, TaskClient, UnixMs};

use crate::support::rig::{Rig, Run};
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
pub async fn begun_ago(rig: &Rig, name: &str, recurrence: Recurrence, ago_ms: i64) -> UnixMs {
    let start = UnixMs(rig.now_ms().await - ago_ms);
    let client = rig.client().await;
    begin(&client, name, recurrence.starting(start)).await;
    rig.run_sql(&format!(
        "UPDATE tb_time_limit_task SET start_time = {0} / 1000, end_time = {0} / 1000 WHERE `key` = '{name}'",
        start.0
    ))
    .await;
    rig.redis_says::<i64>(&["DEL", name]).await;
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
