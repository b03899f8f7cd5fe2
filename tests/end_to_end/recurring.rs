//! Tasks that come again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::client::NotArmed;
use lapsed::task::{CatchUp, Overlap, State};
use lapsed::{
    Due, HandlerError, HandlerRegistry, MysqlTask, Recurrence, Task, TaskClient, TaskContext,
    UnixMs,
};

use crate::rig::{Daemon, Rig, Run, handlers, key, until, write_down};
use crate::worker::{Process, config_file, lapsed};

fn every(ms: u64) -> Recurrence {
    Recurrence::every(Duration::from_millis(ms)).unwrap()
}

async fn begin(tasks: &TaskClient, name: &str, recurrence: Recurrence) -> lapsed::client::Made {
    let task = Task::from(key(name));
    tasks.create_recurring(task, recurrence).await.unwrap()
}

/// A series that fell due that long ago for the first time, as a daemon finds it that was not there.
async fn begun_ago(rig: &Rig, name: &str, recurrence: Recurrence, ago_ms: i64) -> UnixMs {
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
fn each_once(runs: &[Run]) {
    let mut counts = BTreeMap::new();
    for run in runs {
        *counts.entry(run.task.as_str()).or_insert(0) += 1;
        assert!(run.at_ms >= run.due_ms, "early: {run:?}");
        assert!(run.task.ends_with(&format!("-{}", run.due_ms)), "{run:?}");
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert_eq!(twice, [], "run more than once");
}

fn dues(runs: &[Run]) -> Vec<i64> {
    runs.iter().map(|run| run.due_ms).collect()
}

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
        daemons[1].tasks.cancel_key(&key(name)).await.unwrap();
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
    for run in &runs {
        assert!(run.at_ms - run.due_ms < 5_000, "late: {run:?}");
    }
}

#[tokio::test]
async fn a_daemon_that_was_away_leaves_out_what_was_missed() {
    let rig = Rig::new("").await;
    let start = begun_ago(&rig, "Job@record@1", every(3_000), 61_000).await;
    let daemon = rig.daemon();
    until("it has run", async || !rig.runs().await.is_empty()).await;
    let first = rig.runs().await.remove(0);
    assert_eq!((first.due_ms - start.0) % 3_000, 0, "on schedule");
    assert!(first.due_ms >= start.0 + 60_000, "{first:?} of {start:?}");
    assert!(first.at_ms - first.due_ms < 3_000, "{first:?}");
    assert!(daemon.metric("lapsed_occurrences_skipped_total") >= 20.0);
}

#[tokio::test]
async fn a_daemon_that_was_away_makes_up_once_for_all_that_was_missed() {
    let rig = Rig::new("").await;
    let rule = every(60_000).catch_up(CatchUp::Once);
    let start = begun_ago(&rig, "Job@record@1", rule, 605_000).await;
    let _daemon = rig.daemon();
    until("it goes on", async || {
        rig.record("Job@record@1").await.due > start
    })
    .await;
    assert_eq!(dues(&rig.runs().await), [start.0]);
    let next = rig.record("Job@record@1").await;
    assert_eq!(next.due, UnixMs(start.0 + 660_000));
}

#[tokio::test]
async fn a_daemon_that_was_away_runs_each_that_was_missed_up_to_a_number() {
    let rig = Rig::new("").await;
    let all = every(60_000).catch_up(CatchUp::All);
    let start = begun_ago(&rig, "Job@record@1", all.clone(), 305_000).await;
    let few = begun_ago(&rig, "Job@record@2", all.catch_up_max(2), 605_000).await;
    let daemon = rig.daemon();
    until("both go on", async || {
        rig.record("Job@record@1").await.due.0 == start.0 + 360_000
            && rig.record("Job@record@2").await.due.0 == few.0 + 660_000
    })
    .await;
    let runs = rig.runs_of("Job@record@1").await;
    let expected: Vec<i64> = (0..6).map(|n| start.0 + n * 60_000).collect();
    assert_eq!(dues(&runs), expected);
    // The row itself held the first that was missed.
    let runs = rig.runs_of("Job@record@2").await;
    assert_eq!(dues(&runs), [few.0, few.0 + 540_000, few.0 + 600_000]);
    assert_eq!(daemon.metric("lapsed_occurrences_skipped_total"), 8.0);
}

/// Fails as the argument says.
fn failing() -> HandlerRegistry {
    let mut handlers = handlers();
    handlers.on(
        "Job",
        "fails",
        |task: TaskContext, (how,): (String,)| async move {
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
        assert!(daemon.metric(&metric) >= 2.0, "{reason}");
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

#[tokio::test]
async fn occurrences_that_may_overlap_are_tasks_of_their_own() {
    let rig = Rig::new("").await;
    let mut handlers = handlers();
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (now, max) = (Arc::clone(&running), Arc::clone(&most));
    handlers.on(
        "Job",
        "long",
        move |task: TaskContext, args: Vec<String>| {
            let (now, max) = (Arc::clone(&now), Arc::clone(&max));
            async move {
                assert_eq!(args, ["x"], "the suffix is no argument");
                assert_eq!(task.payload_json(), Some("[1]"));
                max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                write_down(&task).await?;
                tokio::time::sleep(Duration::from_secs(3)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        },
    );
    let daemon = rig.daemon_with(handlers);
    let rule = every(1_000).overlap(Overlap::Allow).catch_up(CatchUp::All);
    let task = Task::from(key("Job@long@x")).payload("[1]");
    daemon.tasks.create_recurring(task, rule).await.unwrap();
    until("five are done", async || rig.with_status(1).await >= 5).await;
    assert!(most.load(Ordering::SeqCst) >= 2, "they overlap");
    let runs = rig.runs().await;
    each_once(&runs);
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
async fn a_daemon_that_died_between_an_occurrences_task_and_its_series_has_harmed_nothing() {
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

#[tokio::test]
async fn a_handlers_own_due_time_comes_before_that_of_its_series() {
    let rig = Rig::new("").await;
    let mut handlers = handlers();
    let count = Arc::new(AtomicU32::new(0));
    handlers.on("Job", "again", move |task: TaskContext, ()| {
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
    handlers.on(
        "Job",
        "legacy",
        move |task: TaskContext, (way,): (String,)| {
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
        },
    );
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
    handlers.on(
        "Job",
        "gated",
        move |task: TaskContext, (way,): (String,)| {
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
        },
    );
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
        daemon.tasks.cancel_key(&key).await.unwrap();
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
    until("it is on its schedule again", async || {
        rig.record("Job@record@1").await.due.0 == start
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
async fn what_the_configuration_says_anew_is_taken_and_what_a_person_ended_stays_ended() {
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

    daemon.tasks.cancel_key(&key("Job@record@1")).await.unwrap();
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
async fn retention_brings_no_configured_series_back_and_forgets_the_others() {
    let rig = Rig::new("").await;
    let cli = Cli::of(&rig);
    cli.json(&["schedule", "Job@record@theirs", "--every", "7m"]);
    let daemon = configured(&rig, "key = 'Job@record@ours'\nevery = '7m'");
    until("both are there", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await == 2
    })
    .await;
    for name in ["Job@record@ours", "Job@record@theirs"] {
        daemon.tasks.cancel_key(&key(name)).await.unwrap();
    }
    daemon.stop().await;
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = end_time - 7200, finished_at = finished_at - 7200")
        .await;
    // By somebody whose configuration has no such entry.
    let pruned = cli.json(&["prune", "--older-than", "1h"]);
    assert_eq!(pruned["pruned"]["cancelled"], 1);
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

#[tokio::test]
async fn a_series_changed_during_a_run_loses_none_of_its_effects() {
    let rig = Rig::new("").await;
    let (entered, mut running) = tokio::sync::mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&go);
    let mut handlers = handlers();
    handlers.on("Job", "gated", move |task: TaskContext, ()| {
        let (entered, gate) = (entered.clone(), Arc::clone(&gate));
        async move {
            entered.send(()).unwrap();
            gate.notified().await;
            let mut tx = task.begin().await?;
            crate::rig::take_effect(&task, &mut tx).await?;
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
async fn at_sighup_the_daemon_takes_the_series_and_says_which_are_gone() {
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
        .until_logged("recurring task is no longer configured but goes on")
        .await;
    assert_eq!(rig.state("Old@one").await, State::Pending);
}

/// The program, as people use it.
struct Cli {
    config: tempfile::NamedTempFile,
}

impl Cli {
    fn of(rig: &Rig) -> Self {
        Self {
            config: config_file(rig),
        }
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let output = lapsed()
            .args(["--config", self.config.path().to_str().unwrap()])
            .args(args)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let (code, out, err) = self.run(&[&["--json"], args].concat());
        assert_eq!(code, 0, "{args:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }
}

#[tokio::test]
async fn the_command_line_begins_shows_moves_and_ends_a_series() {
    let rig = Rig::new("").await;
    let cli = Cli::of(&rig);
    let args = "schedule Job@record@1 --cron";
    let args: Vec<&str> = args.split(' ').chain(["0 9 * * Mon-Fri"]).collect();
    let made = cli.json(&[&args[..], &["--tz", "Europe/Berlin", "--catch-up", "once"]].concat());
    let shown = cli.json(&["show", "Job@record@1"]);
    assert_eq!(
        shown["recurrence"],
        serde_json::json!({"cron": "0 9 * * Mon-Fri", "tz": "Europe/Berlin", "catch_up": "once"})
    );
    let occurrences = shown["occurrences"].as_array().unwrap();
    assert_eq!(occurrences.len(), 3);
    assert_eq!(occurrences[0], made["due"]);
    let (_, text, _) = cli.run(&["show", "Job@record@1"]);
    let line = "comes again   cron 0 9 * * Mon-Fri (Europe/Berlin), catches up once";
    assert!(text.lines().any(|found| found == line), "{text}");
    let (_, text, _) = cli.run(&["list", "--recurring"]);
    assert!(text.contains("cron 0 9 * * Mon-Fri"), "{text}");

    // The same once more changes nothing.
    let again = cli.json(&[&args[..], &["--tz", "Europe/Berlin", "--catch-up", "once"]].concat());
    assert_eq!(again["id"], made["id"]);

    // Moved to an earlier time, it does not come at its own, too.
    cli.json(&["reschedule", "Job@record@1", "--in", "1s"]);
    let moved = cli.json(&["show", "Job@record@1"]);
    assert_eq!(moved["occurrences"][1], occurrences[1]);
    let _daemon = rig.daemon();
    until("it has run", async || rig.runs().await.len() == 1).await;
    until("it goes on", async || {
        cli.json(&["show", "Job@record@1"])["due"] == occurrences[1]
    })
    .await;

    // Run now, it comes at its own time all the same.
    cli.json(&["run", "Job@record@1"]);
    until("it has run", async || rig.runs().await.len() == 2).await;
    until("it goes on", async || {
        cli.json(&["show", "Job@record@1"])["due"] == occurrences[1]
    })
    .await;
    cli.json(&["cancel", "Job@record@1"]);
    assert_eq!(rig.state("Job@record@1").await, State::Cancelled);
    let shown = cli.json(&["show", "Job@record@1"]);
    assert_eq!(shown["occurrences"], serde_json::json!([]));
}

#[tokio::test]
async fn the_command_line_refuses_what_cannot_be_and_says_what_was_expected() {
    let rig = Rig::new("").await;
    let cli = Cli::of(&rig);
    let refused: [(&[&str], &str); 9] = [
        (
            &["--every", "1s", "--catch-up-max", "3"],
            "`catch_up_max` belongs to `catch_up` = `all`",
        ),
        (
            &["--cron", "@daily", "--until", "2020-01-01T00:00:00Z"],
            "no occurrence lies ahead",
        ),
        (&[], "`--every DUR` or `--cron EXPR`"),
        (
            &["--every", "10ms"],
            "expected a duration from 1s to 10 years",
        ),
        (
            &["--cron", "61 * * * *"],
            "minute `61` does not fit, expected 0 to 59",
        ),
        (
            &["--cron", "@daily", "--tz", "Mars"],
            "`Mars` is not a time zone",
        ),
        (
            &["--in", "1s", "--until", "2030-01-01T00:00:00Z"],
            "expected `every` or `cron`",
        ),
        (
            &["--every", "1s", "--times", "0"],
            "`times` does not fit, expected 1 to 10000",
        ),
        (
            &["--every", "1s", "--catch-up", "some"],
            "possible values: skip, once, all",
        ),
    ];
    for (args, reason) in refused {
        let (code, _, err) = cli.run(&[&["schedule", "Job@record@1"], args].concat());
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(reason), "{args:?}: {err}");
    }
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        0
    );

    let broken = "[[recurring]]\nkey = 'Job'\nevery = '1s'\n[[recurring]]\nkey = 'C@m'\ncron = 'x'\ntz = 'UTC'\nwhen = 1\n\
                  [[recurring]]\nkey = 'C@n'\nevery = '1m'\ncatch_up = 'never'\nuntil = 'later'\n\
                  [[recurring]]\nkey = 'C@o'\nevery = '1m'\ncatch_up = 'all'\ncatch_up_max = 0\n\
                  [[recurring]]\nkey = 'C@p'\nevery = '1m'\ncatch_up_max = 3";
    std::fs::write(cli.config.path(), broken).unwrap();
    let (code, _, err) = cli.run(&["check-config"]);
    assert_eq!(code, 2, "{err}");
    let expected = [
        "`recurring[0].key`: key has no `@`",
        "`recurring[1]`: cron `x`: has 1 fields, expected 5",
        "`recurring[1].when`: is not the name of a setting",
        "`recurring[2].until`: `later` is not a moment",
        "`recurring[2].catch_up`: ",
        "`recurring[3]`: `catch_up_max` does not fit, expected at least 1",
        "`recurring[4]`: `catch_up_max` belongs to `catch_up` = `all`",
    ];
    for reason in expected {
        assert!(err.contains(reason), "`{reason}` is missing in: {err}");
    }
}

#[tokio::test]
async fn a_line_of_a_file_begins_a_series() {
    let rig = Rig::new("").await;
    let cli = Cli::of(&rig);
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = r#"{"key": "Job@record@1", "every": "15m", "in": "5s", "tag": "t"}
{"key": "Job@record@2", "cron": "0 9 * * *", "tz": "Europe/Berlin", "overlap": "allow"}
{"key": "Job@record@3", "cron": "0 9 * *"}
{"key": "Job@record@4", "tz": "UTC", "in": "5s"}
{"key": "Job@record@5"}
"#;
    std::fs::write(file.path(), lines).unwrap();
    let (code, out, err) = cli.run(&["schedule", "--file", file.path().to_str().unwrap()]);
    assert_eq!((code, out.trim()), (1, "2 scheduled, 3 refused"), "{err}");
    for reason in [
        "line 3: cron `0 9 * *`: has 4 fields, expected 5",
        "line 4: expected `every` or `cron` beside what is said about a series",
        "line 5: has neither `in` nor `at`, nor `every` or `cron`",
    ] {
        assert!(err.contains(reason), "{err}");
    }
    let shown = cli.json(&["show", "Job@record@1"]);
    let occurrences: Vec<i64> = shown["occurrences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|at| at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap())
        .map(|at| at.as_millisecond())
        .collect();
    assert_eq!(occurrences[1] - occurrences[0], 900_000);
    let ahead = occurrences[0] - rig.now_ms().await;
    assert!((-20_000..=5_000).contains(&ahead), "{ahead} ms");
    let second = cli.json(&["show", "Job@record@2"]);
    assert_eq!(second["recurrence"]["overlap"], "allow");
}

#[tokio::test]
async fn a_series_of_so_many_times_ends_done() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon();
    let rule = every(1_000).catch_up(CatchUp::All).times(3).unwrap();
    begin(&daemon.tasks, "Job@effect@1", rule.clone()).await;
    begin(&daemon.tasks, "Job@record@2", rule).await;
    rig.until_done(2).await;
    assert_eq!(rig.runs().await.len(), 3);
    assert_eq!(rig.number("SELECT COUNT(*) FROM effects").await, 3);
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
    client.cancel_key(&key("Job@slow@300")).await.unwrap();
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
