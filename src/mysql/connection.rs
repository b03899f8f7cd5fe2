//! Connections with a deadline for each statement.
//!
//! The driver has no statement timeout and is not cancel safe within a statement. So a connection that is dropped within a
//! statement, or after a connection error, is closed. Only one that is known to be sound goes back into the
//! [pool](super::pool).

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySql, MySqlPool};
use tracing::log::LevelFilter;

use super::error::error;
use super::error_numbers::is_transient;
use super::pool::{Pool, PooledConnection, is_writable};
use super::queries::{Queries, padded};
use super::sizes::PacketMax;
use lapsed_core::config::{ConfigError, ENCODE, LedgerConfig};
use lapsed_core::ledger::LedgerError;

/// How long a handler waits for a connection. Longer than the engine does: there are more slots than connections, and a run
/// that waits costs only its slot, while one that fails costs an attempt. The timeout of the run still applies.
const HANDLER_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// A prepared statement with its values.
pub(super) type Statement<'q> = Query<'q, MySql, MySqlArguments>;

/// Builds a statement from text made of the constants in `queries`.
pub(super) fn statement(sql: String) -> Statement<'static> {
    sqlx::query(AssertSqlSafe(sql))
}

/// Builds a statement that reads many entries of an index, and nothing else. It is prepared again for each execution.
///
/// MariaDB 10.11 reads the row of each entry, too, when it executes a prepared statement again, if the index has generated
/// columns and other statements have used the table since: some 2 µs an entry instead of 0.3.
pub(super) fn covered(sql: String) -> Statement<'static> {
    statement(sql).persistent(false)
}

/// Builds a statement about rows, with their ids as its first values.
pub(super) fn about_rows(queries: &Queries, template: &str, ids: &[u64]) -> Statement<'static> {
    let ids = padded(ids);
    let about = statement(queries.with_rows(template, ids.len()));
    ids.into_iter().fold(about, |about, id| about.bind(id))
}

/// Returns a parameter of the URL that sounds like TLS and that the driver ignores: the connection would not be as safe as
/// it looks.
fn ignored_tls_parameter(url: &str) -> Option<&str> {
    const READ: [&str; 8] = [
        "ssl-mode", "sslmode", "ssl-ca", "sslca", "ssl-cert", "sslcert", "ssl-key", "sslkey",
    ];
    let (_, query) = url.split_once('?')?;
    let mut names = query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or(pair));
    names.find(|name| {
        let lower = name.to_ascii_lowercase();
        (lower.contains("ssl") || lower.contains("tls")) && !READ.contains(name)
    })
}

/// The pools: one for the engine's statements, one for the transactions of handlers, whose sessions keep the server's
/// defaults.
#[derive(Debug, Clone)]
pub(super) struct Pools {
    engine: Pool,
    handlers: MySqlPool,
    statement_timeout: Duration,
}

impl Pools {
    /// Creates the pools. They connect when first used.
    pub fn lazy(config: &LedgerConfig) -> Result<Self, ConfigError> {
        let options: MySqlConnectOptions =
            config.url.expose().parse().map_err(|error: sqlx::Error| {
                ConfigError::one(
                    "ledger.url",
                    format!("expected mysql://user:password@host:port/database: {error}; {ENCODE}"),
                )
            })?;
        if options.get_database().is_none_or(str::is_empty) {
            return Err(ConfigError::one(
                "ledger.url",
                "names no database, expected mysql://user:password@host:port/database".into(),
            ));
        }
        if let Some(name) = ignored_tls_parameter(config.url.expose()) {
            return Err(ConfigError::one(
                "ledger.url",
                format!(
                    "`{name}` has no effect, expected `ssl-mode`, `ssl-ca`, `ssl-cert` or `ssl-key`"
                ),
            ));
        }
        let options = options
            .statement_cache_capacity(256)
            .pipes_as_concat(false)
            .log_statements(LevelFilter::Trace)
            // The driver would log the whole text, of a bulk insert 100 kB. The server has a log of slow statements.
            .log_slow_statements(LevelFilter::Off, Duration::ZERO);
        // A transaction that was dropped must not be open for the next user of its connection.
        let handlers = MySqlPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(HANDLER_ACQUIRE_TIMEOUT)
            .idle_timeout(Duration::from_secs(300))
            // Instead of the driver's ping.
            .test_before_acquire(false)
            .before_acquire(|connection, _| Box::pin(is_writable(connection)))
            .after_release(|connection, _| {
                Box::pin(async move {
                    let rollback = tokio::time::timeout(
                        Duration::from_secs(2),
                        connection.execute("ROLLBACK"),
                    )
                    .await;
                    Ok(matches!(rollback, Ok(Ok(_))))
                })
            })
            .connect_lazy_with(options.clone());
        Ok(Self {
            engine: Pool::new(options, config.max_connections, config.statement_timeout),
            handlers,
            statement_timeout: config.statement_timeout,
        })
    }

