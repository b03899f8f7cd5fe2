//! Logs that cannot be written, and terminals that are closed.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::program::{lapsed, said};
use crate::support::resp_wire::{Reply, Wire, command as request};
use crate::support::wait::{DEADLINE, POLL, until};

/// A directory for `lapsed dev`, whose `Fail@` tasks fail, and fail once more.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let route = "[[routes]]\nmatch = '^Fail@'\nexec = ['false']\n\
                 retry = { max_attempts = 2, backoff = 'exponential', base = '100ms', max = '100ms' }\n";
    std::fs::write(directory.path().join("lapsed.toml"), route).unwrap();
    directory
}

/// A daemon. Killed on drop.
pub struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `lapsed dev` with this standard error.
fn start(mut command: Command, log: Stdio) -> (Daemon, Wire) {
    command.stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().unwrap();
    let port = port(&mut BufReader::new(child.stdout.take().unwrap()));
    (Daemon(child), Wire::connect(port))
}

fn dev(directory: &Path) -> Command {
    let mut command = lapsed();
    command.current_dir(directory);
    command.args(["dev", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    command
}

/// The port that the welcome names.
fn port(output: &mut impl io::BufRead) -> u16 {
    let mut text = String::new();
    loop {
        let read = output.read_line(&mut text).unwrap();
        assert!(read > 0, "it ended after: {text}");
        if let Some((_, rest)) = text.split_once("redis-cli -p ") {
            return rest.split(' ').next().unwrap().parse().unwrap();
        }
    }
}

/// What the ledger says of a task.
fn show(directory: &Path, key: &str) -> serde_json::Value {
    let mut command = lapsed();
    command.current_dir(directory);
    command.env("LAPSED__LEDGER__URL", "sqlite://./lapsed.db");
    let (code, text, error) = said(command.args(["show", "--json", key]).output().unwrap());
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&text).unwrap()
}

async fn until_it_is(directory: &Path, key: &str, state: &str) {
    until(format!("`{key}` is {state}"), async || {
        show(directory, key)["state"] == state
    })
    .await;
}

fn ask(client: &mut Wire, words: &[&str]) {
    assert_eq!(client.ask(words), Reply::Simple("OK".to_owned()));
}

/// The tasks end as they do with a log, and so does the daemon.
async fn ends_as_with_a_log(directory: &Path, mut daemon: Daemon, mut client: Wire) {
    ask(&mut client, &["PSETEX", "Fail@one", "1", ""]);
    ask(&mut client, &["PSETEX", "Hello@world", "1", ""]);
    until_it_is(directory, "Fail@one", "dead").await;
    until_it_is(directory, "Hello@world", "done").await;
    let failed = show(directory, "Fail@one");
    assert_eq!(failed["attempt"], 2, "{failed}");
    assert!(!failed.to_string().contains("panicked"), "{failed}");
    signal(daemon.0.id(), Signal::INT);
    assert_eq!(ended(&mut daemon.0).await.code(), Some(0));
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

pub async fn ended(child: &mut Child) -> ExitStatus {
    let ended = async {
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.unwrap()
}

#[tokio::test]
async fn tasks_run_while_the_log_is_on_a_full_disk() {
    let directory = directory();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (daemon, client) = start(dev(directory.path()), full.into());
    ends_as_with_a_log(directory.path(), daemon, client).await;
}

#[tokio::test]
async fn tasks_run_while_nobody_reads_the_log_pipe() {
    let directory = directory();
    let (mut daemon, client) = start(dev(directory.path()), Stdio::piped());
    let mut log = BufReader::new(daemon.0.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    drop(log);
    ends_as_with_a_log(directory.path(), daemon, client).await;
}

#[tokio::test]
async fn an_unread_log_delays_no_task_and_later_counts_its_lost_lines() {
    let directory = directory();
    let mut command = dev(directory.path());
    command.env("LAPSED_LOG", "trace");
    let (mut daemon, mut client) = start(command, Stdio::piped());
    // More lines than fit into the pipe and into the daemon's own queue.
    let name = "x".repeat(200);
    for number in 0..4_000 {
        client.send(&request(&[
            "PSETEX",
            &format!("Log@{name}@{number}"),
            "1",
            "",
        ]));
    }
    for _ in 0..4_000 {
        assert_eq!(client.reply(), Reply::Simple("OK".to_owned()));
    }
    let last = format!("Log@{name}@3999");
    until_it_is(directory.path(), &last, "done").await;
    // A reader that comes back reads the lines that had room, and how many had none.
    let mut lines = BufReader::new(daemon.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("lines of the log were lost") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let reading = std::thread::spawn(move || io::copy(&mut lines, &mut io::sink()).unwrap());
    ends_as_with_a_log(directory.path(), daemon, client).await;
    reading.join().unwrap();
}

#[test]
fn a_command_completes_if_stderr_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lapsed.toml");
    let route = "[[routes]]\nmatch = '.'\nlog = {}\n";
    std::fs::write(&file, format!("{route}{route}")).unwrap();
    let run = |command: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut program = lapsed();
        program.current_dir(directory.path()).stderr(full);
        program.args(command);
        said(program.output().unwrap())
    };
    let (code, text, _) = run(&["check-config"]);
    assert_eq!(code, 0, "{text}");
    std::fs::write(&file, "wrong").unwrap();
    let (code, ..) = run(&["check-config"]);
    assert_eq!(code, 2);
}

/// A process in a terminal of its own. [Closing](Self::close) the terminal is what closing its window is.
struct Terminal {
    /// `script` has the terminal; its child has the terminal as stdin, stdout, stderr and controlling terminal.
    script: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Terminal {
    fn run(command: &Command) -> Self {
        let mut script = Command::new("script");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        script.args([
            "-q",
            "-f",
            "-c",
            &format!("exec {}", words.join(" ")),
            "/dev/null",
        ]);
        script.current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        // Its end would be typed into the terminal.
        let mut script = script
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(script.stdout.take().unwrap());
        Self { script, output }
    }

    fn close(self) {}
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// The process that holds the lock of the ledger.
fn daemon(directory: &Path) -> PathBuf {
    let holder = std::fs::read_to_string(directory.join("lapsed.db-daemon")).unwrap();
    Path::new("/proc").join(holder.trim())
}

async fn until_gone(daemon: &Path) {
    until("the daemon has ended", async || !daemon.exists()).await;
}

#[tokio::test]
async fn a_closed_terminal_ends_dev() {
    let directory = directory();
    let mut terminal = Terminal::run(&dev(directory.path()));
    let mut client = Wire::connect(port(&mut terminal.output));
    ask(&mut client, &["PSETEX", "Hello@world", "1", ""]);
    until_it_is(directory.path(), "Hello@world", "done").await;
    let daemon = daemon(directory.path());
    assert!(daemon.exists());
    terminal.close();
    until_gone(&daemon).await;
}

#[tokio::test]
async fn a_closed_terminal_ends_listen_after_its_runs() {
    let directory = directory();
    let config = "timer = 'ledger_poll'\n[ledger]\nurl = 'sqlite://./lapsed.db'\n[http]\nlisten = ''\n\
                  [[routes]]\nmatch = '.'\nexec = ['sh', '-c', 'touch begun; while [ ! -e closed ]; do sleep 0.01; done']\n";
    std::fs::write(directory.path().join("lapsed.toml"), config).unwrap();
    let command = |words: &[&str]| {
        let mut command = lapsed();
        command.current_dir(directory.path()).args(words);
        command
    };
    let (code, _, error) = said(command(&["migrate"]).output().unwrap());
    assert_eq!(code, 0, "{error}");
    let terminal = Terminal::run(&command(&["listen"]));
    let (code, _, error) = said(
        command(&["schedule", "Slow@task", "--in", "1ms"])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 0, "{error}");
    until("the task runs", async || {
        directory.path().join("begun").exists()
    })
    .await;
    let daemon = daemon(directory.path());
    terminal.close();
    // It lives until its run has ended, although the shell and the kernel both say that the terminal is closed.
    let status = std::fs::read_to_string(daemon.join("status")).unwrap();
    assert!(status.starts_with("Name:\tlapsed"), "{status}");
    File::create(directory.path().join("closed")).unwrap();
    until_gone(&daemon).await;
    until_it_is(directory.path(), "Slow@task", "done").await;
}
