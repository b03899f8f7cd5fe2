//! History: what the charts of the last 24 h are drawn from.

use std::sync::Arc;
use std::time::Duration;

use lapsed::engine::HistoryPoint;
use lapsed::ledger::NewTask;
use lapsed::ledger::Producer as _;
use lapsed::task::{State, TaskKey, UnixMs};
use lapsed::{HandlerError, Handlers};
use tokio::time::sleep;

use crate::engine::rig::{Rig, START, counting, overdue, seconds, start};

const MINUTE: Duration = Duration::from_secs(60);

/// `Job@count` succeeds, `Job@bad` dies.
fn handlers() -> Handlers {
    let mut handlers = counting(&Arc::default());
    let bad = |_: Vec<String>| async { Err(HandlerError::permanent("bad")) };
    handlers.on(("Job", "bad"), bad);
    handlers
}

async fn last_minutes(rig: &Rig, count: u32) -> Vec<HistoryPoint> {
    rig.status.history().points(MINUTE * count, MINUTE).await
}

#[tokio::test(start_paused = true)]
async fn each_minute_has_the_runs_that_started_in_it() {
    let rig = start("", handlers());
    rig.due_now("Job@count@1").await;
    rig.due_now("Job@bad@1").await;
    rig.until("Job@bad@1", State::Dead).await;
    rig.until("Job@count@1", State::Done).await;
    sleep(MINUTE).await;
    rig.due_now("Job@count@2").await;
    rig.until("Job@count@2", State::Done).await;
    sleep(MINUTE).await;

    let minutes = last_minutes(&rig, 3).await;
    let starts: Vec<i64> = minutes.iter().map(|minute| minute.at.0 - START.0).collect();
    assert_eq!(starts, [-60_000, 0, 60_000]);
    let daemons: Vec<usize> = minutes.iter().map(|minute| minute.daemons).collect();
    assert_eq!(daemons, [0, 1, 1], "before its start nothing was recorded");
    let [_, first, second] = &minutes[..] else {
        panic!("{minutes:?}");
    };
    let did = |minute: &HistoryPoint| {
        (
            minute.started.total(),
            minute.succeeded,
            minute.failed,
            minute.dead,
        )
    };
    assert_eq!((did(first), did(second)), ((2, 1, 1, 1), (1, 1, 0, 0)));
    assert_eq!(first.lateness.unwrap().count, 2);
    assert_eq!(first.overdue, Some(0), "gauges are counted at the start");

    let together = rig.status.history().points(MINUTE * 2, MINUTE * 2).await;
    assert_eq!(together.len(), 1);
    assert_eq!(did(&together[0]), (3, 2, 1, 1));
    assert_eq!(together[0].lateness.unwrap().count, 3);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_counted_for_the_signal_source_that_started_it() {
    let rig = start("", handlers());
    sleep(seconds(5)).await;
    // Another program writes the row: this daemon hears of it when it reads ahead, or when it sweeps.
    overdue(&rig.ledger, 2).await;
    rig.until_done(2).await;
    let due = UnixMs(START.0 + 20_000);
    let ahead = NewTask::new(TaskKey::parse("Job@count@ahead").unwrap(), due);
    rig.ledger.create(&[ahead]).await.unwrap();
    rig.until("Job@count@ahead", State::Done).await;
    sleep(MINUTE).await;
    let minutes = last_minutes(&rig, 1).await;
    let started = minutes[0].started;
    assert_eq!((started.sweep, started.nudge), (2, 1), "{started:?}");
    rig.stop().await;
}
