//! Occurrences that fail.

use std::collections::BTreeSet;

use lapsed::task::{CatchUp, State};
use lapsed::{HandlerError, Handlers, TaskContext};

use super::{begin, begun_ago, each_once, every};
use crate::support::handlers::{handlers, write_down};
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::wait::until;

/// Fails as the argument says.
fn failing() -> Handlers {
    let mut handlers = handlers();
    handlers.on(
        ("Job", "fails"),
        |task: TaskContext, how: String| async move {
            write_down(&task).await?;
            match how.as_str() {
                "for-good" => Err(HandlerError::permanent("never")),
                "panics" => panic!("oh"),
                _ => Err(HandlerError::new("not now")),
            }
        },
    );
    handlers
}

#[tokio::test]
async fn a_dead_occurrence_does_not_end_its_series() {
    let rig = Rig::new("retry = { ladder = ['50ms'], max_attempts = 2, jitter = 0.0 }").await;
    let daemon = rig.daemon_with(failing());
    for how in ["for-good", "panics", "again"] {
        let name = format!("Job@fails@{how}");
        begin(&daemon.tasks, &name, every(1_500).catch_up(CatchUp::All)).await;
    }
    until("each has failed three times", async || {
        let runs = rig.runs().await;
        ["for-good", "panics", "again"].iter().all(|how| {
            let name = format!("Job@fails@{how}");
            let of_it = runs.iter().filter(|run| run.name == name);
            of_it.map(|run| run.due_ms).collect::<BTreeSet<_>>().len() >= 3
        })
    })
    .await;
    for (how, error, attempts) in [
        ("for-good", "permanent failure: never", 1),
        ("panics", "gave up after 2 of 2 attempts: panicked: oh", 2),
        ("again", "gave up after 2 of 2 attempts: not now", 2),
    ] {
        let name = format!("Job@fails@{how}");
        until("the error of the latest is kept", async || {
            rig.record(&name).await.last_error.as_deref() == Some(error)
        })
        .await;
        let runs = rig.runs_of(&name).await;
        let of_the_first = runs.iter().filter(|run| run.due_ms == runs[0].due_ms);
        assert_eq!(of_the_first.count(), attempts, "{runs:?}");
    }
    for reason in ["permanent", "exhausted"] {
        let metric = format!("lapsed_dead_total{{route=\"Job@fails\",reason=\"{reason}\"}}");
        daemon.until_counted(&metric, |dead| dead >= 2.0).await;
    }
    let history = rig.record("Job@fails@again").await.history;
    assert!(
        history.len() >= 4,
        "of all occurrences, not only the latest"
    );
    assert_eq!(rig.with_status(2).await, 0);
}

#[tokio::test]
async fn a_retry_gives_way_to_the_next_occurrence() {
    let rig = Rig::new("retry = { ladder = ['1h'], max_attempts = 5, jitter = 0.0 }").await;
    let daemon = rig.daemon_with(failing());
    begin(&daemon.tasks, "Job@fails@again", every(1_000)).await;
    until("it has run some times", async || {
        rig.runs().await.len() >= 3
    })
    .await;
    let runs = rig.runs().await;
    each_once(&runs);
    let error = rig.record("Job@fails@again").await.last_error.unwrap();
    assert_eq!(error, "gave up in favour of the next occurrence: not now");
}

#[tokio::test]
async fn an_occurrence_that_kills_its_daemons_ends_its_series() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let rule = every(3_600_000).catch_up(CatchUp::Once);
    begun_ago(&rig, "Job@kills", rule, 1_000).await;
    for _ in 0..3 {
        let mut daemon = Process::worker(&rig);
        daemon.until_ended().await;
    }
    let _daemon = Process::worker(&rig);
    rig.until_state("Job@kills", State::Dead).await;
    assert_eq!(rig.runs().await.len(), 3);
}
