//! Daemons that are killed, stopped and asked to go.

use lapsed::task::State;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::end_to_end::exec::runs;
use crate::support::process::{Process, config_file};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::shell::Shell;
use crate::support::tasks::create;
use crate::support::wait::{DEADLINE, until};

/// Writes its argument to `started` and waits for the file `go`; not for ever, and not without its directory.
const UNTIL_GO: &str = r#"echo "$1" >> "$0/started"; n=0
until [ -e "$0/go" ] || [ ! -d "$0" ] || [ "$n" -ge 6000 ]; do n=$((n + 1)); sleep 0.05; done"#;

/// A rig for `lapsed listen`, whose route runs a script of the shell; and the directory that is its `$0`.
async fn scripted(script: &str) -> (Rig, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let route = format!(
        "[[routes]]\nmatch = '^Run@'\nexec = ['/bin/sh', '-c', '''{script}''', '{}', '{{args}}']",
        dir.path().display()
    );
    (Rig::new(&route).await, dir)
}

fn read(dir: &tempfile::TempDir, name: &str) -> String {
    std::fs::read_to_string(dir.path().join(name)).unwrap_or_default()
}

async fn until_lines(dir: &tempfile::TempDir, name: &str, count: usize) {
    until(format!("`{name}` has {count} lines"), async || {
        read(dir, name).lines().count() >= count
    })
    .await;
}

#[tokio::test]
async fn runs_of_a_killed_daemon_are_repeated_after_their_lease_and_take_effect_once() {
    let rig = Rig::new("engine.lease = '2s'\nledger.max_connections = 20").await;
    let client = rig.client().await;
    let mut first = Process::worker(&rig);
    for number in 0..10 {
        create(&client, &format!("Job@slow@{}", 10_000 + number), 0).await;
    }
    until("all are running", async || rig.runs().await.len() == 10).await;
    let mut second = Process::worker(&rig);
    let leases = async |which: &str| {
        rig.number(format!("SELECT CAST({which}(lease_until) * 1000 AS SIGNED) FROM tb_time_limit_task WHERE status = 0"))
            .await
    };
    let first_leases = leases("MAX").await;
    until("each lease has been renewed", async || {
        leases("MIN").await > first_leases
    })
    .await;
    // As if it ran on another host, where nobody here can know that it is dead.
    rig.run_sql("UPDATE tb_time_limit_task SET daemon = 'elsewhere:1'")
        .await;
    let leased_until = leases("MIN").await;
    first.kill();
    rig.until_done(10).await;
    rig.each_effect_once(10).await;
    for number in 0..10 {
        let name = format!("Job@slow@{}", 10_000 + number);
        let record = rig.record(&name).await;
        assert_eq!((record.attempt, record.crashes), (2, 1), "{name}");
        let runs = rig.runs_of(&name).await;
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert!(
            runs[1].at_ms >= leased_until,
            "the lease was held: {runs:?}"
        );
    }
    second.kill();
}

#[tokio::test]
async fn a_daemon_that_is_frozen_beyond_its_lease_comes_back_to_no_effect() {
    // Long enough for the other daemon to renew it on a busy machine.
    let rig = Rig::new("engine.lease = '3s'\nledger.max_connections = 20").await;
    let client = rig.client().await;
    let frozen = Process::worker(&rig);
    for number in 0..10 {
        create(&client, &format!("Job@slow@{}", 4_000 + number), 0).await;
    }
    until("all are running", async || rig.runs().await.len() == 10).await;
    frozen.freeze();
    let mut other = Process::worker(&rig);
    rig.until_done(10).await;
    frozen.signal(Signal::CONT);
    other.kill();
    // It goes on with its work, and what it had begun counts for nothing.
    create(&client, "Job@effect@after", 0).await;
    rig.until_done(11).await;
    rig.each_effect_once(11).await;
    let runs = rig.runs().await;
    assert_eq!(runs.len(), 20);
    assert!(runs[10..].iter().all(|run| run.attempt == 2), "{runs:?}");
}

#[tokio::test]
async fn a_daemon_thawed_while_its_task_runs_elsewhere_is_fenced() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let client = rig.client().await;
    let frozen = Process::worker(&rig);
    create(&client, "Job@slow@1500", 0).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    frozen.freeze();
    let _other = Process::worker(&rig);
    until("it runs elsewhere", async || rig.runs().await.len() == 2).await;
    frozen.signal(Signal::CONT);
    rig.until_done(1).await;
    frozen.until_logged("result discarded").await;
    rig.each_effect_once(1).await;
    let record = rig.record("Job@slow@1500").await;
    assert_eq!((record.attempt, record.crashes), (2, 1));
}

