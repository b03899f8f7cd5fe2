//! Every way a task can end but well, and what is told of it.

use lapsed::timer::Source;
use std::sync::Arc;
use std::time::Duration;

use lapsed::client::Pace;
use lapsed::ledger::ListFilter;
use lapsed::task::{How, Reason, RetryPolicy, State};
use lapsed::{HandlerError, Handlers, MysqlTask, TaskContext};
use tokio::sync::Semaphore;

use crate::support::handlers::{handlers, write_down};
use crate::support::maria::numbers;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::{create, key};
use crate::support::wait::until;

#[tokio::test]
async fn each_failed_attempt_is_in_the_history_with_how_it_failed() {
    let rig = Rig::new("retry.max_attempts = 4\nretry.ladder = ['50ms']").await;
    let mut handlers = Handlers::new();
    handlers
        .on(("Job", "fails"), |task: TaskContext| async move {
            match task.attempt() {
                1 => Err(HandlerError::new("first\nline")),
                2 => panic!("second"),
                3 => std::future::pending().await,
                _ => Err(HandlerError::new("last")),
            }
        })
        .timeout(Duration::from_millis(300));
    let daemon = rig.daemon_with(handlers);
    daemon.create("Job@fails", 0).await;
    rig.until_state("Job@fails", State::Dead).await;
    let dead = rig.record("Job@fails").await;
    let told: Vec<(u16, How)> = dead
        .history
        .iter()
        .map(|entry| (entry.attempt, entry.how))
        .collect();
    let expected = [
        (4, How::Failed),
        (3, How::TimedOut),
        (2, How::Panicked),
        (1, How::Failed),
    ];
    assert_eq!(told, expected);
    assert_eq!(dead.history[3].error, "first\nline");
    let process = format!(":{}/", std::process::id());
    for entry in &dead.history {
        assert!(entry.daemon.contains(&process), "{}", entry.daemon);
    }
    assert!(
        dead.history
            .is_sorted_by(|newer, older| newer.at >= older.at)
    );
    assert_eq!(dead.reason, Some(Reason::Exhausted));
    let metric = "lapsed_dead_total{route=\"Job@fails\",reason=\"exhausted\"}";
    daemon.until_counted(metric, |dead| dead == 1.0).await;
}

#[tokio::test]
async fn a_task_that_killed_its_daemons_says_how_often() {
    let rig = Rig::new("engine.lease = '1s'").await;
    create(&rig.client().await.into(), "Job@kills", 0).await;
    for _ in 0..3 {
        Process::worker(&rig).until_ended().await;
    }
    let _daemon = Process::worker(&rig);
    rig.until_state("Job@kills", State::Dead).await;
    let dead = rig.record("Job@kills").await;
    assert_eq!(dead.reason, Some(Reason::Poison));
    assert_eq!(
        (dead.history.len(), dead.history[0].how),
        (1, How::Poisoned)
    );
    assert_eq!(dead.history[0].crashes, 3);
    // Runs that started, not claims.
    assert_eq!((dead.attempt, dead.history[0].attempt), (3, 3));
}

