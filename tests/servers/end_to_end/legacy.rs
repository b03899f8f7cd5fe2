//! Programs that know only the first six columns go on working while the daemon runs.

use std::sync::Arc;

use lapsed::task::{Scope, State, UnixMs};
use lapsed::{HandlerError, MysqlTask, TaskContext};
use rustix::process::Signal;
use tokio::sync::Semaphore;

use crate::support::handlers::write_down;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// As older programs created it, word for word.
const SEED: &str = "CREATE TABLE `tb_time_limit_task` (
  `id` int(10) unsigned NOT NULL AUTO_INCREMENT,
  `key` varchar(255) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL COMMENT 'Redis鍵',
  `status` tinyint(3) unsigned NOT NULL COMMENT '狀態,0未處理,1已處理',
  `start_time` decimal(13,3) unsigned NOT NULL COMMENT '開始時間(小數部分為毫秒)',
  `end_time` decimal(13,3) unsigned NOT NULL COMMENT '結束時間(小數部分為毫秒)',
  `sts` tinyint(3) unsigned NOT NULL,
  PRIMARY KEY (`id`),
  KEY `we` (`key`) USING BTREE
) ENGINE=InnoDB DEFAULT CHARSET=utf8 COMMENT='這個表用於記錄需要時間控制的任務Key,配合Redis、以及回調腳本使用'";

/// What an older program does to create a task: find, then update or insert; then `SETEX`.
async fn old_create(rig: &Rig, name: &str, seconds: u32) {
    let now = rig.number("SELECT UNIX_TIMESTAMP()").await;
    record(
        rig,
        name,
        &now.to_string(),
        &(now + i64::from(seconds)).to_string(),
    )
    .await;
    let () = rig
        .redis_says(&["SETEX", name, &seconds.to_string(), ""])
        .await;
}

/// The same in milliseconds, with `PSETEX`.
async fn old_create_ms(rig: &Rig, name: &str, ms: i64) {
    let now = rig.now_ms().await;
    let text = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
    record(rig, name, &text(now), &text(now + ms)).await;
    let () = rig.redis_says(&["PSETEX", name, &ms.to_string(), ""]).await;
}

async fn record(rig: &Rig, name: &str, start: &str, end: &str) {
    let found = rig
        .number(format!(
            "SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` = '{name}'"
        ))
        .await;
    rig.run_sql(&match found {
        0 => format!(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
             VALUES ('{name}', 0, {start}, {end}, 0)"
        ),
        _ => format!(
            "UPDATE tb_time_limit_task SET status = 0, start_time = {start}, end_time = {end} \
             WHERE `key` = '{name}'"
        ),
    })
    .await;
}

async fn old_delete(rig: &Rig, name: &str) {
    rig.run_sql(&format!(
        "UPDATE tb_time_limit_task SET sts = 1 WHERE `key` = '{name}'"
    ))
    .await;
    let _: i64 = rig.redis_says(&["DEL", name]).await;
}

#[tokio::test]
async fn a_bare_row_with_its_key_runs_once() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    for number in 0..10 {
        old_create(&rig, &format!("Job@record@s{number}"), 1 + number % 3).await;
        old_create_ms(
            &rig,
            &format!("Job@record@ms{number}"),
            150 * i64::from(number) + 1,
        )
        .await;
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
}

#[tokio::test]
async fn a_bare_row_without_any_key_runs_once() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    record(
        &rig,
        "Job@record@1",
        "UNIX_TIMESTAMP()",
        "UNIX_TIMESTAMP() + 1",
    )
    .await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn a_row_deleted_by_an_old_program_does_not_run() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    for number in 0..10 {
        old_create(&rig, &format!("Job@record@{number}"), 3).await;
    }
    daemon.create("Job@record@made", 3_000).await;
    for number in 0..10 {
        old_delete(&rig, &format!("Job@record@{number}")).await;
    }
    old_delete(&rig, "Job@record@made").await;
    old_create(&rig, "Job@record@after", 5).await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.runs().await[0].name, "Job@record@after");
    assert_eq!(rig.state("Job@record@0").await, State::Cancelled);
}

