//! What is paused does not start, in no daemon, and is not lost.

use lapsed::engine::DropReason;
use std::sync::Arc;

use lapsed::task::{Scope, State};
use lapsed::{Due, HandlerError, Handlers, TaskClient, TaskContext};
use tokio::sync::{Notify, Semaphore};

use crate::support::daemon::Daemon;
use crate::support::handlers::{handlers, write_down};
use crate::support::maria::numbers;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::tasks::{create, create_many, key};
use crate::support::wait::until;

pub fn scope(name: &str) -> Scope {
    name.parse().unwrap()
}

async fn pause(client: &TaskClient, name: &str) {
    client.pause(&scope(name), "test", "").await.unwrap();
}

/// Waits until every daemon knows the one pause and has dropped a signal because of it, and what was claimed before
/// that has ended. Nothing of this class starts from now on. That this takes 2 s at most is tested on a paused clock
/// (`tests/core/engine/pauses.rs`).
async fn pause_is_in_force(rig: &Rig, daemons: &[Daemon], class: &str) {
    for daemon in daemons {
        daemon.until_counted("lapsed_pauses", |n| n == 1.0).await;
    }
    let leased = format!(
        "SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` LIKE '{class}@%' AND lease_until > 0"
    );
    let all_ended = async || rig.number(&leased[..]).await == 0;
    until("what was claimed before the pause has ended", all_ended).await;
    // A sweep passes paused rows by in the index, so an event of one says that its key has expired once more.
    let overdue = format!(
        "SELECT MAX(`key`) FROM tb_time_limit_task WHERE `key` LIKE '{class}@%' AND status = 0 AND due_at < UNIX_TIMESTAMP()"
    );
    until("some have fallen due", async || {
        rig.text(overdue.as_str()).await.is_some()
    })
    .await;
    let key = rig.text(overdue).await.unwrap();
    for daemon in daemons {
        let dropped = daemon.dropped(DropReason::Paused);
        until("a signal was dropped", async || {
            rig.publish_expired(key.as_str()).await;
            daemon.dropped(DropReason::Paused) > dropped
        })
        .await;
    }
    until("what was claimed before the pause has ended", all_ended).await;
}

/// How many runs of this there were.
async fn runs_of_class(rig: &Rig, class: &str) -> usize {
    let mut runs = rig.runs().await;
    runs.retain(|run| run.name.starts_with(&format!("{class}@")));
    runs.len()
}

/// Besides [`handlers`]: `Jobs@record` and `Job@records`, which are other tasks than `Job@record`.
fn namesakes() -> Handlers {
    let mut handlers = handlers();
    for (class, method) in [("Jobs", "record"), ("Job", "records")] {
        handlers.on(
            (class, method),
            |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
        );
    }
    handlers
}

async fn overdue(rig: &Rig, prefix: &str) -> i64 {
    rig.number(format!(
        "SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` LIKE '{prefix}@%' AND status = 0 \
           AND lease_until <= 0 AND due_at <= UNIX_TIMESTAMP(NOW(3))"
    ))
    .await
}

#[tokio::test]
async fn a_paused_class_starts_in_no_daemon_and_runs_once_when_it_is_resumed() {
    let rig = Rig::new("").await;
    let daemons: [Daemon; 2] = std::array::from_fn(|_| rig.daemon_with(namesakes()));
    for daemon in &daemons {
        daemon.hears_events().await;
    }
    let client = rig.client().await;
    create_many(&client, "Job@record@", 300, 500, 60).await;
    create_many(&client, "Job@records@", 100, 500, 60).await;
    create_many(&client, "Jobs@record@", 100, 500, 60).await;
    until("some have run", async || {
        rig.runs()
            .await
            .iter()
            .any(|run| run.name == "Job@record@5")
    })
    .await;
    pause(&client, "Job@record").await;
    pause_is_in_force(&rig, &daemons, "Job@record").await;
    let before = runs_of_class(&rig, "Job@record").await;

    until("the others have run", async || {
        let runs = rig.runs().await;
        let others = runs
            .iter()
            .filter(|run| !run.name.starts_with("Job@record@"));
        others.count() == 200
    })
    .await;
    until("all that are left are overdue", async || {
        overdue(&rig, "Job@record").await == 300 - before as i64
    })
    .await;
    let kept_back = overdue(&rig, "Job@record").await;
    assert!(kept_back > 20, "{kept_back} are overdue");
    // Both have come by each of them, more than once.
    until("their signals were dropped", async || {
        let dropped = daemons
            .iter()
            .map(|daemon| daemon.dropped(DropReason::Paused));
        dropped.sum::<f64>() >= kept_back as f64
    })
    .await;
    assert_eq!(runs_of_class(&rig, "Job@record").await, before);

    let lifted = client.resume(&scope("Job@record")).await.unwrap();
    assert!(lifted.is_some());
    rig.until_done(500).await;
    rig.each_ran_once(500).await;
}