#[tokio::test]
async fn a_task_that_kills_its_daemon_is_buried_after_three() {
    let rig = Rig::new("engine.lease = '1s'").await;
    create(&rig.client().await.into(), "Job@kills", 0).await;
    for crash in 1..=3 {
        let mut daemon = Process::worker(&rig);
        let status = daemon.until_ended().await;
        assert!(!status.success());
        assert_eq!(rig.runs().await.len(), crash, "{}", daemon.log());
    }
    let _daemon = Process::worker(&rig);
    rig.until_state("Job@kills", State::Dead).await;
    assert_eq!(rig.runs().await.len(), 3);
    let error = rig.record("Job@kills").await.last_error.unwrap();
    assert!(error.contains("poison"), "{error}");
}

#[tokio::test]
async fn a_daemon_killed_while_programs_run_has_them_run_again() {
    let (rig, dir) = scripted(UNTIL_GO).await;
    let env = [("LAPSED__ENGINE__LEASE", "2s")];
    let client = rig.client().await;
    for number in 0..5 {
        create(&client, &format!("Run@it@{number}"), 0).await;
    }
    let mut first = Process::listen(&rig, &env);
    until_lines(&dir, "started", 5).await;
    first.kill();
    std::fs::write(dir.path().join("go"), "").unwrap();
    let _second = Process::listen(&rig, &env);
    rig.until_done(5).await;
    for number in 0..5 {
        let record = rig.record(&format!("Run@it@{number}")).await;
        assert_eq!((record.attempt, record.crashes), (2, 1));
    }
}

