//! The session of a migration: its settings, its advisory lock, and how it runs DDL statements.

use std::time::Duration;

use sqlx::{AssertSqlSafe, MySqlConnection};
use tokio::time::Instant;

use super::error::{is_one_of, number};
use super::step::{Method, Step};
use super::{MigrateError, Options};
use lapsed_core::task::TableName;

/// A DDL statement that waits for a long transaction blocks all other statements on the table. So it waits for a short time,
/// and rests in between to let the others pass.
const SPELL: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_millis(500);

/// The name of a lock has at most 64 characters. Two cut names may be equal, and then wait for each other, which is
/// harmless; hashing them would take a function that newer servers no longer have.
const LOCK: &str =
    "SELECT CAST(GET_LOCK(LEFT(CONCAT('lapsed:', DATABASE(), '.', ?), 64), ?) AS SIGNED)";
const UNLOCK: &str = "DO RELEASE_LOCK(LEFT(CONCAT('lapsed:', DATABASE(), '.', ?), 64))";

/// Result of a DDL statement.
pub(super) enum Ran {
    Done(Method),
    /// Another session changed the table first.
    Stale,
    /// A side table may exist, but this user can neither see nor create it.
    NotSeen,
}

pub(super) async fn prepare(
    conn: &mut MySqlConnection,
    options: &Options,
) -> Result<(), MigrateError> {
    let spell = whole_seconds(options.lock_wait.min(SPELL));
    // NO_AUTO_VALUE_ON_ZERO: a row with id 0 keeps it when it is moved.
    let settings = format!(
        "SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO', \
         lock_wait_timeout = {spell}, innodb_lock_wait_timeout = {spell}; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    );
    sqlx::raw_sql(AssertSqlSafe(settings))
        .execute(conn)
        .await
        .map(drop)
        .map_err(MigrateError::sql("set up the session"))
}

/// Takes the lock that keeps two migrations of one table apart. Closing the connection releases it.
pub(super) async fn lock(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
) -> Result<(), MigrateError> {
    let seconds = whole_seconds(options.lock_wait);
    let taken: Option<i64> = sqlx::query_scalar(LOCK)
        .bind(table.as_str())
        .bind(seconds)
        .fetch_one(conn)
        .await
        .map_err(MigrateError::sql("lock the migration"))?;
    if taken == Some(1) {
        Ok(())
    } else {
        Err(MigrateError::Busy {
            table: table.clone(),
            seconds,
        })
    }
}

pub(super) async fn unlock(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<(), MigrateError> {
    sqlx::query(UNLOCK)
        .bind(table.as_str())
        .execute(conn)
        .await
        .map(drop)
        .map_err(MigrateError::sql("unlock the migration"))
}

/// Runs one DDL statement with the best method that the server accepts.
pub(super) async fn run_ddl(
    conn: &mut MySqlConnection,
    table: &TableName,
    step: &Step,
    options: &Options,
) -> Result<Ran, MigrateError> {
    let statement = step.statement(table);
    let mut methods = step.methods().iter().copied().peekable();
    while let Some(method) = methods.next() {
        let is_last = methods.peek().is_none();
        let sql = format!("{statement}{}", method.clause());
        match execute_patiently(conn, &sql, options).await {
            Ok(()) => return Ok(Ran::Done(method)),
            Err(error) if !is_last && is_one_of(&error, &number::ALGORITHM_REFUSED) => {}
            Err(error) if is_one_of(&error, &number::STALE) => return Ok(Ran::Stale),
            Err(error) if is_one_of(&error, &[number::LOCK_WAIT_TIMEOUT]) => {
                return Err(MigrateError::Blocked {
                    table: table.clone(),
                    statement,
                    seconds: whole_seconds(options.lock_wait),
                });
            }
            Err(error) if step.may_be_there() && is_one_of(&error, &number::DENIED) => {
                return Ok(Ran::NotSeen);
            }
            Err(error) if is_one_of(&error, &number::DENIED) => {
                return Err(MigrateError::Denied {
                    table: table.clone(),
                    step: step.to_string(),
                    privileges: step.privileges(),
                    source: error,
                });
            }
            Err(source) => {
                return Err(MigrateError::Sql {
                    action: format!("run `{sql}`"),
                    source,
                });
            }
        }
    }
    unreachable!("each step has a method, and the last one returns")
}

/// Repeats a statement that cannot get its metadata lock, until the time for that is over.
async fn execute_patiently(
    conn: &mut MySqlConnection,
    sql: &str,
    options: &Options,
) -> sqlx::Result<()> {
    let deadline = Instant::now() + options.lock_wait;
    loop {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut *conn)
            .await;
        match ran {
            Err(error)
                if is_one_of(&error, &[number::LOCK_WAIT_TIMEOUT])
                    && Instant::now() + REST < deadline =>
            {
                tokio::time::sleep(REST).await;
            }
            ran => return ran.map(drop),
        }
    }
}

fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().max(1)
}
