//! Connections under a deadline.
//!
//! The driver has no statement timeout and is not cancel-safe in the middle of a statement. So a connection
//! that is dropped in the middle of a statement, or after an error of the connection itself, is closed;
//! only one that is known to be sound goes back into the [pool](super::pool).

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::mysql::{
    MySqlArguments, MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions, MySqlRow,
};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySql, MySqlPool};

use super::super::LedgerError;
use super::pool::{ACQUIRE_TIMEOUT, Lent, Pool};
use super::privileges;
use super::queries::{Queries, padded};
use crate::config::{ConfigError, ENCODE, LedgerConfig};

/// Handlers wait longer for a connection of theirs: there are more slots than connections, and a run that
/// waits costs only its slot, while one that fails costs an attempt. The run's own time limit stands above.
const HANDLER_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// A prepared statement with its values.
pub(super) type Statement<'q> = Query<'q, MySql, MySqlArguments>;

/// A statement from a text made of this module's constants.
pub(super) fn statement(sql: String) -> Statement<'static> {
    sqlx::query(AssertSqlSafe(sql))
}

/// A statement about rows, with their ids as its first values.
pub(super) fn about_rows(queries: &Queries, template: &str, ids: &[u64]) -> Statement<'static> {
    let ids = padded(ids);
    let about = statement(queries.with_rows(template, ids.len()));
    ids.into_iter().fold(about, |about, id| about.bind(id))
}

/// The pools: one for the engine's own statements, one for the transactions of handlers, whose
/// sessions are left as the server has them.
#[derive(Debug, Clone)]
pub(super) struct Pools {
    engine: Pool,
    handlers: MySqlPool,
    statement_timeout: Duration,
}

impl Pools {
    /// Connects when first used.
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
        let options = options
            .statement_cache_capacity(256)
            .pipes_as_concat(false)
            .log_statements(tracing::log::LevelFilter::Trace);
        // A transaction that was dropped half-way must not meet the next user of its connection.
        let handlers = MySqlPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(HANDLER_ACQUIRE_TIMEOUT)
            .idle_timeout(Duration::from_secs(300))
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

    /// A connection for the engine's statements.
    pub async fn acquire(&self) -> Result<Conn, LedgerError> {
        Ok(Conn {
            lent: Some(self.engine.acquire().await.map_err(error)?),
            sound: true,
            timeout: self.statement_timeout,
        })
    }

    /// The pool of handlers' transactions.
    pub fn handlers(&self) -> &MySqlPool {
        &self.handlers
    }

    /// Whether no connection is given out any more.
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Waits until every connection is closed.
    pub async fn close(&self) {
        tokio::join!(self.engine.close(), self.handlers.close());
    }
}

/// A connection that is closed, rather than given back, if anything about it is in doubt.
pub(super) struct Conn {
    lent: Option<Lent>,
    /// Not in the middle of a statement, and no connection error seen.
    sound: bool,
    timeout: Duration,
}

impl Conn {
    /// Rows matched (not changed: the driver asks for found rows).
    pub async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.execute(connection)).await;
        Ok(self.end(result)?.rows_affected())
    }

    /// Rows matched, and the number that the statement gave to `LAST_INSERT_ID`.
    pub async fn execute_telling(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<(u64, u64), sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.execute(connection)).await;
        let result = self.end(result)?;
        Ok((result.rows_affected(), result.last_insert_id()))
    }

    /// The id of the row that was inserted.
    pub async fn insert(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.execute(connection)).await;
        Ok(self.end(result)?.last_insert_id())
    }

    /// All rows.
    pub async fn fetch(&mut self, statement: Statement<'_>) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let (connection, timeout) = self.begin();
        let result = tokio::time::timeout(timeout, statement.fetch(connection).try_collect()).await;
        self.end(result)
    }

    /// The bare connection, for work that has its own deadline. Not given back afterwards.
    pub fn detach(mut self) -> sqlx::MySqlConnection {
        self.lent.take().expect("present until dropped").detach()
    }

    /// Which server it leads to, if that tells.
    pub fn server(&self) -> Option<&str> {
        self.lent.as_ref()?.server()
    }

    fn begin(&mut self) -> (&mut sqlx::MySqlConnection, Duration) {
        self.sound = false;
        let lent = self.lent.as_mut().expect("present until dropped");
        (lent.connection(), self.timeout)
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
        match self.lent.take() {
            Some(lent) if self.sound => lent.give_back(),
            Some(lent) => lent.close(),
            None => {}
        }
    }
}

const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const DUPLICATE_KEY: u16 = 1062;
/// MariaDB 11.6 and newer: the row changed since this statement's snapshot.
const RECORD_CHANGED: u16 = 1020;

