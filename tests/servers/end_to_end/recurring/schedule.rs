//! When the occurrences of a series run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::client::NotArmed;
use lapsed::task::{CatchUp, State};
use lapsed::{Due, HandlerError, MysqlTask, TaskContext, UnixMs};

use super::{begin, dues, each_once, every};
use crate::support::daemon::Daemon;
use crate::support::handlers::{handlers, write_down};
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::tasks::key;
use crate::support::wait::until;

#[tokio::test]
async fn among_three_daemons_every_occurrence_runs_once_and_none_drifts() {
    const OCCURRENCES: usize = 8;
    let rig = Rig::new("").await;
    let daemons = [rig.daemon(), rig.daemon(), rig.daemon()];
    for daemon in &daemons {
        daemon.hears_events().await;
    }
    let all = every(1_000).catch_up(CatchUp::All);
    let begun = begin(&daemons[0].tasks, "Job@record@1", all.clone()).await;
    begin(&daemons[0].tasks, "Job@effect@2", all).await;
    let start = begun.due().0;
    until("the key is armed for the next one", async || {
        rig.pttl("Job@record@1").await > 0
    })
    .await;
    until("it has run some times", async || {
        rig.runs().await.len() >= OCCURRENCES
            && rig.number("SELECT COUNT(*) FROM effects").await >= OCCURRENCES as i64
    })
    .await;
    for name in ["Job@record@1", "Job@effect@2"] {
        daemons[1].tasks.cancel(&key(name)).await.unwrap();
    }
    let runs = rig.runs().await;
    each_once(&runs);
    let expected: Vec<i64> = (0..runs.len() as i64).map(|n| start + n * 1_000).collect();
    assert_eq!(dues(&runs), expected);
    let effects = rig.number("SELECT COUNT(*) FROM effects").await;
    let ids = rig.number("SELECT COUNT(DISTINCT task) FROM effects").await;
    assert_eq!(effects, ids, "one effect of each occurrence");
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        2
    );
}

#[tokio::test]
async fn a_handlers_own_due_time_comes_before_that_of_its_series() {
    let rig = Rig::new("").await;
    let mut handlers = handlers();
    let count = Arc::new(AtomicU32::new(0));
    handlers.on(("Job", "again"), move |task: TaskContext| {
        let run = count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(task.recurrence().is_some());
            write_down(&task).await?;
            let tx = task.begin().await?;
            match run {
                0 => task.again_in(tx, Due::after_ms(300)?).await,
                _ => task.complete_in(tx).await,
            }
        }
    });
    let daemon = rig.daemon_with(handlers);
    begin(&daemon.tasks, "Job@again", every(3_600_000)).await;
    let start = rig.record("Job@again").await.due.0;
    // As `lapsed run` does.
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = UNIX_TIMESTAMP(NOW(3))")
        .await;
    until("it is on its schedule again", async || {
        rig.runs().await.len() == 2 && rig.record("Job@again").await.due.0 == start
    })
    .await;
    let runs = rig.runs().await;
    let gap = runs[1].due_ms - runs[0].at_ms;
    assert!((250..5_000).contains(&gap), "{runs:?}");
}

#[tokio::test]
async fn a_handler_that_marks_its_row_processed_does_not_end_its_series() {
    let rig = Rig::new("").await;
    let mut handlers = handlers();
    let sql = rig.sql.clone();
    handlers.on(("Job", "legacy"), move |task: TaskContext, way: String| {
        let sql = sql.clone();
        async move {
            write_down(&task).await?;
            let mark = "UPDATE tb_time_limit_task SET status = 1 WHERE `key` = ?";
            let mark = sqlx::query(mark).bind(task.key().as_str());
            mark.execute(&sql).await?;
            match way.as_str() {
                "fails" => Err(HandlerError::new("not now")),
                "dies" => Err(HandlerError::permanent("never")),
                "snoozes" => Err(HandlerError::snooze(Duration::from_millis(1))),
                _ => Ok(()),
            }
        }
    });
    let daemon = rig.daemon_with(handlers);
    let ways = ["returns", "fails", "dies", "snoozes"].map(|way| format!("Job@legacy@{way}"));
    for name in &ways {
        begin(&daemon.tasks, name, every(1_000).catch_up(CatchUp::All)).await;
    }
    for name in &ways {
        until(format!("{name} has run some times"), async || {
            rig.runs_of(name).await.len() >= 3
        })
        .await;
        assert_eq!(rig.record(name).await.last_error, None, "{name}");
    }
    each_once(&rig.runs().await);

    // The last of a series is done.
    let once = every(1_000).times(1).unwrap();
    begin(&daemon.tasks, "Job@legacy@dies", once).await;
    rig.until_state("Job@legacy@dies", State::Done).await;
    until("its lease is given back", async || {
        rig.number("SELECT lease_until > 0 FROM tb_time_limit_task WHERE status = 1")
            .await
            == 0
    })
    .await;
}

