//! What happens to the file of a daemon while it runs: it cannot grow, it is deleted, it is of another version.

use lapsed::rusqlite::Connection;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use super::embedded::Embedded;
use crate::support::process::Process;
use crate::support::program::{lapsed, said};
use crate::support::resp_wire::{Reply, Wire};
use crate::support::wait::until;

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

/// Creates a task that is due in an hour.
fn create(wire: &mut Wire, name: &str, payload: &str) -> Reply {
    wire.ask(&["SETEX", &format!("Job@record@{name}"), "3600", payload])
}

/// The arguments of all tasks, in order of the text.
fn tasks(place: &Embedded) -> Vec<String> {
    let (code, stdout, stderr) = place.run(&["--json", "list", "--limit", "1000"]);
    assert_eq!(code, 0, "{stderr}");
    let mut names: Vec<String> = stdout
        .lines()
        .map(|line| {
            let task: serde_json::Value = serde_json::from_str(line).unwrap();
            let key = task["key"].as_str().unwrap();
            key.strip_prefix("Job@record@").unwrap().to_owned()
        })
        .collect();
    names.sort();
    names
}

/// Limits the size to which a daemon may write a file.
fn limit_file_size(daemon: &Process, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: getrlimit(Resource::Fsize).maximum,
    };
    let pid = Pid::from_raw(daemon.id().cast_signed());
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

#[tokio::test]
async fn a_file_that_may_not_grow_refuses_tasks_loses_none_and_is_used_again_when_it_may() {
    let place = Embedded::new();
    let (mut daemon, mut wire) = place.serve().await;
    assert_eq!(create(&mut wire, "first", "x"), ok());
    assert_eq!(wire.ask(&["SETEX", "Job@record@due", "2", ""]), ok());
    // Each commit appends to the log.
    let log = std::fs::metadata(place.path("lapsed.db-wal")).unwrap();
    limit_file_size(&daemon, Some(log.len()));
    let refused = create(&mut wire, "refused", "x");
    assert!(
        matches!(&refused, Reply::Error(text) if text.contains("cannot read or write `")),
        "{refused:?}"
    );
    assert_eq!(wire.ask(&["EXISTS", "Job@record@first"]), Reply::Integer(1));
    // It can be read, but a sweep that finds a task is no sign that it can be claimed.
    daemon.until_logged("could not claim tasks").await;
    daemon.until_logged("could not reconcile").await;
    let log = daemon.log();
    assert!(!log.contains("the ledger answers again"), "{log}");
    assert_eq!(place.ran(), [""; 0]);

    limit_file_size(&daemon, None);
    until("the task runs", async || place.ran() == ["Job@record@due"]).await;
    daemon.until_logged("the ledger answers again").await;
    assert_eq!(create(&mut wire, "last", "x"), ok());
    place.until_done(1).await;
    daemon.kill();
    assert_eq!(tasks(&place), ["due", "first", "last"]);
}

#[tokio::test]
async fn a_log_and_an_index_that_are_deleted_in_use_lose_no_task() {
    for ending in ["-wal", "-shm"] {
        let place = Embedded::new();
        let (mut daemon, mut wire) = place.serve().await;
        assert_eq!(create(&mut wire, "1-before", "x"), ok());
        std::fs::remove_file(place.path(&format!("lapsed.db{ending}"))).unwrap();
        assert_eq!(create(&mut wire, "2-after", "x"), ok());
        daemon.until_logged("was deleted: what it held").await;
        // Another process and the daemon see what the other writes.
        let (code, _, stderr) = place.run(&["schedule", "Job@record@3-other", "--in", "1h"]);
        assert_eq!(code, 0, "{stderr}");
        let seen = wire.ask(&["EXISTS", "Job@record@3-other"]);
        assert_eq!(seen, Reply::Integer(1), "{ending}");
        assert_eq!(create(&mut wire, "4-last", "x"), ok());
        daemon.kill();
        let names = ["1-before", "2-after", "3-other", "4-last"];
        assert_eq!(tasks(&place), names, "{ending}");
        assert_eq!(place.run(&["doctor"]).0, 0, "{ending}");
    }
}

#[tokio::test]
async fn a_log_that_another_program_has_replaced_is_an_error_and_the_file_is_used_again() {
    let place = Embedded::new();
    let (mut daemon, mut wire) = place.serve().await;
    assert_eq!(create(&mut wire, "1-ours", "x"), ok());
    // The other program is first.
    daemon.freeze();
    for ending in ["-wal", "-shm"] {
        std::fs::remove_file(place.path(&format!("lapsed.db{ending}"))).unwrap();
    }
    let (code, _, stderr) = place.run(&["schedule", "Job@record@2-other", "--in", "1h"]);
    assert_eq!(code, 0, "{stderr}");
    daemon.signal(Signal::CONT);
    daemon.until_logged("ERROR tasks were lost").await;
    daemon
        .until_logged("another program has begun a new one")
        .await;
    assert_eq!(create(&mut wire, "3-after", "x"), ok());
    daemon.kill();
    // The log that has no name any more is lost, as the error says.
    assert_eq!(tasks(&place), ["2-other", "3-after"]);
    assert_eq!(place.run(&["doctor"]).0, 0);
}

#[tokio::test]
async fn a_daemon_whose_file_is_deleted_takes_no_task_until_there_is_another() {
    let place = Embedded::new();
    let (mut daemon, mut wire) = place.serve().await;
    assert_eq!(create(&mut wire, "before", "x"), ok());
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(place.path(&format!("lapsed.db{ending}"))).unwrap();
    }
    let refused = create(&mut wire, "lost", "x");
    assert!(
        matches!(&refused, Reply::Error(text) if text.starts_with("ERR ledger refused")),
        "{refused:?}"
    );
    daemon.until_logged("there is no file `").await;
    assert_eq!(place.run(&["migrate"]).0, 0);
    assert_eq!(wire.ask(&["SETEX", "Job@record@due", "1", ""]), ok());
    until("the daemon runs tasks again", async || {
        place.ran() == ["Job@record@due"]
    })
    .await;
    daemon.until_logged("the ledger answers again").await;
    assert_eq!(create(&mut wire, "after", "x"), ok());
    daemon.kill();
    assert_eq!(tasks(&place), ["after", "due"]);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_named_by_every_command_and_left_alone() {
    let place = Embedded::new();
    let file = place.path("lapsed.db");
    let newer = "UPDATE tb_time_limit_task_format SET version = 2";
    let connection = Connection::open(&file).unwrap();
    connection.execute(newer, []).unwrap();
    drop(connection);
    let before = std::fs::read(&file).unwrap();
    let expected = "has format 2, expected 1: it was written by a newer version of lapsed";
    for words in [
        &["listen"][..],
        &["migrate"],
        &["stats"],
        &["list"],
        &["schedule", "Job@record", "--in", "1s"],
        &["backup", "copy.db"],
        &["dev", "--file", file.to_str().unwrap()],
    ] {
        let (code, _, stderr) = match words[0] {
            "dev" => {
                let mut dev = lapsed();
                dev.args(words)
                    .args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
                said(dev.output().unwrap())
            }
            _ => place.run(words),
        };
        assert_eq!(code, 1, "{words:?}: {stderr}");
        assert!(stderr.contains(expected), "{words:?}: {stderr}");
    }
    assert!(std::fs::read(&file).unwrap() == before, "it was changed");
}
