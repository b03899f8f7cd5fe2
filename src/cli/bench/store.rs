//! The database of a benchmark: a table on a server, or a private file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use lapsed::Config;
use lapsed::config::{Secret, TimerKind};
use lapsed::ledger::migrate;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::rusqlite::{Connection, Params, Row};
use sqlx::{AssertSqlSafe, MySqlConnection};
use tempfile::TempDir;

/// How long a statement waits for the daemon.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Statements that a ledger does not have.
pub enum Store {
    Server {
        ledger: Box<MysqlLedger>,
        table: String,
    },
    File {
        path: PathBuf,
        table: String,
        _directory: TempDir,
    },
}

impl Store {
    /// Creates the configured table on its server.
    pub async fn on_server(config: &Config) -> anyhow::Result<Self> {
        let ledger = MysqlLedger::new(&config.ledger)?;
        ledger.migrate().await.context("make the table")?;
        Ok(Self::Server {
            ledger: Box::new(ledger),
            table: config.ledger.table.clone(),
        })
    }

    /// Creates the archive of finished tasks, on a server.
    pub async fn create_archive(&self) -> anyhow::Result<()> {
        let Self::Server { ledger, .. } = self else {
            return Ok(());
        };
        let options = migrate::Options::default().archive(true);
        let made = ledger.migrate_with(&options).await;
        made.context("make the archive")
    }

    /// Creates a file in a new directory below `parent`, and configures it.
    pub async fn in_file(config: &mut Config, parent: Option<&Path>) -> anyhow::Result<Self> {
        let directory = match parent {
            Some(parent) => tempfile::tempdir_in(parent),
            None => tempfile::tempdir(),
        };
        let directory = directory.context("make a directory for the file")?;
        let path = directory.path().join("bench.db");
        config.ledger.url = Secret::from(format!("sqlite://{}", path.display()));
        config.timer = TimerKind::LedgerPoll;
        let ledger = SqliteLedger::new(&config.ledger)?;
        ledger.migrate(false).await.context("make the table")?;
        Ok(Self::File {
            path,
            table: config.ledger.table.clone(),
            _directory: directory,
        })
    }

    /// A connection to the server; `None` without one.
    pub async fn sql(&self) -> anyhow::Result<Option<MySqlConnection>> {
        match self {
            Self::Server { ledger, .. } => {
                let connection = ledger.connection().await;
                Ok(Some(
                    connection.context("connect to the ledger's database")?,
                ))
            }
            Self::File { .. } => Ok(None),
        }
    }

    /// Number of done rows in this range, and when the last of them was settled, in milliseconds since 1970: by the
    /// database's clock, the start of the statement.
    pub async fn settled(&self, rows: (u64, u64)) -> anyhow::Result<(u64, u64)> {
        let (done, last_ms): (i64, i64) = match self {
            Self::Server { table, .. } => {
                let text = format!(
                    "SELECT COUNT(*), CAST(COALESCE(MAX(finished_at), 0) * 1000 AS SIGNED) FROM `{table}` WHERE id BETWEEN ? AND ? AND status = 1"
                );
                let found = sqlx::query_as(AssertSqlSafe(text))
                    .bind(rows.0)
                    .bind(rows.1);
                found.fetch_one(&mut self.server().await?).await?
            }
            Self::File { table, .. } => {
                let text = format!(
                    "SELECT COUNT(*), COALESCE(MAX(finished_at), 0) FROM \"{table}\" WHERE id BETWEEN ?1 AND ?2 AND status = 1"
                );
                self.ask(&text, signed(rows), |row| Ok((row.get(0)?, row.get(1)?)))?
            }
        };
        Ok((
            u64::try_from(done).unwrap_or(0),
            u64::try_from(last_ms).unwrap_or(0),
        ))
    }

    /// Number of leased rows in this range.
    pub async fn leased(&self, rows: (u64, u64)) -> anyhow::Result<u64> {
        self.count(rows, "status = 0 AND lease_until > 0").await
    }

    /// Number of dead rows in this range.
    pub async fn dead(&self, rows: (u64, u64)) -> anyhow::Result<u64> {
        self.count(rows, "status = 2").await
    }

    async fn count(&self, rows: (u64, u64), which: &'static str) -> anyhow::Result<u64> {
        let count: i64 = match self {
            Self::Server { table, .. } => {
                let text =
                    format!("SELECT COUNT(*) FROM `{table}` WHERE id BETWEEN ? AND ? AND {which}");
                let found = sqlx::query_scalar(AssertSqlSafe(text))
                    .bind(rows.0)
                    .bind(rows.1);
                found.fetch_one(&mut self.server().await?).await?
            }
            Self::File { table, .. } => {
                let text = format!(
                    "SELECT COUNT(*) FROM \"{table}\" WHERE id BETWEEN ? AND ? AND {which}"
                );
                self.ask(&text, signed(rows), |row| row.get(0))?
            }
        };
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Deletes the rows in this range that are pending.
    pub async fn forget_pending(&self, rows: (u64, u64)) -> anyhow::Result<()> {
        let pending = "BETWEEN ? AND ? AND status = 0";
        match self {
            Self::Server { table, .. } => {
                let text = format!("DELETE FROM `{table}` WHERE id {pending}");
                let delete = sqlx::query(AssertSqlSafe(text)).bind(rows.0).bind(rows.1);
                delete.execute(&mut self.server().await?).await?;
            }
            Self::File { table, .. } => {
                let text = format!("DELETE FROM \"{table}\" WHERE id {pending}");
                self.file()?.execute(&text, signed(rows))?;
            }
        }
        Ok(())
    }

    /// Deletes every row.
    pub async fn empty(&self) -> anyhow::Result<()> {
        match self {
            Self::Server { table, .. } => {
                let text = format!("TRUNCATE TABLE `{table}`");
                sqlx::query(AssertSqlSafe(text))
                    .execute(&mut self.server().await?)
                    .await?;
            }
            Self::File { table, .. } => {
                self.file()?
                    .execute(&format!("DELETE FROM \"{table}\""), [])?;
            }
        }
        Ok(())
    }

    /// Drops the tables on a server. A file is deleted with its directory.
    pub async fn drop_tables(&self) -> anyhow::Result<()> {
        let Self::Server { ledger, table } = self else {
            return Ok(());
        };
        let text = format!(
            "DROP TABLE IF EXISTS `{table}`, `{table}_pauses`, `{table}_rates`, `{table}_documents`, `{table}_archive`"
        );
        sqlx::query(AssertSqlSafe(text))
            .execute(&mut self.server().await?)
            .await
            .with_context(|| {
                format!("drop the table `{table}` and those beside it of this measurement")
            })?;
        ledger.close().await;
        Ok(())
    }

    async fn server(&self) -> anyhow::Result<MySqlConnection> {
        self.sql().await?.context("the ledger is on no server")
    }

    fn file(&self) -> anyhow::Result<Connection> {
        let Self::File { path, .. } = self else {
            anyhow::bail!("the ledger is in no file");
        };
        let connection = Connection::open(path).context("open the private file")?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    fn ask<T>(
        &self,
        text: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> lapsed::rusqlite::Result<T>,
    ) -> anyhow::Result<T> {
        Ok(self.file()?.query_row(text, values, read)?)
    }
}

fn signed(rows: (u64, u64)) -> [i64; 2] {
    [rows.0, rows.1].map(|row| i64::try_from(row).unwrap_or(i64::MAX))
}
