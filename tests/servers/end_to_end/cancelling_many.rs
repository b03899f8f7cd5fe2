//! Calling off many: by tag, prefix and class, while they fall due.

use std::ops::ControlFlow;

use lapsed::client::CancelReport;
use lapsed::ledger::ListFilter;
use lapsed::task::State;
use lapsed::{Due, Task, TaskClient};
use serde_json::Value;
use sqlx::Connection as _;

use crate::support::maria::numbers;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::create;
use crate::support::wait::until;

/// Tasks `Job@record@<name><n>` with this tag, the first after `delay_ms`, and so many more milliseconds between.
async fn create_tagged(
    tasks: &TaskClient,
    tag: &str,
    name: &str,
    count: i64,
    delay_ms: i64,
    apart_ms: i64,
) {
    let task = |n: i64| {
        let task = Task::new("Job", "record", [format!("{name}{n}")]).unwrap();
        let due = Due::after_ms(delay_ms + n * apart_ms).unwrap();
        (task.tag(tag), due)
    };
    let many = (0..count).map(task).collect();
    tasks.create_many(many).await.unwrap();
}

#[tokio::test]
async fn no_task_cancelled_by_tag_starts_after_the_answer() {
    const MANY: i64 = 3_000;
    let rig = Rig::new("engine.concurrency = 64").await;
    let daemon = rig.listening_daemon().await;
    let client = rig.client().await;
    // Some before the call, many during it, most after.
    create_tagged(&client, "gone", "g", MANY, 1_500, 1).await;
    create_tagged(&client, "stays", "s", 50, 1_500, 40).await;
    until("some have run", async || rig.with_status(1).await > 100).await;
    let report = client.cancel_where(&ListFilter::tag("gone")).await.unwrap();
    let answered_at = rig.now_ms().await;
    until("nothing is pending or running", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0")
            .await
            == 0
    })
    .await;
    daemon.create("Job@record@last", 100).await;
    rig.until_state("Job@record@last", State::Done).await;

    let cancelled = rig.with_status(3).await;
    assert_eq!(report.locked, 0);
    assert!(report.cancelled > 500, "{report:?}");
    // One that ran when it was called off may have succeeded all the same.
    let ended = report.cancelled as i64..=(report.cancelled + report.running) as i64;
    assert!(
        ended.contains(&cancelled),
        "{report:?}, {cancelled} in the ledger"
    );
    let runs = rig.runs().await;
    let of_gone = |name: &str| name.starts_with("Job@record@g");
    let ran = runs.iter().filter(|run| of_gone(&run.name)).count() as i64;
    assert_eq!(ran + cancelled, MANY, "each either ran or was called off");
    assert_eq!(
        runs.iter()
            .filter(|run| run.name.starts_with("Job@record@s"))
            .count(),
        50
    );
    let late = runs
        .iter()
        .filter(|run| of_gone(&run.name) && run.at_ms > answered_at);
    // What ran when the answer came had been claimed before: at most as many as there are slots.
    assert!(late.count() as u64 <= report.running, "{report:?}");
    let left: i64 = rig
        .redis_says(&["EVAL", "return #redis.call('KEYS', 'Job@record@g*')", "0"])
        .await;
    assert_eq!(left, 0, "keys are left");
}

#[tokio::test]
async fn cancelling_many_needs_no_redis() {
    let mut rig = Rig::new("redis.connect_timeout = '200ms'").await;
    let client = rig.client().await;
    create_tagged(&client, "t", "a", 600, 3_600_000, 0).await;
    rig.redis.kill();
    let report = client
        .cancel_where(&ListFilter::prefix("Job@record@a"))
        .await
        .unwrap();
    let all = CancelReport {
        cancelled: 600,
        ..CancelReport::default()
    };
    assert_eq!(report, all);
    assert_eq!(rig.with_status(3).await, 600);
    rig.redis.start_again().await.unwrap();
}

#[tokio::test]
async fn a_row_that_stays_locked_is_reported_and_delays_no_other() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    create_tagged(&client, "t", "a", 600, 3_600_000, 0).await;
    let url = rig.config().ledger.url.expose().to_owned();
    let mut other = sqlx::MySqlConnection::connect(&url).await.unwrap();
    let mut holding = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = 'Job@record@a7' FOR UPDATE";
    sqlx::query(lock).fetch_one(&mut *holding).await.unwrap();
    let report = client.cancel_where(&ListFilter::tag("t")).await.unwrap();
    assert_eq!((report.cancelled, report.locked), (599, 1));
    assert_eq!(rig.state("Job@record@a7").await, State::Pending);
    holding.rollback().await.unwrap();
    let report = client.cancel_where(&ListFilter::tag("t")).await.unwrap();
    assert_eq!((report.cancelled, report.locked), (1, 0));
}

