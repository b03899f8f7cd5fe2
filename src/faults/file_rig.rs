//! A daemon on an SQLite file. Programs and workers come through its RESP server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use lapsed::Config;
use lapsed::rusqlite::Connection;
use rand::RngExt as _;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::daemon::Daemon;
use crate::history::{Hits, Row, Window};
use crate::mysql_rig::{Carried, LEASE_MS, SETTINGS, left, routes, run_of};
use crate::plan::{Fault, Net, Plan};
use crate::proxy::{Mode, Protocol, Proxy};
use crate::target::{Receiver, Record, now};
use crate::workers::QUEUE;

/// How long an own session waits for the file.
const BUSY: Duration = Duration::from_secs(60);

/// The file, the daemon and what is between it and its clients.
pub struct FileRig {
    pub record: Record,
    pub daemon: Daemon,
    pub resp: Proxy,
    pub receiver: Receiver,
    started: mpsc::Receiver<usize>,
    hooks: Proxy,
    pub file: PathBuf,
    /// Removed last.
    pub home: TempDir,
}

impl FileRig {
    /// # Errors
    /// If the program does not start.
    pub async fn start(program: &Path) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let record = Record::new(home.path().join("runs"))?;
        let (receiver, started) = Receiver::start(record.clone()).await?;
        let hooks = Proxy::to(Protocol::Text, receiver.port()).await?;
        let file = home.path().join("lapsed.db");
        let config = format!(
            "{}http.listen = '127.0.0.1:0'\nresp.listen = '127.0.0.1:0'\n{SETTINGS}{}\
             [[routes]]\nmatch = '^Pull@'\npull = {{ queue = '{QUEUE}', visibility = '6s' }}\n",
            ledger(&file),
            routes(&record, hooks.port(), 0)
        );
        let daemon = Daemon::new(0, program, home.path(), &config)?;
        let mut command = tokio::process::Command::new(program);
        command.arg("--config").arg(daemon.config()).arg("migrate");
        let output = command.output().await.context("run `lapsed migrate`")?;
        anyhow::ensure!(output.status.success(), "`lapsed migrate` on a file failed");
        let resp = Proxy::to(Protocol::Text, 0).await?;
        let mut rig = Self {
            record,
            daemon,
            resp,
            receiver,
            started,
            hooks,
            file,
            home,
        };
        rig.start_daemon().await?;
        Ok(rig)
    }

    async fn start_daemon(&mut self) -> anyhow::Result<()> {
        const ADDRESS: &str = "resp.address=127.0.0.1:";
        self.daemon.start()?;
        let logged = self.daemon.until_logged(ADDRESS).await?;
        let digits = logged[ADDRESS.len()..]
            .split(|c: char| !c.is_ascii_digit())
            .next();
        self.resp.lead_to(
            digits
                .unwrap_or_default()
                .parse()
                .context("port of the RESP server")?,
        );
        self.daemon.until_logged("audited").await?;
        Ok(())
    }

    /// The configuration of producers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn producer(&self) -> anyhow::Result<(Config, PathBuf)> {
        let text = ledger(&self.file);
        let path = self.home.path().join("producer.toml");
        std::fs::write(&path, &text)?;
        Ok((Config::from_toml(&text)?, path))
    }

    /// All rows, by key.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn rows(&self) -> anyhow::Result<BTreeMap<String, Row>> {
        let connection = connect(&self.file)?;
        let query = "SELECT key, end_time, status, sts, COALESCE(reason, ''), result FROM tb_time_limit_task";
        let mut statement = connection.prepare(query)?;
        let rows = statement.query_map([], |row| {
            let reason: String = row.get(4)?;
            let result: Option<String> = row.get(5)?;
            let (status, sts) = (row.get(2)?, row.get(3)?);
            let left = left(status, sts);
            let result = run_of(result.map(String::into_bytes));
            Ok((
                row.get(0)?,
                Row {
                    due: row.get(1)?,
                    left,
                    is_poison: reason == "poison",
                    result,
                },
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Carries out a fault, and ends it.
    ///
    /// # Errors
    /// If the daemon does not come back.
    pub async fn carry_out(&mut self, fault: Fault, plan: &mut Plan) -> anyhow::Result<Carried> {
        let from = now();
        let lease = LEASE_MS.cast_unsigned();
        let hits = match fault {
            Fault::Way(_, net, _) => {
                match net {
                    Net::Cut => self.resp.cut(),
                    Net::Withheld(mode) => {
                        self.resp.set(mode);
                        sleep(plan.time(500, 5_000)).await;
                        self.resp.set(Mode::Pass);
                    }
                }
                Hits::Targets
            }
            Fault::RestartStorm => {
                for _ in 0..3 {
                    self.daemon.kill();
                    self.daemon.start()?;
                    sleep(plan.time(20, 500)).await;
                }
                self.daemon.kill();
                Hits::Daemon(None)
            }
            Fault::DaemonStopped => {
                let _ = timeout(Duration::from_secs(5), self.started.recv()).await;
                self.daemon.stop().await?;
                Hits::Daemon(None)
            }
            Fault::DaemonFrozen | Fault::DaemonFrozenBeyondItsLease => {
                let beyond = u64::from(fault == Fault::DaemonFrozenBeyondItsLease) * lease;
                self.daemon.freeze();
                sleep(plan.time(beyond + 300, beyond + lease / 2)).await;
                self.daemon.thaw();
                Hits::Daemon(None)
            }
            Fault::KilledMidRun => {
                while self.started.try_recv().is_ok() {}
                let _ = timeout(Duration::from_secs(5), self.started.recv()).await;
                self.daemon.kill();
                Hits::Daemon(None)
            }
            Fault::TargetsRefuse => {
                self.receiver.refuse(true);
                sleep(plan.time(500, 3_000)).await;
                self.receiver.refuse(false);
                Hits::Targets
            }
            Fault::TargetsCut => {
                self.hooks.set(Mode::NoAnswers);
                sleep(plan.time(100, 1_500)).await;
                self.hooks.cut();
                self.hooks.set(Mode::Pass);
                Hits::Targets
            }
            Fault::RowsLocked => {
                let connection = connect(&self.file)?;
                connection.execute_batch("BEGIN IMMEDIATE")?;
                sleep(plan.time(200, 3_000)).await;
                connection.execute_batch("ROLLBACK")?;
                Hits::Ledger(None)
            }
            _ => {
                self.daemon.kill();
                sleep(Duration::from_millis(plan.random.random_range(0..3_000))).await;
                Hits::Daemon(None)
            }
        };
        if self.daemon.pid().is_none() {
            self.start_daemon().await?;
        }
        let windows = vec![Window {
            name: fault.name(),
            from,
            to: now(),
            hits,
        }];
        Ok(Carried {
            windows,
            stories: Vec::new(),
            happened: true,
        })
    }
}

fn connect(file: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// The number of rows that have not ended.
///
/// # Errors
/// If the file cannot be read.
pub fn unfinished(file: &Path) -> anyhow::Result<i64> {
    let query = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND sts = 0";
    Ok(connect(file)?.query_row(query, [], |row| row.get(0))?)
}

fn ledger(file: &Path) -> String {
    format!("ledger.url = 'sqlite://{}'\n", file.display())
}
