//! What a dead daemon was running: when it runs again, and that it does not while the daemon lives.

use std::time::Duration;

use lapsed::client::Pace;
use lapsed::ledger::ListFilter;
use lapsed::task::State;
use lapsed::{Handlers, TaskContext};
use rustix::process::Signal;

use crate::support::daemon::Daemon;
use crate::support::handlers::write_down;
use crate::support::maria::numbers;
use crate::support::not_tried::not_tried;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::tasks::create;
use crate::support::wait::{until, until_within};

const LEASED: &str = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND lease_until > UNIX_TIMESTAMP(NOW(3))";

/// When the first lease runs out.
async fn lease_ends_ms(rig: &Rig) -> i64 {
    rig.number("SELECT CAST(MIN(lease_until) * 1000 AS SIGNED) FROM tb_time_limit_task")
        .await
}

#[tokio::test]
async fn runs_of_a_killed_daemon_complete_soon_after_its_restart_and_take_effect_once() {
    const TASKS: usize = 200;
    // No lease runs out during the test.
    let rig = Rig::new("engine.lease = '1h'\nledger.max_connections = 20").await;
    let client = rig.client().await;
    let mut first = Process::worker(&rig);
    for number in 0..TASKS {
        create(&client, &format!("Job@slow@{}", 100 + number), 0).await;
    }
    until("some are done", async || rig.with_status(1).await >= 20).await;
    first.kill();
    assert!(
        rig.number(LEASED).await > 0,
        "it was killed in the middle of its work"
    );
    let second = Process::worker(&rig);
    until("all are done, though leases last longer", async || {
        rig.with_status(1).await == TASKS as i64
    })
    .await;
    rig.each_effect_once(TASKS).await;
    second.until_logged("whose process is gone").await;
    let runs_again = "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt = 2 AND crashes = 1";
    let ran_once = "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt = 1 AND crashes = 0";
    let (again, once) = (rig.number(runs_again).await, rig.number(ran_once).await);
    // The server may have carried out a last statement of the killed daemon: how many those are is not exact.
    assert!(again > 0);
    assert_eq!(again + once, TASKS as i64);
    let daemons = "SELECT COUNT(DISTINCT daemon) FROM tb_time_limit_task WHERE daemon REGEXP '^[^/]+:[0-9]+/[0-9a-f]{12}[.][0-9]+$'";
    assert_eq!(rig.number(daemons).await, 2);
}

#[tokio::test]
async fn runs_of_a_killed_daemon_are_resumed_by_a_daemon_that_detects_its_loss() {
    // No lease runs out during the test.
    let rig = Rig::new("engine.lease = '1h'\nledger.max_connections = 20").await;
    let client = rig.client().await;
    let mut first = Process::worker(&rig);
    create(&client, "Job@slow@600000", 0).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    let second = Process::worker(&rig);
    second.until_logged("other daemons came or went").await;
    first.kill();
    until("it runs elsewhere", async || rig.runs().await.len() == 2).await;
    let record = rig.record("Job@slow@600000").await;
    assert_eq!((record.attempt, record.crashes), (2, 1));
}

#[tokio::test]
async fn a_frozen_daemon_is_not_taken_for_dead() {
    let rig = Rig::new("engine.lease = '6s'\nledger.max_connections = 20").await;
    let client = rig.client().await;
    let frozen = Process::worker(&rig);
    for number in 0..5 {
        create(&client, &format!("Job@slow@{}", 60_000 + number), 0).await;
    }
    until("all are running", async || rig.runs().await.len() == 5).await;
    frozen.freeze();
    let ends_ms = lease_ends_ms(&rig).await;
    let other = Process::worker(&rig);
    until("all run elsewhere", async || rig.runs().await.len() == 10).await;
    let runs = rig.runs().await;
    let earliest = runs[5..].iter().map(|run| run.at_ms).min().unwrap();
    assert!(earliest >= ends_ms, "{earliest}, {ends_ms}");
    assert!(!other.log().contains("process is gone"), "{}", other.log());
    frozen.signal(Signal::KILL);
}

#[tokio::test]
async fn a_daemon_in_another_pid_namespace_waits_for_the_lease() {
    let rig = Rig::new("engine.lease = '6s'\nledger.max_connections = 20").await;
    let client = rig.client().await;
    let mut first = Process::worker(&rig);
    create(&client, "Job@slow@600000", 0).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    let namespace = Process::worker_in_a_pid_namespace(&rig);
    let is_real = namespace.is_ok();
    let second = namespace.unwrap_or_else(|refusal| {
        not_tried(
            "a_daemon_in_another_pid_namespace_waits_for_the_lease",
            &format!("a real PID namespace: {refusal}"),
        );
        Process::worker(&rig)
    });
    second.until_logged("other daemons came or went").await;
    if !is_real {
        // The name that the first would have in another namespace. Nothing writes the column while it runs.
        rig.run_sql(
            "UPDATE tb_time_limit_task SET daemon = \
               CONCAT(SUBSTRING_INDEX(daemon, '/', 1), '/', REPEAT('0', 12), '.', SUBSTRING_INDEX(daemon, '.', -1))",
        )
        .await;
    }
    first.kill();
    let ends_ms = lease_ends_ms(&rig).await;
    until("it runs elsewhere", async || rig.runs().await.len() == 2).await;
    let runs = rig.runs().await;
    assert!(runs[1].at_ms >= ends_ms, "{runs:?}, {ends_ms}");
    assert!(!second.log().contains("process is gone"));
    if !is_real {
        return;
    }
    // A process of the same host in one namespace, whose name this is, does not exist in the other.
    let names = "SELECT COUNT(*) FROM tb_time_limit_task WHERE daemon REGEXP ':[0-9]+/[0-9a-f]{12}[.][0-9]+$'";
    assert_eq!(rig.number(names).await, 1, "it knows itself, too");
}