    /// Returns a connection for the engine's statements.
    pub async fn acquire(&self) -> Result<Conn, LedgerError> {
        Ok(Conn {
            pooled: Some(self.engine.acquire().await.map_err(error)?),
            sound: true,
            timeout: self.statement_timeout,
        })
    }

    /// Returns the pool for the transactions of handlers.
    pub fn handlers(&self) -> &MySqlPool {
        &self.handlers
    }

    /// True if the pools are closed.
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Waits until every connection is closed.
    pub async fn close(&self) {
        tokio::join!(self.engine.close(), self.handlers.close());
    }
}

/// A connection for the engine's statements. Closed rather than given back, unless it is known to be sound.
pub(super) struct Conn {
    pooled: Option<PooledConnection>,
    /// False within a statement and after a connection error.
    sound: bool,
    timeout: Duration,
}

impl Conn {
    /// Returns the number of rows matched (not changed: the driver asks for found rows).
    pub async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.execute(connection)).await;
        Ok(self.end(result)?.rows_affected())
    }

    /// Returns the number of rows matched, and the value of `LAST_INSERT_ID`.
    pub async fn execute_returning_id(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<(u64, u64), sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.execute(connection)).await;
        let result = self.end(result)?;
        Ok((result.rows_affected(), result.last_insert_id()))
    }

    /// Returns the id of the inserted row.
    pub async fn insert(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.execute(connection)).await;
        Ok(self.end(result)?.last_insert_id())
    }

    /// Returns all rows.
    pub async fn fetch(&mut self, statement: Statement<'_>) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.fetch(connection).try_collect()).await;
        self.end(result)
    }

    /// Runs a statement that cannot be prepared.
    pub async fn command(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, connection.execute(text)).await;
        self.end(result)?;
        Ok(())
    }

    /// Takes the bare connection out of the pool, for work with its own deadline.
    pub fn detach(mut self) -> sqlx::MySqlConnection {
        self.pooled.take().expect("present until dropped").detach()
    }

    /// The longest packet that the server takes.
    pub fn packet_max(&self) -> PacketMax {
        let pooled = self.pooled.as_ref().expect("present until dropped");
        pooled.packet_max()
    }

    /// Returns the name of the server, if the server tells it.
    pub fn server(&self) -> Option<&str> {
        self.pooled.as_ref()?.server()
    }

    fn begin(&mut self) -> (&mut sqlx::MySqlConnection, Duration) {
        self.sound = false;
        let pooled = self.pooled.as_mut().expect("present until dropped");
        (pooled.connection(), self.timeout)
    }

    fn end<T>(
        &mut self,
        result: Result<sqlx::Result<T>, tokio::time::error::Elapsed>,
    ) -> sqlx::Result<T> {
        let result = result.unwrap_or_else(|_| {
            let after = format!("no answer within {} ms", self.timeout.as_millis());
            Err(sqlx::Error::Io(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                after,
            )))
        });
        self.sound = match &result {
            Ok(_) => true,
            Err(error) => error.as_database_error().is_some() && !is_transient(error),
        };
        result
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        match self.pooled.take() {
            Some(pooled) if self.sound => pooled.give_back(),
            Some(pooled) => pooled.close(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_would_not_switch_tls_on_is_refused() {
        let url = |query: &str| format!("mysql://a:b@h/d{query}");
        for ignored in ["sslmodee", "useSSL", "tls", "SSL-Mode"] {
            let url = url(&format!("?charset=utf8mb4&{ignored}=required"));
            assert_eq!(ignored_tls_parameter(&url), Some(ignored));
        }
        for read in ["", "?serverVersion=8.0", "?ssl-mode=required&sslca=/ca.pem"] {
            assert_eq!(ignored_tls_parameter(&url(read)), None, "{read}");
        }
    }
}