#[tokio::test]
async fn a_row_deleted_and_recreated_by_an_old_program_runs_once() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@made", 60_000).await;
    for number in 0..5 {
        old_create(&rig, &format!("Job@record@{number}"), 60).await;
    }
    let names: Vec<String> = (0..5)
        .map(|number| format!("Job@record@{number}"))
        .collect();
    for name in names.iter().map(String::as_str).chain(["Job@record@made"]) {
        old_delete(&rig, name).await;
        old_create(&rig, name, 4).await;
        let sts =
            format!("SELECT CAST(sts AS SIGNED) FROM tb_time_limit_task WHERE `key` = '{name}'");
        assert_eq!(rig.number(sts).await, 1, "nobody has taken it back yet");
    }
    rig.until_done(6).await;
    rig.each_ran_once(6).await;
}

#[tokio::test]
async fn a_row_recreated_by_an_old_program_runs_after_any_delay() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    let delays_ms = [50, 200, 300, 500, 700, 1_000, 1_500];
    for delay_ms in delays_ms {
        let name = format!("Job@record@{delay_ms}");
        old_create(&rig, &name, 60).await;
        old_delete(&rig, &name).await;
        old_create_ms(&rig, &name, delay_ms).await;
    }
    old_create(&rig, "Job@record@second", 60).await;
    old_delete(&rig, "Job@record@second").await;
    old_create(&rig, "Job@record@second", 1).await;
    rig.until_done(delays_ms.len() + 1).await;
    rig.each_ran_once(delays_ms.len() + 1).await;
}

#[tokio::test]
async fn a_row_recreated_by_an_old_program_while_the_daemon_is_frozen_runs_once() {
    let rig = Rig::new("").await;
    let worker = Process::worker(&rig);
    rig.arm("Job@record@before", 500).await;
    rig.until_done(1).await;
    worker.freeze();
    old_create(&rig, "Job@record@deleted", 60).await;
    old_delete(&rig, "Job@record@deleted").await;
    old_create(&rig, "Job@record@recreated", 60).await;
    old_delete(&rig, "Job@record@recreated").await;
    old_create(&rig, "Job@record@recreated", 1).await;
    let recreated = rig.now_ms().await;
    rig.until_clock(UnixMs(recreated + 5_000)).await;
    worker.signal(Signal::CONT);
    rig.until_done(2).await;
    old_create(&rig, "Job@record@after", 2).await;
    rig.until_done(3).await;
    rig.each_ran_once(3).await;
}