/// `Job@long` runs until its daemon ends. So does `Slow@run`, of which each daemon runs one at a time.
fn held_and_free() -> Handlers {
    let mut handlers = Handlers::new();
    handlers
        .on(("Slow", "run"), |_: Vec<String>| std::future::pending())
        .concurrency(1);
    handlers.on(
        ("Job", "long"),
        |task: TaskContext, _: Vec<String>| async move {
            write_down(&task).await?;
            std::future::pending().await
        },
    );
    handlers
}

/// Two daemons on a large overdue backlog of `Slow@run`; the first of them runs `Job@long@1`. Their sweeps are so rare
/// that none gets past the backlog during the test.
async fn behind_a_held_backlog(rig: &Rig) -> (Daemon, Daemon) {
    const HELD: i64 = 200_000;
    // 200 of them go on falling due each second.
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
         SELECT CONCAT('Slow@run@', seq), 0, UNIX_TIMESTAMP() - 2000, UNIX_TIMESTAMP() - 900 + seq DIV 200, 0 FROM {}",
        numbers(HELD)
    ))
    .await;
    let first = rig.daemon_with(held_and_free());
    // Only the event finds this task soon: the sweep is behind the backlog.
    first.hears_events().await;
    until("its key is written", async || {
        first.create("Job@long@1", 0).await.armed
    })
    .await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    let second = rig.daemon_with(held_and_free());
    second.hears_events().await;
    until("the second knows the first", async || {
        second.status.members() == 2
    })
    .await;
    (first, second)
}

#[tokio::test]
async fn tasks_of_a_dead_daemon_behind_a_held_backlog_start_soon_after_its_lease() {
    let rig = Rig::new("engine.lease = '8s'\nengine.timeout = '1h'\nsweep.interval = '10m'").await;
    let (first, _second) = behind_a_held_backlog(&rig).await;
    // Of this process, so that nobody can know that it is dead.
    first.kill();
    let ends_ms = rig
        .number("SELECT CAST(lease_until * 1000 AS SIGNED) FROM tb_time_limit_task WHERE `key` = 'Job@long@1'")
        .await;
    // Long before the next sweep.
    until("it runs again", async || rig.runs().await.len() == 2).await;
    let run = &rig.runs().await[1];
    assert_eq!(run.attempt, 2);
    assert!(run.at_ms >= ends_ms, "{run:?} before {ends_ms}");
    assert_eq!(rig.state("Job@long@1").await, State::Running);
}

#[tokio::test]
async fn tasks_released_by_a_stopped_daemon_behind_a_held_backlog_start_soon_elsewhere() {
    let rig =
        Rig::new("engine.timeout = '1h'\nengine.drain_timeout = '2s'\nsweep.interval = '10m'")
            .await;
    let (first, _second) = behind_a_held_backlog(&rig).await;
    first.stop().await;
    // Long before the next sweep.
    until("it runs again", async || rig.runs().await.len() == 2).await;
    let run = &rig.runs().await[1];
    assert_eq!(run.attempt, 1, "it was given back");
}

#[tokio::test]
async fn a_redriven_task_behind_a_held_backlog_starts_soon() {
    const HELD: i64 = 200_000;
    let rig = Rig::new("engine.timeout = '1h'\nsweep.interval = '10s'").await;
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
         SELECT CONCAT('Slow@run@', seq), 0, UNIX_TIMESTAMP() - 9000, UNIX_TIMESTAMP() - 5000 + seq DIV 100, 0 FROM {}",
        numbers(HELD)
    ))
    .await;
    rig.run_sql(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts, finished_at) \
         VALUES ('Job@long@1', 2, UNIX_TIMESTAMP() - 9000, UNIX_TIMESTAMP() - 4000, 0, UNIX_TIMESTAMP() - 3900)",
    )
    .await;
    let daemon = rig.daemon_with(held_and_free());
    daemon.hears_events().await;
    until("it is behind", async || rig.number(LEASED).await == 1).await;
    let of_job = ListFilter {
        class: Some("Job".to_owned()),
        ..ListFilter::default()
    };
    let client = rig.client().await;
    let redriven = client.redrive_where(&of_job, Pace::default()).await;
    assert_eq!(redriven.unwrap(), 1);
    until_within(Duration::from_secs(30), "it runs", async || {
        rig.runs().await.len() == 1
    })
    .await;
    assert_eq!(rig.state("Job@long@1").await, State::Running);
    assert_eq!(rig.record("Job@long@1").await.attempt, 1);
}
