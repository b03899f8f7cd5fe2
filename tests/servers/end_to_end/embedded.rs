//! `lapsed` on an SQLite file: the whole program without any server.

use std::path::PathBuf;
use std::time::Duration;

use lapsed::rusqlite::Connection;
use lapsed::task::State;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::support::process::Process;
use crate::support::program::{lapsed, said};
use crate::support::resp_wire::Wire;
use crate::support::rig::Rig;
use crate::support::wait::until;

/// A directory with a file and its configuration.
pub struct Embedded {
    directory: TempDir,
    settings: String,
}

impl Embedded {
    /// Tasks of `Job@record` append their key to a file; those of `Job@fails` do so and fail.
    pub fn new() -> Self {
        Self::with("")
    }

    /// As [`new`](Self::new), with these settings.
    pub fn with(settings: &str) -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
            settings: settings.to_owned(),
        };
        assert_eq!(place.run(&["migrate"]).0, 0);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let route = |method: &str, code: u8| {
            format!(
                "[[routes]]\nmatch = '^Job@{method}(@|$)'\n\
                 exec = ['sh', '-c', 'echo \"$1\" >> {}; exit {code}', 'sh', '{{key}}']\n",
                self.path("ran").display()
            )
        };
        let text = format!(
            "http.listen = ''\nresp.listen = '127.0.0.1:0'\nledger.url = 'sqlite://{}'\n\
             engine = {{ lease = '2s' }}\n{}\n{}{}",
            self.path("lapsed.db").display(),
            self.settings,
            route("record", 0),
            route("fails", 1),
        );
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// A daemon that runs, and a connection to its RESP server.
    pub async fn serve(&self) -> (Process, Wire) {
        self.serve_with(&[]).await
    }

    /// As [`serve`](Self::serve), with these variables in its environment.
    pub async fn serve_with(&self, env: &[(&str, &str)]) -> (Process, Wire) {
        let daemon = Process::listen_with(self.config(), env);
        let wire = Wire::connect(daemon.address("resp").await.port());
        // The server is open before the ledger is checked.
        daemon.until_logged("audited").await;
        (daemon, wire)
    }

    /// Exit code, standard output and standard error of a command.
    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        let config = self.config();
        let mut command = lapsed();
        command.arg("--config").arg(config.path()).args(args);
        said(command.output().unwrap())
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let (code, stdout, stderr) = self.run(&[&["--json"], args].concat());
        assert_eq!(code, 0, "{args:?}: {stderr}");
        serde_json::from_str(&stdout).unwrap()
    }

    pub fn listen(&self) -> Process {
        Process::listen_with(self.config(), &[])
    }

    /// Creates tasks `Job@record@{prefix}0`, .. that fall due one after the other.
    pub fn schedule(&self, prefix: &str, count: u64, apart_ms: u64) {
        let lines: String = (0..count)
            .map(|number| {
                let delay = number * apart_ms;
                format!("{{\"key\": \"Job@record@{prefix}{number}\", \"in\": \"{delay}ms\"}}\n")
            })
            .collect();
        let file = self.path("bulk");
        std::fs::write(&file, lines).unwrap();
        let (code, _, stderr) = self.run(&["schedule", "--file", file.to_str().unwrap()]);
        assert_eq!(code, 0, "{stderr}");
    }

    pub async fn until_done(&self, count: u64) {
        until(format!("{count} tasks are done"), async || {
            self.json(&["stats"])["done"] == count
        })
        .await;
    }

    /// The keys that ran, in order of the text.
    pub fn ran(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("ran")).unwrap_or_default();
        let mut keys: Vec<String> = text.lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }
}

#[tokio::test]
async fn every_task_of_a_file_runs_though_the_daemon_is_killed() {
    const TASKS: u64 = 60;
    let place = Embedded::new();
    let mut daemon = place.listen();
    place.schedule("", TASKS, 40);
    until("some tasks are done", async || {
        place.json(&["stats"])["done"].as_u64() >= Some(10)
    })
    .await;
    daemon.kill();
    // The kernel has released its lock.
    let again = place.listen();
    place.until_done(TASKS).await;
    let mut ran = place.ran();
    assert!(ran.len() as u64 >= TASKS, "{ran:?}");
    ran.dedup();
    assert_eq!(ran.len() as u64, TASKS);
    again.signal(Signal::TERM);
}

#[tokio::test]
async fn a_second_daemon_on_a_file_ends_with_an_error_and_the_command_line_works_beside_the_first()
{
    let place = Embedded::new();
    let first = place.listen();
    until("the first daemon runs", async || {
        place.run(&["schedule", "Job@record@1", "--in", "1ms"]).0 == 0 && !place.ran().is_empty()
    })
    .await;
    let mut second = place.listen();
    let status = second.until_ended().await;
    assert_eq!(status.code(), Some(1));
    assert!(
        second.log().contains("a daemon runs on"),
        "{}",
        second.log()
    );
    assert_eq!(
        place.run(&["schedule", "Job@record@far", "--in", "1h"]).0,
        0
    );
    assert_eq!(place.run(&["cancel", "Job@record@far"]).0, 0);
    let shown = place.json(&["show", "Job@record@far"]);
    assert_eq!(shown["state"], State::Cancelled.as_str());
    drop(first);
}

