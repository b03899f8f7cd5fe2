//! The table of another system.

use std::time::Duration;

use anyhow::{Context, bail};
use lapsed::config::{LedgerConfig, Secret};
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::task::TableName;
use sqlx::mysql::{MySqlArguments, MySqlQueryResult, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row as _};
use tokio::time::timeout;

/// Rows in a page.
pub const PAGE: usize = 1_000;

/// A table and a connection to its server.
pub struct Table {
    connection: MySqlConnection,
    name: TableName,
    /// Time limit of a statement.
    limit: Duration,
}

pub type Statement = Query<'static, MySql, MySqlArguments>;

impl Table {
    /// Connects as the ledger does, to this URL.
    pub async fn connect(url: &Secret, table: &str, ledger: &LedgerConfig) -> anyhow::Result<Self> {
        let name = TableName::new(table).context("read `--table`")?;
        let config = LedgerConfig {
            url: url.clone(),
            table: name.to_string(),
            ..ledger.clone()
        };
        let server = MysqlLedger::new(&config).context("read the URL of the source's database")?;
        let connection = server.connection().await;
        Ok(Self {
            connection: connection.context("connect to the source's database")?,
            name,
            limit: ledger.command_timeout,
        })
    }

    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// A statement; `{t}` is the table.
    pub fn statement(&self, sql: &str) -> Statement {
        sqlx::query(AssertSqlSafe(sql.replace("{t}", &self.name.to_string())))
    }

    pub async fn rows(&mut self, statement: Statement) -> anyhow::Result<Vec<MySqlRow>> {
        match timeout(self.limit, statement.fetch_all(&mut self.connection)).await {
            Ok(rows) => rows.with_context(|| format!("read `{}`", self.name)),
            Err(_) => bail!("the source's database did not answer within `ledger.command_timeout`"),
        }
    }

    pub async fn change(&mut self, statement: Statement) -> anyhow::Result<MySqlQueryResult> {
        match timeout(self.limit, statement.execute(&mut self.connection)).await {
            Ok(changed) => changed.with_context(|| format!("change `{}`", self.name)),
            Err(_) => bail!("the source's database did not answer within `ledger.command_timeout`"),
        }
    }

    /// Names of the columns.
    pub async fn columns(&mut self) -> anyhow::Result<Vec<String>> {
        let show = self.statement("SHOW COLUMNS FROM `{t}`");
        let rows = self.rows(show).await?;
        rows.iter()
            .map(|row| row.try_get(0).context("read the names of the columns"))
            .collect()
    }
}

/// `count` placeholders `?`, separated by commas.
pub fn places(count: usize) -> String {
    vec!["?"; count].join(", ")
}