#[tokio::test]
async fn bulk_cancel_reports_progress_and_stops_when_interrupted() {
    const ROWS: i64 = 60_000;
    let rig = Rig::new("").await;
    let client = rig.client().await;
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, sts, start_time, end_time, tag) \
         SELECT CONCAT('Far@m@', seq), 0, 0, UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + 86400, 't' FROM {}",
        numbers(ROWS)
    ))
    .await;
    let filter = ListFilter::tag("t");
    let would = client.would_cancel(&filter).await.unwrap();
    assert!(
        would.is_part || would.report.cancelled == ROWS as u64,
        "{would:?}"
    );
    let stopped = client.cancel_each(&filter, |_| ControlFlow::Break(()));
    let first = stopped.await.unwrap().cancelled;
    assert!((1..ROWS as u64).contains(&first), "{first}");
    assert_eq!(rig.with_status(3).await, first as i64);
    let mut said = Vec::new();
    let rest = client.cancel_each(&filter, |report| {
        said.push(report.cancelled);
        ControlFlow::Continue(())
    });
    assert_eq!(rest.await.unwrap().cancelled, ROWS as u64 - first);
    assert_eq!(said.last(), Some(&(ROWS as u64 - first)), "{said:?}");
    assert_eq!(rig.with_status(0).await, 0);
}

#[tokio::test]
async fn the_command_cancels_by_tag_prefix_and_class_and_says_how_many() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    let shell = Shell::of(&rig);
    let cancel = |words: &[&str]| {
        let (code, stdout, stderr) = shell.run(&[&["--json", "cancel"], words].concat());
        let value = serde_json::from_str(&stdout).unwrap_or(Value::Null);
        (code, value, stderr)
    };
    create_tagged(&client, "shop-7", "a", 5, 3_600_000, 0).await;
    create_tagged(&client, "shop-8", "b", 3, 3_600_000, 0).await;
    create(&client, "Other@record@1", 3_600_000).await;

    let (code, value, _) = cancel(&["--tag", "shop-7", "--dry-run"]);
    let expected = serde_json::json!({ "dry_run": true, "would_cancel": 5, "running": 0 });
    assert_eq!((code, value), (0, expected));
    let counted =
        |cancelled: u64| serde_json::json!({ "cancelled": cancelled, "running": 0, "locked": 0 });
    assert_eq!(cancel(&["--tag", "shop-7"]).1, counted(5));
    assert_eq!(cancel(&["--tag", "shop-7"]).1, counted(0));
    assert_eq!(cancel(&["--prefix", "Job@record@b1"]).1, counted(1));
    assert_eq!(
        cancel(&["--class", "Job", "--method", "record"]).1,
        counted(2)
    );
    assert_eq!(cancel(&["Other@record@1"]).1, counted(1));
    create(&client, "Other@record@3", 3_600_000).await;
    let soon = "2020-01-01T00:00:00Z";
    assert_eq!(cancel(&["--due-before", soon]).1, counted(0));
    assert_eq!(
        cancel(&["--due-after", soon, "--state", "pending"]).1,
        counted(1)
    );
    create(&client, "Other@record@4", 3_600_000).await;
    assert_eq!(cancel(&["--all"]).1, counted(1));

    for (words, said) in [
        (
            &["--prefix", ""][..],
            "it is empty, which matches everything: expected some text",
        ),
        (&["--state", "pending"][..], "give a key, a filter"),
        (&["--tag", "t", "--all"][..], "exclude each other"),
        (&["Job@record@1", "--tag", "t"][..], "cannot be used with"),
        (&[][..], "give a key, a filter"),
    ] {
        let (code, _, found) = cancel(words);
        assert_eq!(code, 2, "{words:?}: {found}");
        assert!(found.contains(said), "{words:?}: {found}");
    }
    // Nothing of it was cancelled by mistake.
    create(&client, "Other@record@2", 3_600_000).await;
    assert_eq!(rig.state("Other@record@2").await, State::Pending);
}
