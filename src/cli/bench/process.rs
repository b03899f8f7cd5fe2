//! Process of a measured daemon: start, wait, stop.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::daemon::StartClock;
use super::progress::spinner;
use super::recorder::Record;

/// Time limit until the ledger answers a daemon and events reach it.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Time limit of its first audit; a longer one overlaps with the measurement.
const AUDITED_WITHIN: Duration = Duration::from_secs(300);

/// Time limit of stopping; its drain timeout is shorter.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// Environment variables that would override those set here.
const OVERRIDING: [&str; 2] = ["LAPSED__REDIS__URL_FILE", "LAPSED__LEDGER__URL_FILE"];

/// Parameters of a daemon.
pub struct Order<'a> {
    /// The configuration file, if one was given.
    pub config: Option<&'a Path>,
    /// `LAPSED__..` settings that override it.
    pub settings: &'a [(String, String)],
    /// The tasks that it records.
    pub tasks: Numbers,
    /// Clock of the records.
    pub clock: StartClock,
    /// Opens a RESP server for this many connections, and leaves the tasks to pull workers.
    pub resp: Option<u32>,
}

/// Numbers of tasks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    /// First number.
    pub first: u32,
    /// Count.
    pub count: u32,
    /// How many of the first ones are a backlog.
    pub backlog: u32,
    /// Run time of competing slow tasks, if there are any.
    pub slow_ms: Option<u64>,
    /// Whether tasks wait for a worker of a queue that has none.
    pub blocked_queue: bool,
}

/// Progress of a daemon.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// When the ledger answered and the subscription was up.
    pub ready: Option<Instant>,
    /// When its first audit was over.
    pub audited: Option<Instant>,
    /// Tasks started.
    pub started: u64,
    /// Runs in progress or not settled.
    pub running: u64,
    /// Tasks of the backlog that have started.
    pub backlog_started: u64,
    /// Keyspace events that Redis has delivered to it.
    pub events: u64,
    /// Address of its RESP server.
    pub resp: Option<SocketAddr>,
    /// Address of its HTTP API.
    pub http: Option<SocketAddr>,
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    stdin: ChildStdin,
    record: NamedTempFile,
    tasks: Numbers,
    progress: watch::Receiver<Progress>,
}