#[tokio::test]
async fn a_file_is_diagnosed_and_a_backup_is_a_ledger() {
    let place = Embedded::new();
    place.schedule("later", 20, 3_600_000);
    let report = place.json(&["doctor"]);
    let findings = report["findings"].as_array().unwrap();
    for check in [
        "ledger.durability",
        "ledger.integrity",
        "ledger.rights",
        "ledger.file_system",
    ] {
        let found = findings.iter().find(|finding| finding["check"] == check);
        assert_eq!(found.expect(check)["severity"], "ok", "{report}");
    }
    let copy = place.path("copy.db");
    let backup = place.json(&["backup", copy.to_str().unwrap()]);
    assert_eq!(backup["rows"], 20);
    assert_eq!(place.run(&["backup", copy.to_str().unwrap()]).0, 1);
    // The file is lost, and the backup takes its place.
    for name in ["lapsed.db", "lapsed.db-wal", "lapsed.db-shm"] {
        let _ = std::fs::remove_file(place.path(name));
    }
    assert_eq!(place.run(&["doctor"]).0, 3);
    std::fs::rename(&copy, place.path("lapsed.db")).unwrap();
    assert_eq!(place.json(&["stats"])["pending"], 20);
}

#[tokio::test]
async fn tasks_move_from_a_file_to_mysql_while_both_daemons_run() {
    const TASKS: u64 = 120;
    let (place, to) = (Embedded::new(), Rig::new("timer = 'ledger_poll'").await);
    let (here, there) = (place.listen(), to.daemon());
    there.status.ready().await;
    place.schedule("", TASKS, 50);
    let url = to.config().ledger.url.expose().to_owned();
    let result = place.json(&["move", "--to", &url]);
    assert_eq!(result["complete"], true, "{result}");
    assert!(result["moved"].as_u64() > Some(0), "{result}");
    until("every task has run", async || {
        place.ran().len() + to.runs().await.len() >= TASKS as usize
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut ran = place.ran();
    ran.extend(to.runs().await.into_iter().map(|run| run.name));
    ran.sort();
    let all = ran.len();
    ran.dedup();
    assert_eq!((ran.len(), all), (TASKS as usize, TASKS as usize));
    assert_eq!(place.json(&["stats"])["pending"], 0);
    there.stop().await;
    drop(here);
}

#[tokio::test]
async fn overdue_tasks_of_a_queue_without_workers_are_named_by_the_log_and_the_doctor() {
    let place = Embedded::with("[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail' }");
    let insert = "INSERT INTO tb_time_limit_task (key, start_time, end_time) \
                  VALUES ('Mail@send@1', 1, (unixepoch() - 300) * 1000)";
    let connection = Connection::open(place.path("lapsed.db")).unwrap();
    connection.execute(insert, []).unwrap();
    let daemon = place.listen();
    daemon.until_logged("overdue tasks wait for workers").await;
    daemon.until_logged("queue=\"mail\"").await;
    let (code, doctor, _) = place.run(&["doctor"]);
    assert_eq!(code, 3, "as red as the overview: {doctor}");
    assert!(doctor.contains("1 task is overdue"), "{doctor}");
    let expected = "1 waits until a worker asks for it: 1 for the queue `mail`";
    assert!(doctor.contains(expected), "{doctor}");
    assert!(
        doctor.contains("Start the workers of the queue"),
        "{doctor}"
    );
}

#[tokio::test]
async fn commands_take_the_id_of_a_log_line_in_place_of_the_key() {
    let place = Embedded::new();
    for name in ["1", "2", "3"] {
        let key = format!("Job@record@{name}");
        assert_eq!(place.run(&["schedule", &key, "--in", "1h"]).0, 0);
    }
    let id = |key: &str| {
        place.json(&["show", key])["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (first, second) = (id("Job@record@1"), id("Job@record@2"));
    assert_eq!(place.json(&["show", &second])["key"], "Job@record@2");
    assert_eq!(place.json(&["run", &second])["key"], "Job@record@2");
    assert_eq!(place.json(&["cancel", &first])["cancelled"], 1);
    assert_eq!(place.json(&["show", "Job@record@3"])["state"], "pending");
    // `run` made it another arming.
    let (code, _, text) = place.run(&["show", &second]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("the due time of `Job@record@2` has changed"),
        "{text}"
    );
    let (code, _, text) = place.run(&["redrive", "99-5"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("no task with the id `99-5`"), "{text}");
    let (code, _, text) = place.run(&["show", "99"]);
    assert_eq!(code, 2, "{text}");
}

#[tokio::test]
async fn schedule_reports_a_due_time_in_the_past() {
    let place = Embedded::new();
    let past = ["schedule", "Job@record", "--at", "2020-12-01T10:00:00Z"];
    let (code, _, text) = place.run(&past);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("note: due now: the time has passed"),
        "{text}"
    );
    let (code, _, text) = place.run(&["schedule", "Job@record", "--in", "0s"]);
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("has passed"), "{text}");
}