#[tokio::test]
async fn a_pause_lasts_over_a_restart() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    pause(&client, "Job").await;
    let daemon = rig.listening_daemon().await;
    create_many(&client, "Job@record@", 20, 0, 10).await;
    until("signals were dropped", async || {
        daemon.dropped(DropReason::Paused) >= 1.0
    })
    .await;
    daemon.stop().await;
    create_many(&client, "Job@effect@", 20, 0, 0).await;

    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@last", 300).await;
    until("the last has come to nothing", async || {
        overdue(&rig, "Job@record").await == 21 && daemon.dropped(DropReason::Paused) >= 1.0
    })
    .await;
    assert_eq!(rig.with_status(0).await, 41);
    assert_eq!(daemon.metric("lapsed_claims_total{result=\"won\"}"), 0.0);
    client.resume(&scope("Job")).await.unwrap().unwrap();
    rig.until_done(41).await;
    rig.each_ran_once(21).await;
    rig.each_effect_once(20).await;
}

#[tokio::test]
async fn a_pause_in_the_middle_of_a_burst_ends_it_and_what_runs_goes_on() {
    let rig = Rig::new("engine.concurrency = 16").await;
    let mut handlers = Handlers::new();
    let permits = Arc::new(Semaphore::new(10));
    let gate = Arc::clone(&permits);
    handlers.on(
        ("Burst", "slow"),
        move |task: TaskContext, _: Vec<String>| {
            let gate = Arc::clone(&gate);
            async move {
                write_down(&task).await?;
                gate.acquire().await?.forget();
                Ok(())
            }
        },
    );
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let client = rig.client().await;
    create_many(&client, "Burst@slow@", 400, 500, 0).await;
    // Or three quarters, where the burst counts as a backlog by now.
    until("the slots are taken for the second time", async || {
        rig.runs().await.len() >= 10 + 12
    })
    .await;
    pause(&client, "Burst").await;
    daemon.until_counted("lapsed_pauses", |n| n == 1.0).await;
    // What ran goes on to its end, and its slots are not given to others of its class.
    permits.add_permits(390);
    let daemons = [daemon];
    pause_is_in_force(&rig, &daemons, "Burst").await;
    let (done, ran) = (rig.with_status(1).await, rig.runs().await.len());
    assert_eq!(done, ran as i64);
    assert!(ran <= 10 + 16, "{ran} ran");

    client.resume(&scope("Burst")).await.unwrap();
    rig.until_done(400).await;
    rig.each_ran_once(400).await;
}

#[tokio::test]
async fn a_bare_key_of_a_paused_class_becomes_a_task_and_waits() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let client = rig.client().await;
    pause(&client, "Job@record").await;
    until("the daemon knows", async || {
        daemon.metric("lapsed_pauses") == 1.0
    })
    .await;
    rig.arm("Job@record@armed", 1_500).await;
    // Whose arming nobody has heard of: its event is all that is left of it.
    rig.publish_expired("Job@record@unheard").await;
    for name in ["Job@record@armed", "Job@record@unheard"] {
        rig.until_adopted(name).await;
        until("it is overdue", async || {
            let record = rig.record(name).await;
            record.due.0 < rig.now_ms().await
        })
        .await;
    }
    until("both were dropped", async || {
        daemon.dropped(DropReason::Paused) >= 2.0
    })
    .await;
    assert_eq!(rig.runs().await, []);
    client.resume(&scope("Job@record")).await.unwrap();
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
}

