//! Series of the configuration.

use std::sync::Arc;
use std::time::Duration;

use lapsed::client::{Pace, Pruning};
use lapsed::task::State;
use lapsed::{MysqlTask, Recurrence, TaskContext, UnixMs};

use super::{begin, each_once, every};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::process::{Process, config_file};
use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

/// A daemon with this series in its configuration.
fn configured(rig: &Rig, series: &str) -> Daemon {
    let config = rig.config_with(&format!("[[recurring]]\n{series}"));
    Daemon::start(&config, handlers())
}

#[tokio::test]
async fn daemons_with_the_same_configuration_make_one_series_and_move_nothing() {
    let rig = Rig::new("").await;
    let series =
        "key = 'Job@record@1'\ncron = '* * * * * *'\ncatch_up = 'all'\npayload = { a = 1 }";
    let daemons = [0, 1, 2].map(|_| configured(&rig, series));
    until("it has run some times", async || {
        rig.runs().await.len() >= 4
    })
    .await;
    // One more, which finds it there.
    let _later = configured(&rig, series);
    until("it has run some more", async || rig.runs().await.len() >= 7).await;
    let runs = rig.runs().await;
    each_once(&runs);
    for pair in runs.windows(2) {
        assert_eq!(pair[1].due_ms - pair[0].due_ms, 1_000, "{pair:?}");
    }
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        1
    );
    assert_eq!(
        rig.record("Job@record@1").await.payload.as_deref(),
        Some(r#"{"a":1}"#)
    );
    drop(daemons);
}

#[tokio::test]
async fn a_changed_configured_task_is_updated_and_a_cancelled_one_stays_cancelled() {
    let rig = Rig::new("").await;
    let daily = "key = 'Job@record@1'\ncron = '@daily'\n";
    let daemon = configured(&rig, daily);
    until("it is there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 1
    })
    .await;
    let due = rig.record("Job@record@1").await.due;

    // Another tag, and a rule with the same next occurrence: it stays where it is.
    let config =
        rig.config_with("[[recurring]]\nkey = 'Job@record@1'\ncron = '0 0 * * *'\ntag = 't'");
    daemon.status.take_recurring(config.recurring);
    until("the tag is there", async || {
        rig.record("Job@record@1").await.tag.as_deref() == Some("t")
    })
    .await;
    assert_eq!(rig.record("Job@record@1").await.due, due);

    // Another rule: it is moved.
    let config = rig.config_with("[[recurring]]\nkey = 'Job@record@1'\nevery = '7m'");
    daemon.status.take_recurring(config.recurring);
    until("it was moved", async || {
        rig.record("Job@record@1").await.due.0 % 420_000 == 0
    })
    .await;

    daemon.tasks.cancel(&key("Job@record@1")).await.unwrap();
    let again = configured(
        &rig,
        "key = 'Job@record@1'\nevery = '7m'\n[[recurring]]\nkey = 'Job@record@2'\nevery = '7m'",
    );
    until("the other one is there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 2
    })
    .await;
    assert_eq!(rig.state("Job@record@1").await, State::Cancelled);
    drop(again);
}

#[tokio::test]
async fn a_series_changed_during_a_run_loses_none_of_its_effects() {
    let rig = Rig::new("").await;
    let (entered, mut running) = tokio::sync::mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&go);
    let mut handlers = handlers();
    handlers.on(("Job", "gated"), move |task: TaskContext| {
        let (entered, gate) = (entered.clone(), Arc::clone(&gate));
        async move {
            entered.send(()).unwrap();
            gate.notified().await;
            let mut tx = task.begin().await?;
            crate::support::handlers::take_effect(&task, &mut tx).await?;
            task.complete_in(tx).await
        }
    });
    let hourly = "[[recurring]]\nkey = 'Job@gated'\ncron = '@hourly'\ncatch_up = 'once'";
    let daemon = Daemon::start(&rig.config_with(hourly), handlers);
    until("it is there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 1
    })
    .await;
    rig.run_sql(
        "UPDATE tb_time_limit_task SET end_time = FLOOR(UNIX_TIMESTAMP(NOW(3)) / 3600) * 3600",
    )
    .await;
    running.recv().await.unwrap();
    let weekly = rig.config_with("[[recurring]]\nkey = 'Job@gated'\ncron = '@weekly'");
    daemon.status.take_recurring(weekly.recurring);
    // Its result counts: it was not moved away from under it.
    go.notify_one();
    until("it is the other one", async || {
        let stored = rig.record("Job@gated").await.recurrence;
        stored.is_some_and(|stored| stored.contains("@weekly"))
    })
    .await;
    rig.each_effect_once(1).await;
    assert_eq!(daemon.metric("lapsed_fenced_total"), 0.0);
    let ahead = rig.record("Job@gated").await.due.0 - rig.now_ms().await;
    let next = Recurrence::cron("@weekly").unwrap();
    let next = next.next(UnixMs(rig.now_ms().await)).unwrap();
    assert_eq!(rig.record("Job@gated").await.due, next, "{ahead} ms ahead");
}

#[tokio::test]
async fn sighup_reloads_recurring_tasks_and_reports_removed_ones() {
    let rig = Rig::new("[[routes]]\nmatch = '.'\nlog = {}").await;
    let config = config_file(&rig);
    let series = |names: &[&str]| {
        let series = names
            .iter()
            .map(|name| format!("\n[[recurring]]\nkey = '{name}'\nevery = '1h'\n"));
        rig.config_text() + &series.collect::<String>()
    };
    std::fs::write(config.path(), series(&["Old@one", "Both@one"])).unwrap();
    let daemon = Process::listen_with(config, &[]);
    until("they are there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 2
    })
    .await;
    std::fs::write(daemon.config(), series(&["Both@one", "New@one"])).unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    until("the new one is there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 3
    })
    .await;
    daemon
        .until_logged("recurring task is no longer configured but continues")
        .await;
    assert_eq!(rig.state("Old@one").await, State::Pending);
}

#[tokio::test]
async fn retention_revives_no_configured_task_and_deletes_the_others() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    begin(&client, "Job@record@theirs", every(420_000)).await;
    let daemon = configured(&rig, "key = 'Job@record@ours'\nevery = '7m'");
    until("both are there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 2
    })
    .await;
    for name in ["Job@record@ours", "Job@record@theirs"] {
        daemon.tasks.cancel(&key(name)).await.unwrap();
    }
    daemon.stop().await;
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = end_time - 7200, finished_at = finished_at - 7200")
        .await;
    // By somebody whose configuration has no such entry.
    let older = Pruning {
        older_than: Some(Duration::from_secs(3_600)),
        state: State::Cancelled,
        keep: None,
        archive: false,
        dry_run: false,
    };
    assert_eq!(client.prune(older, Pace::default()).await.unwrap(), 1);
    assert_eq!(rig.state("Job@record@ours").await, State::Cancelled);
    let again = configured(
        &rig,
        "key = 'Job@record@ours'\nevery = '7m'\n[[recurring]]\nkey = 'Job@record@new'\nevery = '7m'",
    );
    until("the new one is there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 2
    })
    .await;
    assert_eq!(rig.state("Job@record@ours").await, State::Cancelled);
    drop(again);
}
