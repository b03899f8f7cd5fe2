//! Occurrences that may overlap are tasks of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapsed::task::{CatchUp, Overlap, State};
use lapsed::{Task, TaskContext};
use tokio::sync::watch;

use super::{begun_ago, each_once, every};
use crate::support::handlers::{handlers, write_down};
use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

#[tokio::test]
async fn occurrences_that_may_overlap_are_tasks_of_their_own() {
    let rig = Rig::new("").await;
    let mut handlers = handlers();
    let running = Arc::new(AtomicU32::new(0));
    let (overlap, overlapped) = watch::channel(false);
    handlers.on(
        ("Job", "long"),
        move |task: TaskContext, args: Vec<String>| {
            let (running, overlap) = (Arc::clone(&running), overlap.clone());
            let mut overlapped = overlapped.clone();
            async move {
                assert_eq!(args, ["x"], "the suffix is no argument");
                assert_eq!(task.payload_json(), Some("[1]"));
                if running.fetch_add(1, Ordering::SeqCst) == 1 {
                    overlap.send_replace(true);
                }
                write_down(&task).await?;
                // The first ends when the second runs beside it.
                overlapped.wait_for(|overlapped| *overlapped).await?;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        },
    );
    let daemon = rig.daemon_with(handlers);
    let rule = every(1_000).overlap(Overlap::Allow).catch_up(CatchUp::All);
    let task = Task::from(key("Job@long@x")).payload("[1]");
    daemon.tasks.create_recurring(task, rule).await.unwrap();
    until("five are done", async || rig.with_status(1).await >= 5).await;
    let mut runs = rig.runs().await;
    each_once(&runs);
    // Those that run beside each other are written down in any order.
    runs.sort_by_key(|run| run.due_ms);
    let start = runs[0].due_ms;
    for (n, run) in runs.iter().enumerate() {
        let due = start + n as i64 * 1_000;
        assert_eq!(
            (run.due_ms, &run.name),
            (due, &format!("Job@long@x@~{due}"))
        );
    }
    let series = rig.record("Job@long@x").await;
    assert_eq!((series.state, series.attempt), (State::Pending, 0));
}

#[tokio::test]
async fn a_daemon_killed_between_writing_an_occurrence_and_its_recurring_task_loses_none() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let rule = every(3_600_000)
        .overlap(Overlap::Allow)
        .catch_up(CatchUp::All);
    let start = begun_ago(&rig, "Job@record@1", rule, 2_000).await;
    // It had claimed the series and created the task of its own, which has run since, and then it died.
    let instance = format!("Job@record@1@~{}", start.0);
    rig.run_sql(&format!(
        "UPDATE tb_time_limit_task SET owner = REPEAT('x', 16), attempt = 1, run_end = end_time, lease_until = UNIX_TIMESTAMP(NOW(3)) - 1; \
         INSERT INTO tb_time_limit_task (`key`, start_time, end_time, status, sts) VALUES ('{instance}', {0} / 1000, {0} / 1000, 1, 0)",
        start.0
    ))
    .await;
    let _daemon = rig.daemon();
    until("the series goes on", async || {
        rig.record("Job@record@1").await.due.0 == start.0 + 3_600_000
    })
    .await;
    assert_eq!(rig.runs().await, [], "it has run");
    assert_eq!(rig.record(&instance).await.state, State::Done);
}

#[tokio::test]
async fn an_occurrence_that_no_route_takes_is_dead_and_says_why() {
    let rig = Rig::new("[[routes]]\nmatch = '^Run@it$'\nlog = {}").await;
    let rule = every(3_600_000)
        .overlap(Overlap::Allow)
        .catch_up(CatchUp::All);
    begun_ago(&rig, "Run@it", rule, 1_000).await;
    let _daemon = rig.daemon();
    until("the error is there", async || {
        let error = rig.record("Run@it").await.last_error;
        error.is_some_and(|error| error.contains("no route or handler takes the key"))
    })
    .await;
    assert_eq!(rig.state("Run@it").await, State::Pending, "it goes on");
}