#[tokio::test]
async fn a_result_is_written_together_with_the_effects() {
    let rig = Rig::new("").await;
    let mut handlers = Handlers::new();
    handlers.on(("Job", "adds"), |task: TaskContext, n: u32| async move {
        let tx = task.begin().await?;
        task.keep_result(serde_json::json!({ "n": n + 1 }))?;
        task.complete_in(tx).await
    });
    handlers.on(("Job", "plain"), |task: TaskContext| async move {
        let tx = task.begin().await?;
        task.complete_in(tx).await
    });
    let daemon = rig.daemon_with(handlers);
    daemon.create("Job@adds@1", 0).await;
    daemon.create("Job@plain", 0).await;
    rig.until_done(2).await;
    let result = rig.record("Job@adds@1").await.result;
    assert_eq!(result.as_deref(), Some(r#"{"n":2}"#));
    assert_eq!(rig.record("Job@plain").await.result, None);
}

#[tokio::test]
async fn a_task_expired_during_an_outage_runs_only_when_redriven() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    for name in ["Job@record@late", "Job@record@young"] {
        create(&client, name, 0).await;
    }
    // As if no daemon had been there for two hours.
    rig.run_sql("UPDATE tb_time_limit_task SET start_time = start_time - 7200, end_time = end_time - 7200 WHERE `key` LIKE '%late'")
        .await;
    let mut handlers = Handlers::new();
    let record = |task: TaskContext, _: Vec<String>| async move { write_down(&task).await };
    handlers
        .on(("Job", "record"), record)
        .expire_after(Duration::from_secs(3600));
    let _daemon = rig.daemon_with(handlers);
    rig.until_done(1).await;
    rig.until_state("Job@record@late", State::Dead).await;
    let dead = rig.record("Job@record@late").await;
    assert_eq!((dead.reason, dead.attempt), (Some(Reason::Expired), 0));
    assert_eq!(rig.runs_of("Job@record@late").await, []);

    client.redrive(&key("Job@record@late")).await.unwrap();
    rig.until_done(2).await;
    let run = &rig.runs_of("Job@record@late").await[0];
    assert_eq!((run.attempt, &run.task), (1, &dead.id));
}

#[tokio::test]
async fn no_attempt_begins_after_the_deadline_of_a_route() {
    let rig = Rig::new(
        "[[routes]]\nmatch = '^Run@'\nexec = ['/bin/false']\n\
         retry = { delay = '400ms', jitter = 0.0, deadline = '1s' }",
    )
    .await;
    let daemon = rig.daemon_with(Handlers::new());
    daemon.create("Run@it", 0).await;
    rig.until_state("Run@it", State::Dead).await;
    let dead = rig.record("Run@it").await;
    assert_eq!(dead.reason, Some(Reason::Deadline));
    assert!((1..=3).contains(&dead.attempt), "{}", dead.attempt);
    let last = dead.history[0].at.since(dead.due);
    assert!(last > Duration::from_millis(600), "{last:?}");
}

/// Slots are left to what falls due now, however many dead come back.
#[tokio::test]
async fn redriving_many_leaves_slots_to_fresh_tasks() {
    const DEAD: i64 = 2_000;
    const FRESH: usize = 100;
    let rig = Rig::new("engine.concurrency = 32").await;
    let mut handlers = handlers();
    let permits = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&permits);
    handlers
        .on(("Job", "slow"), move |_: Vec<String>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok(())
            }
        })
        .retry(RetryPolicy::never());
    let numbers = numbers(DEAD);
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, reason, last_error, finished_at) \
         SELECT CONCAT('Job@slow@', seq), 2, UNIX_TIMESTAMP() - 7200, UNIX_TIMESTAMP() - 7200, 'exhausted', 'no', UNIX_TIMESTAMP() - 3600 \
         FROM {numbers}"
    ))
    .await;
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let client = rig.client().await;
    let filter = ListFilter {
        class: Some("Job".into()),
        reason: Some(Reason::Exhausted),
        ..ListFilter::default()
    };
    let redriving = {
        let client = client.clone();
        tokio::spawn(async move { client.redrive_where(&filter, Pace::default()).await })
    };
    until("they have the slots that a backlog may have", async || {
        daemon.status.running() >= 24
    })
    .await;
    for n in 0..FRESH {
        create(&client, &format!("Job@record@{n}"), 500 + 10 * n as i64).await;
    }
    // None of the dead ends before that: whatever waited for one of their slots would never start.
    rig.until_done(FRESH).await;
    let running = daemon.status.running();
    assert!((24..=28).contains(&running), "{running} of the dead run");
    assert_eq!(redriving.await.unwrap().unwrap(), DEAD as u64);
    permits.add_permits(DEAD as usize);
    rig.until_done(DEAD as usize + FRESH).await;
    rig.each_ran_once(FRESH).await;
    // All of them went the way of a backlog.
    assert!(daemon.signals(Source::Sweep) >= DEAD as f64);
    assert_eq!(rig.with_status(2).await, 0);
    // Lateness is counted from the redrive, not from two hours ago.
    let hours = "lapsed_lateness_seconds_bucket{le=\"3600.0\",route=\"Job@slow\"}";
    until("the runs are counted", async || {
        daemon.metric(hours) >= DEAD as f64
    })
    .await;
}

#[tokio::test]
async fn max_attempts_applies_to_tasks_from_every_producer() {
    let rig = Rig::new("[[routes]]\nmatch = '^Run@'\nexec = ['/bin/false']").await;
    let shell = Shell::of(&rig);
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = [
        r#"{"key": "Run@it@bulk", "in": "0s", "max_attempts": 3}"#,
        r#"{"key": "Run@it@none", "in": "0s", "max_attempts": 0}"#,
    ];
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let (code, _, complaint) = shell.run(&["schedule", "--file", file.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        complaint.contains("line 2: max_attempts is 0, expected at least 1"),
        "{complaint}"
    );
    shell.text(&[
        "schedule",
        "Run@it@cli",
        "--in",
        "0s",
        "--max-attempts",
        "2",
    ]);
    let daemon = rig.daemon_with(Handlers::new());
    let task = lapsed::Task::from(key("Run@it@library")).max_attempts(1);
    let due = Duration::ZERO;
    daemon.tasks.create(task, due).await.unwrap();
    for (name, runs) in [("bulk", 3), ("cli", 2), ("library", 1)] {
        let name = format!("Run@it@{name}");
        rig.until_state(&name, State::Dead).await;
        let dead = rig.record(&name).await;
        assert_eq!(
            (dead.attempt, dead.history.len()),
            (runs, runs.into()),
            "{name}"
        );
    }
}
