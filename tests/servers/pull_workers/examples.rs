//! The workers of `examples/workers/pull`, as they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lapsed::engine::Metrics;
use lapsed::task::{Reason, State};
use lapsed::{Config, Handlers, Task, TaskClient, TaskKey};
use lapsed_server::resp::Listener;

use crate::support::registry;
use crate::support::wait::until;

const WORKERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workers/pull");

/// What workers in Python need.
const PYTHON: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/pull_workers/python"
);

/// Longest worker, without empty lines, comments and the imports of Go.
const LINES_MAX: usize = 40;

fn path(file: &str) -> PathBuf {
    Path::new(WORKERS).join(file)
}

/// A process that ends with the test.
struct Worker(std::process::Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(mut command: Command, address: &str) -> Worker {
    let program = command.get_program().to_owned();
    let child = command.arg(address).stdin(Stdio::null()).spawn();
    Worker(child.unwrap_or_else(|error| {
        panic!("{program:?}: {error}; run `scripts/install-servers --tests`")
    }))
}

/// A daemon on a ledger in memory, with a pull queue and a RESP server.
fn daemon() -> (TaskClient, String) {
    let config = "[resp]\nlisten = '127.0.0.1:0'\n\
        [[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '2s' }\n\
        retry = { max_attempts = 5, backoff = 'exponential', base = '100ms', max = '1s' }\n";
    let config = Config::from_toml(config).unwrap();
    let (engine, tasks) = lapsed::in_memory(&config, Handlers::new());
    let listener = Listener::open(&config.resp, tasks.clone(), Arc::<Metrics>::default());
    let listener = listener
        .unwrap()
        .unwrap()
        .with_workers(engine.handle().pull());
    let address = listener.address().unwrap().to_string();
    tokio::spawn(listener.serve(std::future::pending()));
    tokio::spawn(engine.run_until(std::future::pending()));
    (tasks, address)
}

fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

async fn schedule(tasks: &TaskClient, text: &str, payload: &str) {
    let task = Task::from(key(text)).payload(payload);
    tasks.create(task, Duration::ZERO).await.unwrap();
}

async fn until_state(tasks: &TaskClient, text: &str, state: State) {
    until(format!("`{text}` is {state}"), async || {
        tasks.find(key(text)).await.unwrap().unwrap().state == state
    })
    .await;
}

/// Has a worker run tasks that succeed and fail, and one that another worker has left.
async fn check(worker: Command, name: &str) {
    let (tasks, address) = daemon();
    // A worker that dies: its tasks are given out again when their leases end.
    schedule(&tasks, "Mail@send@left", "{}").await;
    let mut dead = std::net::TcpStream::connect(&address).unwrap();
    std::io::Write::write_all(&mut dead, b"LAPSED.TAKE mail BLOCK 60000\r\n").unwrap();
    until_state(&tasks, "Mail@send@left", State::Running).await;
    let _worker = start(worker, &address);
    for n in 0..30 {
        schedule(&tasks, &format!("Mail@send@{n}"), "{}").await;
    }
    schedule(&tasks, "Mail@send@bad", r#"{"error":"no such mailbox"}"#).await;
    for n in 0..30 {
        until_state(&tasks, &format!("Mail@send@{n}"), State::Done).await;
    }
    until_state(&tasks, "Mail@send@bad", State::Dead).await;
    until_state(&tasks, "Mail@send@left", State::Done).await;
    let done = tasks.find(key("Mail@send@7")).await.unwrap().unwrap();
    let result: serde_json::Value = serde_json::from_str(&done.result.unwrap()).unwrap();
    assert_eq!(result, serde_json::json!({"sent_to": ["7"]}), "{name}");
    let bad = tasks.find(key("Mail@send@bad")).await.unwrap().unwrap();
    assert_eq!(bad.reason, Some(Reason::Permanent), "{name}");
    let error = bad.last_error.unwrap();
    assert!(error.contains("no such mailbox"), "{name}: {error}");
    assert_eq!(bad.history[0].daemon, name);
    let left = tasks.find(key("Mail@send@left")).await.unwrap().unwrap();
    assert_eq!((left.crashes, left.attempt), (1, 2), "{name}");
}

/// Has a worker run a task that takes longer than its lease.
async fn check_renewal(worker: Command) {
    let (tasks, address) = daemon();
    let _worker = start(worker, &address);
    schedule(&tasks, "Mail@send@slow", r#"{"seconds":5}"#).await;
    until_state(&tasks, "Mail@send@slow", State::Done).await;
    let slow = tasks.find(key("Mail@send@slow")).await.unwrap().unwrap();
    assert_eq!((slow.attempt, slow.crashes), (1, 0));
}

fn python() -> Command {
    let home = registry::pip(Path::new(PYTHON));
    let mut command = Command::new("python3");
    command.args(["-W", "ignore::DeprecationWarning"]);
    command.arg(path("worker.py"));
    command.env("PYTHONPATH", home.join("packages"));
    command
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.arg(registry::npm(Path::new(WORKERS)).join("worker.mjs"));
    command
}

fn interpreted(program: &str, file: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(path(file));
    command
}

/// Built first, because `go run` leaves its program running when it is killed.
fn go() -> Command {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pull-worker-go");
    let mut build = Command::new("go");
    build
        .args(["build", "-o"])
        .arg(&program)
        .arg(path("worker.go"));
    // Debian's packages of Go sources.
    build.env("GOPATH", "/usr/share/gocode");
    build.env("GO111MODULE", "off").env("GOFLAGS", "");
    let built = build.status();
    let built =
        built.unwrap_or_else(|error| panic!("go: {error}; run `scripts/install-servers --tests`"));
    assert!(built.success(), "worker.go does not compile");
    Command::new(program)
}

#[tokio::test]
async fn a_worker_in_python_says_how_far_it_is() {
    let (tasks, address) = daemon();
    schedule(&tasks, "Mail@send@7", "{}").await;
    let home = registry::pip(Path::new(PYTHON));
    let mut program = tokio::process::Command::new("python3");
    program.arg(home.join("progress.py")).arg(address);
    program.env("PYTHONPATH", home.join("packages"));
    let output = program.stdin(Stdio::null()).output().await;
    let output = output
        .unwrap_or_else(|error| panic!("python3: {error}; run `scripts/install-servers --tests`"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "OK\nexpected a percentage from 0 to 100, found 101\n"
    );
    let running = tasks.find(key("Mail@send@7")).await.unwrap().unwrap();
    let progress = running.progress.unwrap();
    assert_eq!(progress.to_string(), "40 %, row 4 of 10, ü");
}

#[tokio::test]
async fn in_python() {
    check(python(), "py").await;
    check_renewal(python()).await;
}

#[tokio::test]
async fn in_node() {
    check(node(), "node").await;
    check_renewal(node()).await;
}

#[tokio::test]
async fn in_php() {
    check(interpreted("php", "worker.php"), "php").await;
}

#[tokio::test]
async fn in_ruby() {
    check(interpreted("ruby", "worker.rb"), "ruby").await;
    check_renewal(interpreted("ruby", "worker.rb")).await;
}

#[tokio::test]
async fn in_go() {
    check(go(), "go").await;
}

#[test]
fn each_has_forty_lines_at_most() {
    for file in [
        "worker.py",
        "worker.mjs",
        "worker.php",
        "worker.rb",
        "worker.go",
    ] {
        let text = std::fs::read_to_string(path(file)).unwrap();
        let (before, after) = text.split_once("import (").unwrap_or((&text, ""));
        let after = after.split_once("\n)").map_or(after, |(_, code)| code);
        let lines = before.lines().chain(after.lines()).map(str::trim);
        let count = lines.filter(|line| {
            !line.is_empty() && !["//", "#", "/*"].iter().any(|it| line.starts_with(it))
        });
        assert!(count.count() <= LINES_MAX, "{file}");
    }
}