/// Shutting down, read-only, too many connections, killed, cut short, no memory, a failed commit, a proxy without a
/// server, a conflict of group replication, TiDB without its storage: another connection or a little later it may work.
const PASSING: [u16; 45] = [
    1037, 1038, 1040, 1041, 1047, 1053, 1080, 1129, 1135, 1152, 1158, 1159, 1160, 1161, 1180, 1181,
    1203, 1205, 1226, 1290, 1317, 1412, 1615, 1637, 1792, 1836, 1927, 1969, 3024, 3100, 3101, 3170,
    4031, 8002, 8022, 8027, 8028, 9001, 9002, 9003, 9004, 9005, 9006, 9007, 9010,
];

/// About the values of a statement, or what a constraint or a trigger of the table says of them: null, too long, out of
/// range, not of the column's character set, not JSON, too large for a packet, against a foreign key or a check.
const ABOUT_DATA: [u16; 33] = [
    1048, 1153, 1216, 1217, 1263, 1264, 1265, 1267, 1270, 1271, 1292, 1300, 1301, 1366, 1367, 1406,
    1411, 1451, 1452, 1644, 1690, 3140, 3141, 3143, 3144, 3146, 3150, 3157, 3158, 3819, 3854, 3988,
    4025,
];

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error
        .as_database_error()?
        .try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// Whether another session's lock was in the way.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    matches!(
        number(error),
        Some(LOCK_WAIT_TIMEOUT | DEADLOCK | RECORD_CHANGED)
    )
}

/// Whether the statement was rolled back to resolve a conflict, and may simply be tried again.
pub(super) fn is_deadlock(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(DEADLOCK | RECORD_CHANGED))
}

/// Whether there is a row of this key already.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(DUPLICATE_KEY)
}

/// Whether the same statement may succeed later, or on another connection.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    match number(error) {
        Some(number) => PASSING.contains(&number) || number == DEADLOCK || number == RECORD_CHANGED,
        None => matches!(
            error,
            sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
        ),
    }
}

/// Whether the server refused the values of the statement.
pub(super) fn is_about_data(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| ABOUT_DATA.contains(&number))
}

/// Whether a password of MySQL's `caching_sha2_password` would have to go over a wire without TLS. The driver has a
/// feature that encrypts it all the same; every MySQL comes with TLS switched on, so that is left out.
fn wants_tls(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Configuration(error) if error.to_string().starts_with("RSA auth backend disabled"))
}

/// The driver's error as the seam's, with what to do about it.
pub(super) fn error(error: sqlx::Error) -> LedgerError {
    let hint = match number(&error) {
        Some(1045 | 1698) => "; check user and password in `ledger.url`",
        Some(1049) => "; create the database or mend `ledger.url`",
        Some(1146) => "; run `lapsed migrate`",
        Some(1054) => "; run `lapsed migrate`",
        Some(1290 | 1836) => "; the server is read-only",
        Some(1267 | 1270 | 1271 | 1366 | 3854 | 3988) => {
            "; where a key is not plain ASCII, run `lapsed migrate --utf8mb4`"
        }
        Some(1461) => "; raise the server's `max_prepared_stmt_count`",
        _ => "",
    };
    let lacks_right = matches!(number(&error), Some(1044 | 1142 | 1143));
    let message = match &error {
        sqlx::Error::Database(error) if lacks_right => {
            format!("{}{}", error.message(), privileges::remedy(error.message()))
        }
        sqlx::Error::Database(error) => format!("{}{hint}", error.message()),
        sqlx::Error::PoolTimedOut => format!(
            "no connection within {} s; is the server up, and `ledger.max_connections` large enough?",
            ACQUIRE_TIMEOUT.as_secs()
        ),
        error if wants_tls(error) => "the server takes this user's password over TLS alone; \
             is `ssl-mode=disabled` in `ledger.url`, or TLS switched off there?"
            .to_owned(),
        sqlx::Error::Io(error) => format!("{error}; is the server up, and `ledger.url` right?"),
        other => other.to_string(),
    };
    let (locked, transient) = (is_locked(&error), is_transient(&error));
    let about_data = is_about_data(&error);
    // What the driver says of TLS is about features of its own.
    let source = (!wants_tls(&error)).then(|| std::sync::Arc::new(error) as _);
    match () {
        () if locked => LedgerError::Locked { message, source },
        () if transient => LedgerError::Unavailable { message, source },
        () if about_data => LedgerError::Unfit { message, source },
        () => LedgerError::Refused { message, source },
    }
}