#[tokio::test]
async fn a_retry_of_a_paused_class_waits_and_keeps_its_attempts() {
    let rig = Rig::new("").await;
    let mut handlers = Handlers::new();
    let paused = Arc::new(Notify::new());
    let gate = Arc::clone(&paused);
    handlers.on(("Job", "flaky"), move |task: TaskContext| {
        let gate = Arc::clone(&gate);
        async move {
            write_down(&task).await?;
            if task.attempt() > 1 {
                return Ok(());
            }
            gate.notified().await;
            Err(HandlerError::new("not yet"))
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    daemon.create("Job@flaky", 0).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    pause(&daemon.tasks, "Job").await;
    until("the daemon knows", async || {
        daemon.metric("lapsed_pauses") == 1.0
    })
    .await;
    paused.notify_one();
    until("its retry was dropped", async || {
        daemon.dropped(DropReason::Paused) >= 1.0
    })
    .await;
    assert_eq!(rig.runs().await.len(), 1);
    assert_eq!(rig.state("Job@flaky").await, State::Pending);
    daemon.tasks.resume(&scope("Job")).await.unwrap();
    rig.until_state("Job@flaky", State::Done).await;
    assert_eq!(rig.record("Job@flaky").await.attempt, 2);
}

/// 100,000 rows that are overdue, as a class that was paused for a day leaves them behind.
async fn paused_backlog(rig: &Rig, class: &str) {
    let numbers = numbers(100_000);
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
         SELECT CONCAT('{class}@record@', seq), 0, 1, UNIX_TIMESTAMP(NOW(3)) - seq / 1000, 0 FROM {numbers}"
    ))
    .await;
}

#[tokio::test]
async fn a_hundred_thousand_paused_tasks_delay_and_hide_no_other() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    pause(&client, "Jobs").await;
    pause(&client, "Away@home").await;
    let daemon = rig.daemon_with(namesakes());
    daemon.hears_events().await;
    create_many(&client, "Job@record@", 200, 500, 10).await;
    rig.until_done(200).await;

    paused_backlog(&rig, "Jobs").await;
    create_many(&client, "Job@records@", 200, 1_000, 10).await;
    // What no signal names, and only a sweep finds: old, new, and in the middle of the backlog.
    let stray = |number: i64, seconds_ago: f64| {
        format!(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
             VALUES ('Job@record@stray{number}', 0, 1, UNIX_TIMESTAMP(NOW(3)) - {seconds_ago}, 0)"
        )
    };
    for (number, seconds_ago) in [(0, 0.0), (1, 1_000.0), (2, 50.0)] {
        rig.run_sql(&stray(number, seconds_ago)).await;
    }
    until("all of them have run", async || {
        rig.with_status(1).await == 403
    })
    .await;
    // None waited for the backlog, which has not moved.
    assert_eq!(overdue(&rig, "Jobs").await, 100_000);

    // Let go, they are a backlog: what falls due now is not behind them.
    client.resume(&scope("Jobs")).await.unwrap();
    until("they go on", async || overdue(&rig, "Jobs").await < 99_000).await;
    create(&client, "Job@record@fresh", 200).await;
    until("the fresh one has run", async || {
        !rig.runs_of("Job@record@fresh").await.is_empty()
    })
    .await;
    // It was not the last.
    let behind = "SELECT COUNT(*) FROM runs WHERE name LIKE 'Jobs@%' \
                  AND id > (SELECT MIN(id) FROM runs WHERE name = 'Job@record@fresh')";
    until("many of the backlog have run after it", async || {
        rig.number(behind).await > 1_000
    })
    .await;
    client
        .pause(&scope("Jobs"), "test", "enough")
        .await
        .unwrap();
    daemon.stop().await;
}

#[tokio::test]
async fn everything_can_be_paused_and_a_single_class_stays_so_afterwards() {
    overlapping_pauses_end_independently(&Rig::new("").await).await;
}

pub async fn overlapping_pauses_end_independently(scene: &impl Scene) {
    let daemon = scene.ready_daemon().await;
    let client = &daemon.tasks;
    client
        .pause(&scope("Job@effect"), "test", "")
        .await
        .unwrap();
    client.pause(&Scope::EVERYTHING, "test", "").await.unwrap();
    until("the daemon knows", async || {
        daemon.metric("lapsed_pauses") == 2.0
    })
    .await;
    for name in ["Job@record@1", "Job@effect@1"] {
        daemon.create(name, 0).await;
    }
    until("both were dropped", async || {
        daemon.dropped(DropReason::Paused) >= 2.0
    })
    .await;
    assert_eq!(scene.with_status(0).await, 2);
    client.resume(&Scope::EVERYTHING).await.unwrap().unwrap();
    scene.until_state("Job@record@1", State::Done).await;
    assert_eq!(scene.state("Job@effect@1").await, State::Pending);
    // Moving it does not help it.
    let now = Due::after_ms(0).unwrap();
    let dropped = daemon.dropped(DropReason::Paused);
    client.reschedule(&key("Job@effect@1"), now).await.unwrap();
    until("it was dropped again", async || {
        daemon.dropped(DropReason::Paused) > dropped
    })
    .await;
    assert_eq!(scene.state("Job@effect@1").await, State::Pending);
    client.resume(&scope("Job@effect")).await.unwrap().unwrap();
    scene.until_done(2).await;
}