#[tokio::test]
async fn a_series_that_is_cancelled_during_its_run_is_not_armed_again() {
    const WAYS: [(&str, State); 4] = [
        ("returns", State::Done),
        ("completes", State::Done),
        ("again", State::Done),
        ("fails", State::Cancelled),
    ];
    let rig = Rig::new("").await;
    let (entered, mut running) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let open = Arc::clone(&gate);
    let mut handlers = handlers();
    handlers.on(("Job", "gated"), move |task: TaskContext, way: String| {
        let (entered, gate) = (entered.clone(), Arc::clone(&gate));
        async move {
            entered.send(()).unwrap();
            drop(gate.acquire().await);
            match way.as_str() {
                "completes" => task.complete_in(task.begin().await?).await,
                "again" => {
                    let tx = task.begin().await?;
                    task.again_in(tx, Due::after_ms(3_600_000)?).await
                }
                "fails" => Err(HandlerError::permanent("no")),
                _ => Ok(()),
            }
        }
    });
    let daemon = rig.daemon_with(handlers);
    let soon = UnixMs(rig.now_ms().await + 500);
    for (way, _) in WAYS {
        let hourly = every(3_600_000).starting(soon);
        begin(&daemon.tasks, &format!("Job@gated@{way}"), hourly).await;
    }
    for (way, _) in WAYS {
        running.recv().await.unwrap_or_else(|| panic!("{way} runs"));
    }
    for (way, _) in WAYS {
        let key = key(&format!("Job@gated@{way}"));
        daemon.tasks.cancel(&key).await.unwrap();
    }
    open.add_permits(WAYS.len());
    for (way, state) in WAYS {
        rig.until_state(&format!("Job@gated@{way}"), state).await;
    }
    // What it had to write to Redis is written then.
    daemon.stop().await;
    for (way, _) in WAYS {
        assert_eq!(rig.pttl(&format!("Job@gated@{way}")).await, -2, "{way}");
    }
}

#[tokio::test]
async fn a_bare_setex_moves_the_next_occurrence_and_no_more() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    begin(&daemon.tasks, "Job@record@1", every(3_600_000)).await;
    let start = rig.record("Job@record@1").await.due.0;
    let () = rig.redis_says(&["SETEX", "Job@record@1", "1", ""]).await;
    until("it has run", async || rig.runs().await.len() == 1).await;
    // The occurrence that was moved does not run at its own time, too.
    until("it is on its schedule again", async || {
        rig.record("Job@record@1").await.due.0 == start + 3_600_000
    })
    .await;
}

#[tokio::test]
async fn asking_for_a_series_that_is_there_touches_no_key() {
    let rig = Rig::new("").await;
    let tasks = rig.client().await;
    let made = begin(&tasks, "Job@record@1", every(3_600_000)).await;
    assert!(made.armed);
    // Somebody moves it, and no daemon has seen that yet.
    let () = rig.redis_says(&["SETEX", "Job@record@1", "60", ""]).await;
    let again = begin(&tasks, "Job@record@1", every(3_600_000)).await;
    assert_eq!(again.not_armed(), Some(NotArmed::LeftAsItIs));
    assert_eq!(again.arming(), made.arming());
    assert!(rig.pttl("Job@record@1").await <= 60_000);
}

#[tokio::test]
async fn a_recurrence_that_cannot_be_read_is_dead_and_not_forgotten() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon();
    daemon.create("Job@record@1", 60_000).await;
    rig.run_sql(
        "UPDATE tb_time_limit_task SET recurrence = '{\"evry\":1}', end_time = UNIX_TIMESTAMP(NOW(3))",
    )
    .await;
    rig.until_state("Job@record@1", State::Dead).await;
    let error = rig.record("Job@record@1").await.last_error.unwrap();
    assert!(error.contains("unknown field `evry`"), "{error}");
    assert_eq!(rig.runs().await, []);
}

#[tokio::test]
async fn a_recurring_task_with_a_count_ends_done_in_mysql() {
    a_recurring_task_with_a_count_ends_done(&Rig::new("").await).await;
}

pub async fn a_recurring_task_with_a_count_ends_done(scene: &impl Scene) {
    let daemon = Daemon::start(&scene.config(), scene.handlers());
    let rule = every(1_000).catch_up(CatchUp::All).times(3).unwrap();
    begin(&daemon.tasks, "Job@effect@1", rule.clone()).await;
    begin(&daemon.tasks, "Job@record@2", rule).await;
    scene.until_done(2).await;
    assert_eq!(scene.runs().await.len(), 3);
    assert_eq!(scene.effects().await.len(), 3);
}

#[tokio::test]
async fn a_killed_worker_leaves_no_effect_of_an_occurrence_out_and_none_twice() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let rule = every(1_000).catch_up(CatchUp::All);
    let client = rig.client().await;
    let start = begin(&client, "Job@slow@300", rule).await.due().0;
    let mut seen = 0;
    // A third time might be of the same occurrence, and poison.
    for _ in 0..2 {
        let mut worker = Process::worker(&rig);
        until("one more run has begun", async || {
            rig.runs().await.len() > seen
        })
        .await;
        worker.kill();
        seen = rig.runs().await.len();
    }
    let _worker = Process::worker(&rig);
    let effects = "SELECT COUNT(*) FROM effects";
    until("it has caught up on some", async || {
        rig.number(effects).await >= 6
    })
    .await;
    client.cancel(&key("Job@slow@300")).await.unwrap();
    rig.until_state("Job@slow@300", State::Cancelled).await;
    let found: Vec<String> = sqlx::query_scalar("SELECT task FROM effects ORDER BY id")
        .fetch_all(&rig.sql)
        .await
        .unwrap();
    let row = found[0].split_once('-').unwrap().0;
    let expected: Vec<String> = (0..found.len() as i64)
        .map(|n| format!("{row}-{}", start + n * 1_000))
        .collect();
    assert_eq!(found, expected);
}
