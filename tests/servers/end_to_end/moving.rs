//! `lapsed move`: tasks change their ledger while producers and daemons go on.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use lapsed::task::{Scope, State, UnixMs};
use lapsed::{Due, Task, TaskClient};
use tokio::time::{Instant, sleep, timeout};

use crate::support::rig::{Rig, Run};
use crate::support::shell::Shell;
use crate::support::tasks::{create_many, key};
use crate::support::wait::{DEADLINE, until};

const SETTINGS: &str = "timer = 'ledger_poll'\nledger.max_connections = 20";

fn url_of(rig: &Rig) -> String {
    rig.config().ledger.url.expose().to_owned()
}

// The daemons go on while the test waits for a program: frozen for longer than their leases, they would run tasks twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_runs_once_while_movers_are_killed_and_a_producer_goes_on() {
    const WAVES: i64 = 12;
    const OF_WAVE: i64 = 50;
    let (from, to) = (Rig::new(SETTINGS).await, Rig::new(SETTINGS).await);
    let (here, there) = (from.daemon(), to.daemon());
    here.status.ready().await;
    there.status.ready().await;
    let producer = from.client().await.into();
    let (shell, url) = (Shell::of(&from), url_of(&to));
    for wave in 0..WAVES {
        let prefix = format!("Job@record@{wave}-");
        create_many(&producer, &prefix, OF_WAVE, 0, 60).await;
        let mut mover = shell.command(&["move", "--follow", "--to", &url]);
        let mut mover = mover.stdout(Stdio::null()).spawn().unwrap();
        // At any instant of its work.
        let until = Instant::now() + Duration::from_millis(rand::random_range(20..250));
        while Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
        mover.kill().unwrap();
        mover.wait().unwrap();
    }
    let result = shell.json(&["move", "--to", &url]);
    assert_eq!(result["complete"], true, "{result}");
    let count = (WAVES * OF_WAVE) as usize;
    until("every task has run", async || {
        from.runs().await.len() + to.runs().await.len() >= count
    })
    .await;
    here.stop().await;
    there.stop().await;
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    let (in_source, in_destination) = (from.runs().await, to.runs().await);
    for run in in_source.iter().chain(&in_destination) {
        *runs.entry(run.name.clone()).or_default() += 1;
        assert!(run.at_ms >= run.due_ms, "early: {run:?}");
    }
    assert_eq!(runs.len(), count);
    let twice = |run: &&Run| runs[&run.name] > 1;
    let twice: [Vec<&Run>; 2] =
        [&in_source, &in_destination].map(|runs| runs.iter().filter(twice).collect());
    assert!(twice.iter().all(Vec::is_empty), "run twice: {twice:#?}");
    assert!(!in_source.is_empty() && !in_destination.is_empty());
    let unfinished = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0";
    assert_eq!(from.number(unfinished).await, 0);
    assert_eq!(to.number(unfinished).await, 0);
}

#[tokio::test]
async fn a_dry_run_counts_and_a_move_reports() {
    let (from, to) = (Rig::new(SETTINGS).await, Rig::new(SETTINGS).await);
    let tasks = from.client().await;
    let due = || Due::after_ms(60_000).unwrap();
    let long = Task::from(key("Job@record@1")).payload(format!("\"{}\"", "x".repeat(60_000)));
    tasks.create(long.tag("eu"), due()).await.unwrap();
    tasks.create(key("Job@record@2"), due()).await.unwrap();
    let (shell, url) = (Shell::of(&from), url_of(&to));
    let plan = shell.json(&["move", "--dry-run", "--to", &url]);
    assert_eq!(
        (&plan["tasks"], &plan["dry_run"]),
        (&2.into(), &true.into())
    );
    assert_eq!(from.state("Job@record@1").await, State::Pending);
    let result = shell.json(&["move", "--to", &url]);
    assert_eq!((&result["moved"], &result["known"]), (&2.into(), &0.into()));
    let (left, moved) = (
        from.record("Job@record@1").await,
        to.record("Job@record@1").await,
    );
    assert_eq!((left.state, moved.state), (State::Done, State::Pending));
    assert_eq!((left.payload, left.tag), (moved.payload, moved.tag));
    let note: serde_json::Value = serde_json::from_str(&left.result.unwrap()).unwrap();
    assert!(note["moved_to"].as_str().unwrap().starts_with("mysql://"));
    // A second time, there is nothing to move.
    assert_eq!(shell.json(&["move", "--to", &url])["moved"], 0);
}