#[tokio::test]
async fn a_task_that_an_old_program_recreates_during_its_run_runs_again() {
    let rig = Rig::new("").await;
    let mut handlers = crate::support::handlers::handlers();
    let go = Arc::new(Semaphore::new(0));
    let waits_for = Arc::clone(&go);
    handlers.on(("Job", "waits"), move |task: TaskContext, _: u32| {
        let go = Arc::clone(&waits_for);
        async move {
            write_down(&task).await?;
            go.acquire().await.expect("it is never closed").forget();
            Ok(())
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let name = "Job@waits@1";
    old_create(&rig, name, 1).await;
    until("it runs", async || rig.runs_of(name).await.len() == 1).await;
    old_delete(&rig, name).await;
    old_create(&rig, name, 1).await;
    until("its key has expired", async || rig.pttl(name).await < 0).await;
    go.add_permits(2);
    until("it runs again", async || rig.runs_of(name).await.len() == 2).await;
    rig.until_done(1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_paused_task_that_an_old_program_recreates_runs_once_after_the_pause() {
    let rig = Rig::new("").await;
    let worker = Process::worker(&rig);
    rig.arm("Job@record@before", 500).await;
    rig.until_done(1).await;
    let client = rig.client().await;
    let job = Scope::class("Job").unwrap();
    client.pause(&job, "test", "").await.unwrap();
    let name = "Job@record@recreated";
    old_create(&rig, name, 5).await;
    let due = rig.record(name).await.due;
    // The daemon expects it from now on.
    rig.until_clock(UnixMs(due.0 - 2_000)).await;
    worker.freeze();
    old_delete(&rig, name).await;
    let (now, due_s) = ((rig.now_ms().await / 1000).to_string(), due.0 / 1000);
    record(&rig, name, &now, &due_s.to_string()).await;
    let left = (due.0 - rig.now_ms().await).max(1).to_string();
    let () = rig.redis_says(&["PSETEX", name, &left, ""]).await;
    rig.until_clock(UnixMs(due.0 + 1_000)).await;
    worker.signal(Signal::CONT);
    old_create(&rig, "Job@record@after", 1).await;
    rig.until_clock(UnixMs(due.0 + 3_000)).await;
    client.resume(&job).await.unwrap();
    rig.until_done(3).await;
    rig.each_ran_once(3).await;
}

#[tokio::test]
async fn a_finished_task_runs_again_when_an_old_program_recreates_it() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@done", 0).await;
    rig.until_done(1).await;
    daemon.create("Job@record@cancelled", 60_000).await;
    let cancelled = crate::support::tasks::key("Job@record@cancelled");
    daemon.tasks.cancel(&cancelled).await.unwrap();
    for name in ["Job@record@done", "Job@record@cancelled"] {
        old_create(&rig, name, 4).await;
    }
    until("all has run", async || rig.runs().await.len() == 3).await;
    rig.until_done(2).await;
    for run in rig.runs().await {
        assert!(run.at_ms >= run.due_ms, "early: {run:?}");
    }
}

#[tokio::test]
async fn a_handler_that_marks_its_row_itself_has_succeeded() {
    let rig = Rig::new("").await;
    let mut handlers = crate::support::handlers::handlers();
    handlers.on(
        ("Job", "marks"),
        |task: TaskContext, then: String| async move {
            write_down(&task).await?;
            let mut tx = task.begin().await?;
            sqlx::query("UPDATE tb_time_limit_task SET status = 1 WHERE `key` = ?")
                .bind(task.key().as_str())
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            match then.as_str() {
                "fails" => Err(HandlerError::new("after all")),
                "panics" => panic!("after all"),
                _ => Ok(()),
            }
        },
    );
    let daemon = rig.daemon_with(handlers);
    for then in ["returns", "fails", "panics"] {
        daemon.create(&format!("Job@marks@{then}"), 0).await;
    }
    until("all have let go of their leases", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1 AND lease_until = 0 AND finished_at > 0").await == 3
    })
    .await;
    // Longer than a retry would wait.
    daemon.create("Job@record@1", 1_000).await;
    rig.until_done(4).await;
    daemon.stop().await;
    rig.each_ran_once(4).await;
}

#[tokio::test]
async fn a_table_of_an_old_program_is_migrated_under_it() {
    let rig = Setup::new("").without_table().start().await;
    rig.run_sql(SEED).await;
    rig.run_sql(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) VALUES
         ('Job@record@done', 1, 1700000000, 1700000001.5, 0),
         ('Job@record@overdue', 0, 1700000000, 1700000001, 0),
         ('Job@record@deleted', 0, UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + 2, 1),
         ('Job@record@twice', 0, UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + 1, 0),
         ('Job@record@twice', 0, UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + 3, 0),
         ('Job@record@mixed', 1, UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + 9, 0),
         ('Job@record@mixed', 0, UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + 1, 0),
         ('not a task at all', 0, 1700000000, 1700000001, 0)",
    )
    .await;
    const WRITTEN: usize = 40;
    let writing = async {
        for number in 0..WRITTEN {
            old_create(
                &rig,
                &format!("Job@record@w{number}"),
                1 + number as u32 % 2,
            )
            .await;
        }
    };
    let migrating = async {
        until("the program is writing", async || {
            rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await > 15
        })
        .await;
        rig.migrate().await;
        rig.listening_daemon().await
    };
    let ((), daemon) = tokio::join!(writing, migrating);

    // Overdue, twice, mixed, and what was written; and the one that was done.
    rig.until_done(WRITTEN + 4).await;
    rig.each_ran_once(WRITTEN + 3).await;
    let ran =
        |name: &str, runs: &[crate::support::rig::Run]| runs.iter().any(|run| run.name == name);
    let runs = rig.runs().await;
    assert!(!ran("Job@record@done", &runs) && !ran("Job@record@deleted", &runs));
    let kept = rig
        .number("SELECT COUNT(*) FROM tb_time_limit_task_duplicates")
        .await;
    assert_eq!(kept, 2);
    assert!(daemon.is_alive());
}