#[tokio::test]
async fn sigterm_finishes_runs_and_starts_no_new_ones() {
    let (rig, dir) =
        scripted(r#"echo "$1" >> "$0/started"; sleep 2; echo "$1" >> "$0/ended""#).await;
    let mut daemon = Process::listen(&rig, &[]);
    let client = rig.client().await;
    create(&client, "Run@it@before", 0).await;
    until_lines(&dir, "started", 1).await;
    daemon.signal(Signal::TERM);
    daemon.until_logged("stopping: no new run starts").await;
    create(&client, "Run@it@after", 0).await;
    let status = daemon.until_ended().await;
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert_eq!(read(&dir, "ended"), "before\n");
    assert_eq!(rig.state("Run@it@before").await, State::Done);
    let after = rig.record("Run@it@after").await;
    assert_eq!((after.state, after.attempt), (State::Pending, 0));
    assert_eq!(read(&dir, "started"), "before\n");
}

/// The status line and the body of one page.
async fn page(address: std::net::SocketAddr, path: &str) -> (String, String) {
    let get = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(DEADLINE, get).await.expect("a page in time");
    let answer = answer.unwrap_or_else(|error| panic!("GET {path}: {error}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap_or_default();
    (status.to_owned(), body.to_owned())
}

#[tokio::test]
async fn http_answers_while_the_daemon_drains_and_an_open_connection_does_not_keep_it() {
    let (rig, dir) = scripted(UNTIL_GO).await;
    let env = [("LAPSED__HTTP__LISTEN", "127.0.0.1:0")];
    let mut daemon = Process::listen(&rig, &env);
    let address = daemon.address("http").await;
    // A client that never ends its request.
    let mut hangs = TcpStream::connect(address).await.unwrap();
    hangs.write_all(b"GET /metrics HTT").await.unwrap();
    create(&rig.client().await.into(), "Run@it@1", 0).await;
    until_lines(&dir, "started", 1).await;

    daemon.signal(Signal::TERM);
    daemon.until_logged("stopping: no new run starts").await;
    let (status, body) = page(address, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable", "{body}");
    let ready: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&ready["stopping"], &ready["ready"]),
        (&true.into(), &false.into())
    );
    assert_eq!(page(address, "/healthz").await.1, "ok\n");
    let (status, metrics) = page(address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(metrics.contains("lapsed_members 1"), "{metrics}");

    std::fs::write(dir.path().join("go"), "").unwrap();
    let status = daemon.until_ended().await;
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert_eq!(rig.state("Run@it@1").await, State::Done);
}

#[tokio::test]
async fn sigterm_kills_and_releases_runs_after_the_drain_timeout() {
    let (rig, dir) = scripted(r#"sleep 60 & echo $$ $! > "$0/pids"; wait"#).await;
    let mut daemon = Process::listen(&rig, &[("LAPSED__ENGINE__DRAIN_TIMEOUT", "500ms")]);
    create(&rig.client().await.into(), "Run@it@1", 0).await;
    until_lines(&dir, "pids", 1).await;
    daemon.signal(Signal::TERM);
    let status = daemon.until_ended().await;
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    let record = rig.record("Run@it@1").await;
    assert_eq!(
        (record.state, record.attempt, record.crashes),
        (State::Pending, 0, 0)
    );
    let held = "SELECT COUNT(*) FROM tb_time_limit_task WHERE lease_until > 0";
    assert_eq!(rig.number(held).await, 0);
    let pids = read(&dir, "pids");
    until("the programs are dead", async || {
        !pids.split_whitespace().any(runs)
    })
    .await;

    // Another daemon need not wait for a lease.
    let _next = Process::listen(&rig, &[]);
    rig.until_state("Run@it@1", State::Running).await;
    assert_eq!(rig.record("Run@it@1").await.attempt, 1);
}

#[tokio::test]
async fn a_second_sigterm_stops_the_daemon_at_once() {
    let (rig, dir) = scripted(r#"echo $$ > "$0/pid"; exec sleep 60"#).await;
    // Far longer than this test waits for the end of the process.
    let mut daemon = Process::listen(&rig, &[("LAPSED__ENGINE__DRAIN_TIMEOUT", "1h")]);
    create(&rig.client().await.into(), "Run@it@1", 0).await;
    until_lines(&dir, "pid", 1).await;
    daemon.signal(Signal::TERM);
    daemon.until_logged("stopping: no new run starts").await;
    daemon.signal(Signal::TERM);
    let status = daemon.until_ended().await;
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    // Its lease stands until it runs out, if there was no time to give it back.
    let state = rig.state("Run@it@1").await;
    assert!(matches!(state, State::Running | State::Pending), "{state}");
    let pid = read(&dir, "pid");
    until("the program has ended with its daemon", async || {
        !runs(&pid)
    })
    .await;
}

#[tokio::test]
async fn sighup_reloads_the_routes() {
    let (rig, dir) = scripted(r#"echo "$1" >> "$0/ran""#).await;
    let config = config_file(&rig);
    let new_routes = rig.config_text();
    let old_routes = new_routes.replace("^Run@", "^Nothing@");
    std::fs::write(config.path(), &old_routes).unwrap();
    let daemon = Process::listen_with(config, &[]);
    let client = rig.client().await;
    create(&client, "Run@it@1", 0).await;
    daemon.until_logged("no handler and no route").await;
    std::fs::write(daemon.config(), "nonsense").unwrap();
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration is invalid").await;
    std::fs::write(daemon.config(), new_routes).unwrap();
    daemon.signal(Signal::HUP);
    rig.until_done(1).await;
    assert_eq!(read(&dir, "ran"), "1\n");
}

#[tokio::test]
async fn the_command_line_takes_a_task_from_an_empty_database_to_done() {
    let dir = tempfile::tempdir().unwrap();
    let route = format!(
        "[[routes]]\nmatch = '^Run@'\nexec = ['/bin/sh', '-c', 'echo \"$1\" >> \"$0/ran\"', '{}', '{{args}}']",
        dir.path().display()
    );
    let rig = Setup::new(&route).without_table().start().await;
    let shell = Shell::of(&rig);
    shell.text(&["migrate"]);
    shell.text(&["schedule", "Run@it@7", "--in", "1s"]);
    shell.text(&["schedule", "Run@it@8", "--in", "1h"]);
    assert!(rig.pttl("Run@it@8").await > 3_500_000);
    let mut daemon = Process::listen(&rig, &[]);
    rig.until_done(1).await;
    shell.text(&["run", "Run@it@8"]);
    rig.until_done(2).await;
    assert_eq!(read(&dir, "ran"), "7\n8\n");
    let shown = shell.json(&["show", "Run@it@7"]);
    assert_eq!(
        (&shown["state"], &shown["attempt"]),
        (&"done".into(), &1.into())
    );
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.until_ended().await.code(), Some(0));
}
