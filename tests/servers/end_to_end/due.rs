//! When tasks run: once, at their time, by whichever net is left.

use lapsed::ledger::RescheduleAnswer;
use lapsed::timer::Source;
use lapsed_sandbox::PrivateRedis;

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::setup::Setup;
use crate::support::tasks::{create, key};

/// Tasks with delays over two seconds, some of them zero, created by a program that runs no daemon.
pub async fn each_task_runs_once_and_none_early(scene: &impl Scene) {
    const TASKS: i64 = 60;
    let daemon = Daemon::start(&scene.config(), scene.handlers());
    let client = scene.producer().await;
    for number in 0..TASKS {
        create(&client, &format!("Job@record@{number}"), number % 20 * 100).await;
    }
    scene.until_done(TASKS as usize).await;
    daemon.stop().await;
    scene.each_ran_once(TASKS as usize).await;
}

#[tokio::test]
async fn a_task_runs_once_at_its_time_with_keys_in_database_zero() {
    each_task_runs_once_and_none_early(&Rig::new("").await).await;
}

#[tokio::test]
async fn a_task_runs_once_at_its_time_with_prefixed_keys_in_another_database() {
    let setup = Setup::new("redis.key_prefix = 'app:'").redis_database(5);
    let rig = setup.start().await;
    each_task_runs_once_and_none_early(&rig).await;
    let daemon = rig.daemon();
    daemon.create("Job@record@far", 60_000).await;
    assert!(rig.pttl("app:Job@record@far").await > 50_000);
    assert_eq!(rig.pttl("Job@record@far").await, -2);
}

#[tokio::test]
async fn a_task_runs_once_at_its_time_without_redis_by_ledger_poll() {
    let mut rig = Rig::new("timer = 'ledger_poll'").await;
    rig.redis.kill();
    each_task_runs_once_and_none_early(&rig).await;
}

#[tokio::test]
async fn a_task_that_is_moved_runs_once_at_its_new_time() {
    a_moved_task_runs_once_at_its_new_time(&Rig::new("").await).await;
}

pub async fn a_moved_task_runs_once_at_its_new_time(scene: &impl Scene) {
    let daemon = scene.ready_daemon().await;
    let moves = [
        ("Job@record@later", 1_000, 3_000),
        ("Job@record@sooner", 60_000, 1_500),
    ];
    let mut due = std::collections::HashMap::new();
    for (name, before, after) in moves {
        daemon.create(name, before).await;
        let after = lapsed::Due::after_ms(after).unwrap();
        match daemon.tasks.reschedule(&key(name), after).await.unwrap() {
            RescheduleAnswer::Moved(arming) => due.insert(name.to_owned(), arming.due.0),
            other => panic!("{other:?}"),
        };
    }
    scene.until_done(2).await;
    scene.each_ran_once(2).await;
    for run in scene.runs().await {
        assert_eq!(run.due_ms, due[&run.name]);
    }
}

#[tokio::test]
async fn a_request_that_is_repeated_runs_the_task_once() {
    a_repeated_request_runs_the_task_once(&Rig::new("").await).await;
}

pub async fn a_repeated_request_runs_the_task_once(scene: &impl Scene) {
    let daemon = scene.ready_daemon().await;
    let due = lapsed::UnixMs(scene.now_ms().await + 500);
    for _ in 0..3 {
        daemon.tasks.create(key("Job@record@1"), due).await.unwrap();
    }
    scene.until_done(1).await;
    let again = daemon.tasks.create(key("Job@record@1"), due).await.unwrap();
    assert_eq!(again.state(), lapsed::task::State::Done);
    daemon.create("Job@record@2", 500).await;
    scene.until_done(2).await;
    scene.each_ran_once(2).await;
}

#[tokio::test]
async fn a_key_of_any_script_and_of_the_greatest_length_runs() {
    let rig = Rig::new("redis.key_prefix = '應用:'").await;
    let daemon = rig.listening_daemon().await;
    let longest = format!("Job@record@{}", "x".repeat(255 - 11));
    let names = [
        "Job@record@任務@\u{1f600}@é",
        "Job@record@É",
        "Job@record@e\u{301}",
        "Job@record@@",
        &longest,
    ];
    for name in names {
        assert!(daemon.create(name, 500).await.armed);
    }
    assert!(rig.pttl(&format!("應用:{longest}")).await > 0);
    rig.until_done(names.len()).await;
    rig.each_ran_once(names.len()).await;
    let mut ran: Vec<String> = rig.runs().await.into_iter().map(|run| run.name).collect();
    let mut names = names.map(str::to_owned);
    ran.sort();
    names.sort();
    assert_eq!(ran, names);
}

#[tokio::test]
async fn events_alone_run_every_task() {
    let rig = Rig::new("nudge.enabled = false\nsweep.interval = '1h'").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    for number in 0..20 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 100 + number * 50).await;
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    assert!(daemon.signals(Source::Event) >= 20.0);
    assert_eq!(
        (daemon.signals(Source::Nudge), daemon.signals(Source::Sweep)),
        (0.0, 0.0)
    );
}

#[tokio::test]
async fn nudges_alone_run_every_task() {
    // No events, and nobody who may switch them on.
    let conf = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(conf.path(), "rename-command CONFIG \"\"\n").unwrap();
    let redis = PrivateRedis::options().set("include", conf.path().to_str().unwrap());
    // The look-ahead and the sweep go by the same clock: at this pace the one sees the tasks before
    // they are due, and the other would find them 3 s late.
    let rig = Setup::new("sweep.interval = '3s'")
        .redis(redis)
        .start()
        .await;
    let daemon = rig.daemon();
    for number in 0..20 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 5_000 + number * 50).await;
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    assert!(daemon.signals(Source::Nudge) >= 20.0);
    assert_eq!(daemon.signals(Source::Event), 0.0);
    // On a machine that stalls, the sweep may be first for some.
    let recovered = daemon.metric("lapsed_sweep_recovered_total{reason=\"overdue\"}");
    assert!(recovered < 10.0, "the sweep found {recovered} of 20");
}

#[tokio::test]
async fn the_sweep_alone_runs_every_task() {
    let mut rig = Rig::new("nudge.enabled = false").await;
    rig.redis.kill();
    let daemon = rig.daemon();
    for number in 0..20 {
        let name = format!("Job@record@{number}");
        let made = daemon.create(&name, 100 + number * 50).await;
        assert!(!made.armed);
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    assert!(daemon.signals(Source::Sweep) >= 20.0);
    assert_eq!(
        (daemon.signals(Source::Nudge), daemon.signals(Source::Event)),
        (0.0, 0.0)
    );
}

#[tokio::test]
async fn a_task_whose_event_was_lost_is_found_by_the_sweep() {
    let rig = Rig::new("nudge.enabled = false").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await; // or it arms the keys again
    for number in 0..20 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 1_000 + number * 50).await;
        let deleted: i64 = rig.redis_says(&["DEL", &name]).await;
        assert_eq!(deleted, 1);
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    assert!(daemon.signals(Source::Sweep) >= 20.0);
    assert_eq!(daemon.signals(Source::Event), 0.0);
}
