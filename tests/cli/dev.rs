//! `lapsed dev`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::program::{lapsed, said};
use crate::support::resp_wire::{Reply, Wire};

/// `lapsed dev` on ports that are free. Killed on drop.
struct Dev {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    /// What it prints before it waits.
    welcome: String,
}

impl Dev {
    fn start(directory: &Path) -> Self {
        let mut command = command(directory, "127.0.0.1:0");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut welcome = String::new();
        while welcome.lines().count() < 5 {
            let read = stdout.read_line(&mut welcome).unwrap();
            assert!(read > 0, "it ended after: {welcome}");
        }
        Self {
            child,
            stdout,
            welcome,
        }
    }

    /// The port that the first line to try names.
    fn port(&self) -> u16 {
        let (_, rest) = self.welcome.split_once("redis-cli -p ").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    }

    /// Waits for a line of the log. Returns all until then.
    fn until_logged(&mut self, text: &str) -> String {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut log = String::new();
        let mut lines = BufReader::with_capacity(1, stderr);
        while !log.contains(text) {
            let read = lines.read_line(&mut log).unwrap();
            assert!(read > 0, "it ended after: {log}");
        }
        log
    }

    /// Ctrl-C. Returns the exit code.
    fn interrupt(mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let mut rest = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut rest)
            .unwrap();
        self.stdout.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(directory: &Path, resp: &str) -> Command {
    let mut command = lapsed();
    command.current_dir(directory);
    command.args(["dev", "--http", "127.0.0.1:0", "--resp", resp]);
    command
}

#[test]
fn the_first_task_runs_within_ten_seconds_and_the_second_start_remembers() {
    let directory = tempfile::tempdir().unwrap();
    let started = tokio::time::Instant::now();
    let mut dev = Dev::start(directory.path());
    let mut client = Wire::connect(dev.port());
    let answer = client.ask(&["SETEX", "Hello@world", "1", r#"{"to":"you"}"#]);
    assert_eq!(answer, Reply::Simple("OK".to_owned()));
    dev.until_logged("Hello@world");
    assert!(started.elapsed() < Duration::from_secs(10));

    let answer = client.ask(&["SETEX", "Hello@later", "1000", ""]);
    assert_eq!(answer, Reply::Simple("OK".to_owned()));
    let dev_url = dev
        .welcome
        .lines()
        .find_map(|line| line.trim().strip_suffix(" lapsed list"));
    let dev_url = dev_url.expect("the welcome says how to list").to_owned();
    assert_eq!(dev.interrupt(), Some(0));
    assert!(client.is_closed());
    assert!(directory.path().join("lapsed.db").exists());

    // Another command looks into the file if it is told of it, and says so if it is not.
    let command = |name| {
        let mut command = lapsed();
        command.current_dir(directory.path()).arg(name);
        command
    };
    let (_, _, text) = said(command("check-config").output().unwrap());
    let hint = "set LAPSED__LEDGER__URL=sqlite://./lapsed.db";
    assert!(text.contains(hint), "{text}");
    let (_, url) = dev_url.split_once('=').unwrap();
    let list = command("list").env("LAPSED__LEDGER__URL", url).output();
    let (code, listed, text) = said(list.unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(listed.contains("Hello@later"), "{listed}");
    assert!(!text.contains("lapsed dev"), "{text}");

    let dev = Dev::start(directory.path());
    let mut client = Wire::connect(dev.port());
    assert_eq!(client.ask(&["EXISTS", "Hello@later"]), Reply::Integer(1));
    assert_eq!(client.ask(&["EXISTS", "Hello@world"]), Reply::Integer(0));
}

#[test]
fn a_configured_route_comes_before_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let routes = "[[routes]]\nmatch = '^Hello@'\nexec = ['touch', 'greeted']\n";
    std::fs::write(directory.path().join("lapsed.toml"), routes).unwrap();
    let mut dev = Dev::start(directory.path());
    let mut client = Wire::connect(dev.port());
    client.ask(&["PSETEX", "Hello@world", "1", ""]);
    client.ask(&["PSETEX", "Good@bye", "500", ""]);
    let log = dev.until_logged("Good@bye");
    assert!(!log.contains("Hello@world"), "{log}");
    assert!(directory.path().join("greeted").exists());
}

fn integer(reply: Reply) -> i64 {
    match reply {
        Reply::Integer(number) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_runs_when_its_time_has_passed_on_the_clock_that_a_client_sets() {
    const HALF_AN_HOUR_MS: i64 = 1_800_000;
    let directory = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(directory.path());
    let mut client = Wire::connect(dev.port());
    client.ask(&["SETEX", "Order@close@1", "1800", ""]);
    client.ask(&["SETEX", "Order@close@2", "3600", ""]);
    let due = integer(client.ask(&["PEXPIRETIME", "Order@close@1"]));
    let half_an_hour = HALF_AN_HOUR_MS.to_string();
    let now = integer(client.ask(&["LAPSED.ADVANCE", &half_an_hour]));
    assert!(now >= due, "{now} {due}");
    let log = dev.until_logged("Order@close@1");
    assert!(!log.contains("Order@close@2"), "{log}");
    let left = integer(client.ask(&["PTTL", "Order@close@2"]));
    assert!((1..=HALF_AN_HOUR_MS).contains(&left), "{left}");

    // A task that is created now counts from the time that was set.
    client.ask(&["PSETEX", "Order@close@3", "10", ""]);
    dev.until_logged("Order@close@3");

    client.ask(&["LAPSED.ADVANCE", &half_an_hour]);
    dev.until_logged("Order@close@2");
    let too_far = Reply::Error("ERR the clock is set forward by at most 10 years".to_owned());
    assert_eq!(client.ask(&["LAPSED.ADVANCE", "400000000000"]), too_far);
}

#[test]
fn a_run_keeps_its_lease_when_a_client_sets_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let route = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '30s' }\n";
    std::fs::write(directory.path().join("lapsed.toml"), route).unwrap();
    let dev = Dev::start(directory.path());
    let mut client = Wire::connect(dev.port());
    client.ask(&["PSETEX", "Mail@send@1", "1", ""]);
    let claim = claim(client.ask(&["LAPSED.TAKE", "mail", "BLOCK", "10000"]));
    client.ask(&["LAPSED.ADVANCE", "3600000"]);
    // A lease that has ended is found within about a second.
    let again = client.ask(&["LAPSED.TAKE", "mail", "BLOCK", "3000"]);
    assert_eq!(again, Reply::Array(Vec::new()));
    let done = client.ask(&["LAPSED.DONE", &claim]);
    assert_eq!(done, Reply::Simple("OK".to_owned()));
}

/// The claim of the one task that was taken.
fn claim(taken: Reply) -> String {
    let Reply::Array(tasks) = taken else {
        panic!("{taken:?}");
    };
    let [Reply::Array(members)] = &tasks[..] else {
        panic!("{tasks:?}");
    };
    let name = Reply::Bulk(b"claim".to_vec());
    let place = members.iter().position(|member| *member == name);
    match &members[place.expect("a task has a claim") + 1] {
        Reply::Bulk(claim) => String::from_utf8(claim.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_needs_its_numbers() {
    let directory = tempfile::tempdir().unwrap();
    for wrong in ["localhost:6380", "6380"] {
        let output = command(directory.path(), wrong).output().unwrap();
        let (code, _, text) = said(output);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("such as `127.0.0.1:6380`"), "{text}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, text) = said(command(directory.path(), &address).output().unwrap());
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(&address), "{text}");
    assert!(text.contains("--resp"), "{text}");
}
