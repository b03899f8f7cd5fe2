//! Daemons in processes of their own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::{Instant, sleep};

/// How long a daemon may take to stop or to say where it listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// `lapsed listen`. Killed on drop, and when this process ends.
pub struct Daemon {
    pub number: usize,
    program: PathBuf,
    config: PathBuf,
    pub log: PathBuf,
    child: Option<Child>,
    /// Where the log of the present process begins.
    log_from: u64,
}

impl Daemon {
    /// # Errors
    /// If the configuration cannot be written.
    pub fn new(number: usize, program: &Path, home: &Path, config: &str) -> anyhow::Result<Self> {
        let path = home.join(format!("daemon-{number}.toml"));
        std::fs::write(&path, config).context("write the configuration of a daemon")?;
        Ok(Self {
            number,
            program: program.to_owned(),
            config: path,
            log: home.join(format!("daemon-{number}.log")),
            child: None,
            log_from: 0,
        })
    }

    pub fn config(&self) -> &Path {
        &self.config
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it if it does not run.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(&mut self) -> anyhow::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let mut log = std::fs::OpenOptions::new();
        let log = log
            .create(true)
            .append(true)
            .open(&self.log)
            .context("open a log")?;
        self.log_from = log.metadata()?.len();
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program);
        command.arg("--config").arg(&self.config).arg("listen");
        command.env("LAPSED_LOG", "info").stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().context("start `setpriv` and the program")?);
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            // It may have ended by itself.
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGKILL; it is gone when this returns.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = (child.kill(), child.wait());
        }
    }

    /// SIGSTOP; none of its threads runs when this returns.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        if let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            let _ = waitid(
                WaitId::Pid(pid),
                WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT,
            );
        }
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM; it has ended when this returns.
    ///
    /// # Errors
    /// If it goes on.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM);
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                let _ = (child.kill(), child.wait());
                anyhow::bail!("daemon {} did not stop after SIGTERM", self.number);
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// False if it ended by itself.
    pub fn is_alive(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// What the present process has logged.
    pub fn logged(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let from = usize::try_from(self.log_from).unwrap_or(0).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    /// Waits until the present process has logged this, and returns the log from there.
    ///
    /// # Errors
    /// If it does not.
    pub async fn until_logged(&self, text: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let logged = self.logged();
            if let Some(at) = logged.find(text) {
                return Ok(logged[at..].to_owned());
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "daemon {}: `{text}` is not in its log: {logged}",
                self.number
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
