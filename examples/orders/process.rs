//! Starts and kills the worker, as an init system would.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The worker: this very program with other arguments; killed on drop.
pub(crate) struct Worker(Child);

impl Worker {
    /// Starts it and waits until it hears Redis.
    pub(crate) async fn start(config: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start the worker")?;
        let output = child.stdout.take().context("its output is piped")?;
        let mut lines = BufReader::new(output).lines();
        let line = timeout(Duration::from_secs(20), lines.next_line())
            .await
            .context("the worker was not ready within 20 s")??;
        ensure!(
            line.as_deref() == Some("ready"),
            "the worker ended at its start"
        );
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id().unwrap_or(0)
    }

    /// SIGKILL: no handler ends, no lease is given back.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.0.kill().await.context("kill the worker")
    }

    /// Closes its standard input, which it takes as the order to stop gracefully.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let status = timeout(Duration::from_secs(30), self.0.wait())
            .await
            .context("stop the worker")??;
        ensure!(status.success(), "the worker ended with {status}");
        Ok(())
    }
}