impl Daemon {
    /// Starts this program once more, as a daemon.
    pub fn start(order: &Order<'_>) -> anyhow::Result<Self> {
        let record = NamedTempFile::new().context("make a file for the record of a daemon")?;
        let program = std::env::current_exe().context("find this program")?;
        let mut command = Command::new(program);
        if let Some(config) = order.config {
            command.arg("--config").arg(config);
        }
        let Numbers {
            first,
            count,
            backlog,
            slow_ms,
            blocked_queue,
        } = order.tasks;
        let clock = match order.clock {
            StartClock::Wall => "wall",
            StartClock::Ledger => "ledger",
        };
        command
            .arg("bench-daemon")
            .args(["--first", &first.to_string()])
            .args(["--count", &count.to_string()])
            .args(["--backlog", &backlog.to_string()])
            .args(["--clock", clock])
            .args(slow_ms.map(|ms| format!("--slow-ms={ms}")))
            .args(blocked_queue.then_some("--blocked-queue"))
            .args(order.resp.map(|most| format!("--resp={most}")))
            .arg("--record")
            .arg(record.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        for name in OVERRIDING {
            command.env_remove(name);
        }
        // Its faults show in the results; warnings would only break the progress bar.
        if std::env::var_os("LAPSED_LOG").is_none() {
            command.env("LAPSED_LOG", "off");
        }
        command.envs(order.settings.iter().cloned());
        let mut child = command.spawn().context("start a daemon")?;
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, progress) = watch::channel(Progress::default());
        tokio::spawn(listen(stdout, sender));
        Ok(Self {
            child,
            stdin,
            record,
            tasks: order.tasks,
            progress,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its progress, at most a fifth of a second old.
    pub fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    /// Waits until it is ready and audited, and shows that.
    pub async fn await_audit(&mut self) -> anyhow::Result<()> {
        let spinner = spinner("waiting for the first audit of the daemon".to_owned());
        self.ready(false).await?;
        spinner.finish_and_clear();
        Ok(())
    }

    /// Waits until it is ready and audited; with `events_off` it never receives events.
    pub async fn ready(&mut self, events_off: bool) -> anyhow::Result<()> {
        if !events_off {
            self.listens().await?;
        }
        // Without Redis no audit ends; waiting longer is pointless.
        self.reached(AUDITED_WITHIN, |progress| progress.audited.is_some())
            .await?;
        Ok(())
    }

    /// Waits until the ledger answers and the subscription is up: then its audit begins.
    pub async fn listens(&mut self) -> anyhow::Result<()> {
        let ready = self.reached(READY_WITHIN, |progress| progress.ready.is_some());
        if !ready.await? {
            bail!(
                "the daemon was not ready within {} s; set LAPSED_LOG=info to see why",
                READY_WITHIN.as_secs()
            );
        }
        Ok(())
    }

    /// Waits until its RESP server is open, and returns the address.
    pub async fn resp(&mut self) -> anyhow::Result<SocketAddr> {
        self.reached(READY_WITHIN, |progress| progress.resp.is_some())
            .await?;
        let resp = self.progress().resp;
        resp.context("the daemon has opened no RESP server; set LAPSED_LOG=info to see why")
    }

    /// Waits until it serves HTTP, and returns the address.
    pub async fn http(&mut self) -> anyhow::Result<SocketAddr> {
        self.reached(READY_WITHIN, |progress| progress.http.is_some())
            .await?;
        let http = self.progress().http;
        http.context("the daemon does not serve HTTP; set LAPSED_LOG=info to see why")
    }

    /// Whether the condition holds in time; an error if the daemon ends first.
    async fn reached(
        &mut self,
        within: Duration,
        there: fn(&Progress) -> bool,
    ) -> anyhow::Result<bool> {
        let answer = timeout(within, self.progress.wait_for(there)).await;
        match answer.map(|answer| answer.is_ok()) {
            Ok(true) => Ok(true),
            Ok(false) => self.ended().await.map(|()| false),
            Err(_) => Ok(false),
        }
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        let status = self.child.wait().await.context("wait for a daemon")?;
        bail!("a daemon ended with {status}; set LAPSED_LOG=info to see why")
    }

    /// Fails if it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("look after a daemon")? {
            None => Ok(()),
            Some(status) => {
                bail!("a daemon ended with {status}; set LAPSED_LOG=info to see why")
            }
        }
    }

    /// Sends SIGKILL; returns when it is gone.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("kill a daemon")
    }

    /// Stops it gracefully and returns its record.
    pub async fn stop(mut self) -> anyhow::Result<Record> {
        self.stdin
            .write_all(b"stop\n")
            .await
            .context("stop a daemon")?;
        let status = timeout(STOPPED_WITHIN, self.child.wait())
            .await
            .context("a daemon did not stop")?
            .context("wait for a daemon")?;
        if !status.success() {
            bail!("a daemon ended with {status}; set LAPSED_LOG=info to see why");
        }
        Record::read(self.record.path(), self.tasks.count as usize)
    }
}

/// Reads the output of a daemon until it ends.
async fn listen(stdout: ChildStdout, sender: watch::Sender<Progress>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut words = line.split(' ');
        match words.next() {
            Some("ready") => sender.send_modify(|progress| progress.ready = Some(Instant::now())),
            Some("audited") => {
                sender.send_modify(|progress| progress.audited = Some(Instant::now()))
            }
            Some("resp") => {
                let address = words.next().and_then(|word| word.parse().ok());
                sender.send_modify(|progress| progress.resp = address);
            }
            Some("http") => {
                let address = words.next().and_then(|word| word.parse().ok());
                sender.send_modify(|progress| progress.http = address);
            }
            Some("progress") => {
                let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                let (started, running, backlog, events) = (number(), number(), number(), number());
                sender.send_modify(|progress| {
                    progress.started = started;
                    progress.running = running;
                    progress.backlog_started = backlog;
                    progress.events = events;
                });
            }
            _ => {}
        }
    }
}
