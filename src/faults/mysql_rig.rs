//! Several daemons on MariaDB and Redis, each with ways of its own to both.

mod faults;

pub use self::faults::Carried;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use lapsed::Config;
use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Executor as _, MySqlPool, Row as _};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::daemon::Daemon;
use crate::history::{Left, Ms, Row};
use crate::proxy::{Protocol, Proxy};
use crate::target::{Receiver, Record};

/// Short, so that dead daemons are noticed often.
pub const LEASE_MS: Ms = 6_000;

/// The ways to the servers.
pub struct Ways {
    pub ledger: Proxy,
    pub redis: Proxy,
}

impl Ways {
    async fn to(maria: &PrivateMaria, redis: &PrivateRedis) -> std::io::Result<Self> {
        let ledger = Proxy::to(Protocol::Mysql, maria.port()).await?;
        let redis = Proxy::to(Protocol::Text, redis.port()).await?;
        Ok(Self { ledger, redis })
    }
}

/// The servers, the daemons and what is between them.
pub struct MysqlRig {
    pub record: Record,
    pub daemons: Vec<Daemon>,
    /// Of each daemon.
    pub ways: Vec<Ways>,
    /// Of the producers.
    pub producers: Ways,
    pub receiver: Receiver,
    started: mpsc::Receiver<usize>,
    /// Between the daemons and the web server.
    hooks: Proxy,
    /// Past all proxies.
    pub sql: MySqlPool,
    maria: PrivateMaria,
    /// So many daemons at the beginning are neither killed nor frozen.
    pub spared: usize,
    /// The first is in use. The other one is empty.
    redis: [PrivateRedis; 2],
    /// Removed last.
    pub home: TempDir,
}