#[tokio::test]
async fn move_reports_what_it_does_not_copy() {
    let (from, to) = (Rig::new(SETTINGS).await, Rig::new(SETTINGS).await);
    let (code, _, stderr) = Shell::of(&from).run(&["move", "--to", &url_of(&to)]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("note: the audit log, "), "{stderr}");
}

#[tokio::test]
async fn the_archive_stays_in_the_old_ledger_and_can_be_read_there() {
    let settings =
        "timer = 'ledger_poll'\nretention = { done = '1h', cancelled = '1h', archive = true }";
    let (from, to) = (Rig::new(settings).await, Rig::new(settings).await);
    let (here, there) = (Shell::of(&from), Shell::of(&to));
    here.json(&["migrate"]);
    there.json(&["migrate"]);
    from.run_sql(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, finished_at) VALUES \
         ('Job@record@old', 1, UNIX_TIMESTAMP() - 9000, UNIX_TIMESTAMP() - 9000, UNIX_TIMESTAMP() - 9000), \
         ('Job@record@young', 1, UNIX_TIMESTAMP() - 9, UNIX_TIMESTAMP() - 9, UNIX_TIMESTAMP() - 9)",
    )
    .await;
    let due = Due::after_ms(60_000).unwrap();
    let tasks = from.client().await;
    tasks.create(key("Job@record@pending"), due).await.unwrap();
    let url = url_of(&to);
    // Without archived tasks, nothing is said of them.
    let (code, _, stderr) = here.run(&["move", "--dry-run", "--to", &url]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stderr.contains("archive"), "{stderr}");
    here.text(&["prune"]);
    let (code, _, stderr) = here.run(&["move", "--with-finished", "--to", &url]);
    assert_eq!(code, 0, "{stderr}");
    let note = "note: the archive of finished tasks stays in the old ledger: ";
    assert!(stderr.contains(note), "{stderr}");
    let archived = "SELECT COUNT(*) FROM tb_time_limit_task_archive";
    assert_eq!(from.number(archived).await, 1);
    assert_eq!(to.number(archived).await, 0);
    assert_eq!(
        here.json(&["show", "--archived", "Job@record@old"])["state"],
        "done"
    );
    let keys = "SELECT GROUP_CONCAT(`key` ORDER BY `key`) FROM tb_time_limit_task";
    let moved = to.text(keys).await;
    assert_eq!(
        moved.as_deref(),
        Some("Job@record@pending,Job@record@young")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_of_the_new_ledger_may_restart_during_a_move() {
    const WAVES: i64 = 6;
    const OF_WAVE: i64 = 50;
    let (from, to) = (Rig::new(SETTINGS).await, Rig::new(SETTINGS).await);
    let here = from.daemon();
    let mut there = to.daemon();
    here.status.ready().await;
    there.status.ready().await;
    let producer = from.client().await.into();
    let (shell, url) = (Shell::of(&from), url_of(&to));
    let mut mover = shell.command(&["move", "--follow", "--to", &url]);
    let mut mover = mover.stdout(Stdio::null()).spawn().unwrap();
    let arrived = "SELECT COUNT(*) FROM tb_time_limit_task";
    let mut before = 0;
    for wave in 0..WAVES {
        // Due while they move, and while the daemon that is to run them is away.
        create_many(&producer, &format!("Job@record@{wave}-"), OF_WAVE, 0, 60).await;
        create_many(
            &producer,
            &format!("Job@record@later-{wave}-"),
            OF_WAVE,
            3_000,
            60,
        )
        .await;
        until("tasks of this wave arrive", async || {
            to.number(arrived).await > before
        })
        .await;
        there.stop().await;
        before = to.number(arrived).await;
        there = to.daemon();
        there.status.ready().await;
    }
    let count = (2 * WAVES * OF_WAVE) as usize;
    until("every task has run", async || {
        from.runs().await.len() + to.runs().await.len() >= count
    })
    .await;
    let pid = rustix::process::Pid::from_child(&mover);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(mover.wait().unwrap().success());
    assert_eq!(shell.json(&["move", "--to", &url])["complete"], true);
    here.stop().await;
    there.stop().await;
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for run in from.runs().await.iter().chain(&to.runs().await) {
        *runs.entry(run.name.clone()).or_default() += 1;
        assert!(run.at_ms >= run.due_ms, "early: {run:?}");
    }
    assert_eq!(runs.len(), count);
    assert!(runs.values().all(|runs| *runs == 1), "{runs:?}");
    assert!(!to.runs().await.is_empty());
    for rig in [&from, &to] {
        assert_eq!(rig.with_status(0).await, 0);
    }
}

#[tokio::test]
async fn tasks_that_are_paused_do_not_move_to_where_they_would_start() {
    let (from, to) = (Rig::new(SETTINGS).await, Rig::new(SETTINGS).await);
    let (here, there): (TaskClient, TaskClient) =
        (from.client().await.into(), to.client().await.into());
    let (shell, url) = (Shell::of(&from), url_of(&to));
    let of = |text: &str| -> Scope { text.parse().unwrap() };
    here.pause(&of("Job@record"), "test", "repair")
        .await
        .unwrap();
    // Without tasks, there is nothing to keep.
    assert_eq!(shell.run(&["move", "--to", &url]).0, 0);
    // Those that are created later would start.
    let follow = shell.command(&["move", "--follow", "--to", &url]);
    let mut follow = tokio::process::Command::from(follow);
    let followed = timeout(DEADLINE, follow.kill_on_drop(true).output()).await;
    assert_eq!(followed.unwrap().unwrap().status.code(), Some(2));
    let due = Due::after_ms(60_000).unwrap();
    here.create(key("Job@record@1"), due).await.unwrap();
    let refused = |options: &[&str], status: i32| {
        let (code, _, stderr) = shell.run(&[&["move", "--to", &url], options].concat());
        assert_eq!(code, status, "{stderr}");
        let paused = stderr.contains("paused: Job@record, ") && stderr.contains("repair");
        assert!(paused, "{stderr}");
    };
    refused(&["--dry-run"], 0);
    refused(&[], 2);
    there.pause(&of("Jobs"), "test", "").await.unwrap();
    refused(&[], 2);
    assert_eq!(from.state("Job@record@1").await, State::Pending);
    there.pause(&of("Job"), "test", "").await.unwrap();
    assert_eq!(shell.json(&["move", "--to", &url])["moved"], 1);
    // The other way, with a hold that is older there, and then a later one.
    there.resume(&of("Job")).await.unwrap();
    there.resume(&of("Jobs")).await.unwrap();
    let (back, url) = (Shell::of(&to), url_of(&from));
    here.hold_overdue("test", "").await.unwrap();
    to.until_clock(UnixMs(from.now_ms().await)).await;
    there.hold_overdue("test", "").await.unwrap();
    let (code, _, stderr) = back.run(&["move", "--to", &url]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("held: what was due before"), "{stderr}");
    here.resume_held(&Scope::EVERYTHING, "test").await.unwrap();
    here.hold_overdue("test", "").await.unwrap();
    assert_eq!(back.json(&["move", "--to", &url])["complete"], true);
    assert_eq!(from.state("Job@record@1").await, State::Pending);
    here.resume_held(&Scope::EVERYTHING, "test").await.unwrap();
    there.pause(&of("Other"), "test", "").await.unwrap();
    there.create(key("Other@run@1"), due).await.unwrap();
    let moved = back.json(&["move", "--without-pauses", "--to", &url]);
    assert_eq!(moved["moved"], 1);
}

#[tokio::test]
async fn a_ledger_is_not_moved_to_itself() {
    let rig = Rig::new(SETTINGS).await;
    let tasks = rig.client().await;
    let due = Due::after_ms(60_000).unwrap();
    tasks.create(key("Job@record@1"), due).await.unwrap();
    let url = url_of(&rig).replace("127.0.0.1", "localhost");
    let (code, _, stderr) = Shell::of(&rig).run(&["move", "--to", &url]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("is the configured ledger"), "{stderr}");
    assert_eq!(rig.state("Job@record@1").await, State::Pending);
}
