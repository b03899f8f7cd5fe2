//! Starts and kills the daemon, as an init system would.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The daemon: this program with other arguments.
pub(crate) struct Daemon<'a> {
    dir: &'a Path,
    config: &'a Path,
    child: Child,
}

impl<'a> Daemon<'a> {
    /// Starts it and waits until it hears Redis.
    pub(crate) async fn start(dir: &'a Path, config: &'a Path) -> Result<Self> {
        Ok(Self {
            dir,
            config,
            child: spawn(dir, config).await?,
        })
    }

    pub(crate) async fn start_again(&mut self) -> Result<()> {
        self.child = spawn(self.dir, self.config).await?;
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// SIGKILL: no handler ends, no lease is released.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("kill the daemon")
    }

    /// Stops it gracefully by closing its standard input.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = timeout(Duration::from_secs(30), self.child.wait())
            .await
            .context("stop the daemon")??;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }
}

async fn spawn(dir: &Path, config: &Path) -> Result<Child> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("daemon.log"))
        .context("open the daemon's log")?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("worker")
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("start the daemon")?;
    let stdout = child
        .stdout
        .take()
        .context("the daemon's output is piped")?;
    let mut lines = BufReader::new(stdout).lines();
    let line = timeout(Duration::from_secs(20), lines.next_line())
        .await
        .context("the daemon was not ready within 20 s")??;
    ensure!(
        line.as_deref() == Some("ready"),
        "the daemon ended at its start"
    );
    Ok(child)
}