impl MysqlRig {
    /// Starts servers and daemons.
    ///
    /// # Errors
    /// If a program is missing or does not start.
    pub async fn start(program: &Path, daemons: usize) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        // Commits outlive the server, not the machine.
        let maria = PrivateMaria::options().durable(true).buffer_pool("256M");
        let maria = maria
            .set("innodb-flush-log-at-trx-commit", "2")
            .set("max-connections", "500");
        let maria = maria.start().await?;
        let redis = [PrivateRedis::start().await?, PrivateRedis::start().await?];
        let url = maria.create_database("lapsed").await?;
        let sql = MySqlPoolOptions::new()
            .acquire_timeout(Duration::from_secs(60))
            .connect(&url)
            .await?;
        // Unlike root, it cannot write to a server that is read only.
        sql.execute("CREATE USER lapsed@'%'").await?;
        sql.execute("GRANT ALL ON lapsed.* TO lapsed@'%'").await?;
        let record = Record::new(home.path().join("runs"))?;
        let (receiver, started) = Receiver::start(record.clone()).await?;
        let hooks = Proxy::to(Protocol::Text, receiver.port()).await?;
        let producers = Ways::to(&maria, &redis[0]).await?;
        let mut rig = Self {
            record,
            daemons: Vec::new(),
            ways: Vec::new(),
            producers,
            receiver,
            started,
            hooks,
            sql,
            maria,
            redis,
            spared: 0,
            home,
        };
        for number in 0..daemons {
            let ways = Ways::to(&rig.maria, &rig.redis[0]).await?;
            let config = rig.config(&ways, number);
            rig.ways.push(ways);
            rig.daemons
                .push(Daemon::new(number, program, rig.home.path(), &config)?);
        }
        rig.migrate(program).await?;
        for daemon in &mut rig.daemons {
            daemon.start()?;
        }
        for daemon in &rig.daemons {
            daemon.until_logged("subscribed to expired events").await?;
        }
        Ok(rig)
    }

    async fn migrate(&self, program: &Path) -> anyhow::Result<()> {
        let mut command = tokio::process::Command::new(program);
        command
            .arg("--config")
            .arg(self.daemons[0].config())
            .arg("migrate");
        let output = command.output().await.context("run `lapsed migrate`")?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "`lapsed migrate`: {errors}");
        Ok(())
    }

    fn config(&self, ways: &Ways, number: usize) -> String {
        let servers = Self::servers(ways);
        let routes = routes(&self.record, self.hooks.port(), number);
        format!("{servers}{}{routes}", SETTINGS)
    }

    fn servers(ways: &Ways) -> String {
        let (ledger, redis) = (ways.ledger.port(), ways.redis.port());
        format!(
            "ledger.url = 'mysql://lapsed@127.0.0.1:{ledger}/lapsed?ssl-mode=disabled'\n\
             redis.url = 'redis://127.0.0.1:{redis}/0'\nhttp.listen = '127.0.0.1:0'\n"
        )
    }

    /// The configuration of producers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn producer(&self) -> anyhow::Result<(Config, std::path::PathBuf)> {
        let text = Self::servers(&self.producers);
        let path = self.home.path().join("producer.toml");
        std::fs::write(&path, &text)?;
        Ok((Config::from_toml(&text)?, path))
    }

    /// All rows, by key.
    ///
    /// # Errors
    /// If the ledger does not answer.
    pub async fn rows(&self) -> anyhow::Result<BTreeMap<String, Row>> {
        let query = "SELECT `key`, CAST(end_time * 1000 AS SIGNED) AS due, CAST(status AS SIGNED) AS status, \
                     CAST(sts AS SIGNED) AS sts, COALESCE(reason, '') AS reason, result FROM tb_time_limit_task";
        let rows = sqlx::query(query).fetch_all(&self.sql).await?;
        let read = |row: &sqlx::mysql::MySqlRow| -> Result<(String, Row), sqlx::Error> {
            let key = String::from_utf8_lossy(row.try_get("key")?).into_owned();
            let result: Option<Vec<u8>> = row.try_get_unchecked("result")?;
            let reason: String = row.try_get_unchecked("reason")?;
            let (status, sts): (i64, i64) = (row.try_get("status")?, row.try_get("sts")?);
            let row = Row {
                due: row.try_get("due")?,
                left: left(status, sts),
                is_poison: reason == "poison",
                result: run_of(result),
            };
            Ok((key, row))
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

/// The number of rows that have not ended.
///
/// # Errors
/// If the ledger does not answer.
pub async fn unfinished(sql: &MySqlPool) -> anyhow::Result<i64> {
    let query = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND sts = 0";
    Ok(sqlx::query_scalar(query).fetch_one(sql).await?)
}

/// Settings of each daemon.
pub const SETTINGS: &str = "engine = { lease = '6s', timeout = '60s', drain_timeout = '2s' }\n\
    retry = { backoff = 'fixed', delay = '300ms', max_attempts = 10000, jitter = 0.0 }\n";

/// The routes of daemon `number`, whose web server is behind this port.
pub fn routes(record: &Record, hooks: u16, number: usize) -> String {
    let file = record.path().display();
    format!(
        "[[routes]]\nmatch = '^Hook@'\nkeep_result = true\ntimeout = '20s'\n\
         webhook = {{ url = 'http://127.0.0.1:{hooks}/{number}', allow = ['127.0.0.1'] }}\n\
         [[routes]]\nmatch = '^Prog@'\n\
         exec = ['sh', '-c', 'echo \"run 0 {number} $2 $3 $(date +%s%3N) done\" >> \"$1\"', 'sh', '{file}', '{{key}}', '{{id}}']\n"
    )
}

/// What the columns of a row say.
pub fn left(status: i64, sts: i64) -> Left {
    match (status, sts) {
        (0, 0) => Left::Pending,
        (1, _) => Left::Done,
        (2, _) => Left::Dead,
        _ => Left::Cancelled,
    }
}

/// The run in a result.
pub fn run_of(result: Option<Vec<u8>>) -> Option<u64> {
    let result: serde_json::Value = serde_json::from_slice(&result?).ok()?;
    result["run"].as_u64()
}
