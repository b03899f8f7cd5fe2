//! Ledger checks: connection, server, table, and their order.

pub(super) mod access;
pub(super) mod backlog;
mod capacity;
mod index;
mod nodes;
mod pauses;
mod server;
mod table;
mod trials;

use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlDatabaseError};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySql, MySqlConnection, Row};
use tracing::log::LevelFilter;

use super::clocks::Reading;
use super::runner::{Runner, Unresponsive, words};
use lapsed::Config;
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::{ENGINE_SESSION, MysqlLedger, queries};
use lapsed::task::{TableName, UnixMs};

use self::server::Variables;

const REACHABLE: &str = "ledger.reachable";
const SESSION: &str = "ledger.session";
const CLOCK: &str = "ledger.clock";

/// Session setting: do not wait for a table that is being altered.
const IMPATIENT: &str = "SET SESSION lock_wait_timeout = 1";

/// Session setting of MySQL 8, which caches table sizes for a day by default. Other servers do not have it.
const FRESH_SIZES: &str = "SET SESSION information_schema_stats_expiry = 0";

/// Checks the server and the table; returns a reading of the server's clock.
pub(super) async fn examine(config: &Config, runner: &mut Runner) -> Option<Reading> {
    // Validates the URL and the table name without connecting.
    let checked = MysqlLedger::new(&config.ledger).map_err(|error| words(&error));
    let options = checked.and_then(|ledger| {
        let options = config.ledger.url.expose().parse::<MySqlConnectOptions>();
        let options = options.map_err(|error| words(&error))?;
        Ok((ledger.table().clone(), options))
    });
    let (table, options) = match options {
        Ok(options) => options,
        Err(problem) => {
            let finding = Finding::error(REACHABLE, problem);
            runner.add([finding.remedy("correct `[ledger]` in the configuration")]);
            return None;
        }
    };
    let options = options
        .pipes_as_concat(false)
        .log_statements(LevelFilter::Trace);
    let connected = runner.bounded(options.connect()).await;
    let server = config.ledger.url.to_string();
    let mut conn = match connected {
        Some(Ok(conn)) => conn,
        Some(Err(error)) => {
            runner.add([unreachable(&server, &error)]);
            return None;
        }
        None => {
            let finding = Finding::error(REACHABLE, format!("{server}: no answer in time"));
            runner
                .add([finding
                    .remedy("check whether the server hangs, or a firewall drops its packets")]);
            return None;
        }
    };
    runner.add([Finding::ok(REACHABLE, server)]);
    let reading = examine_server(config, &options, &table, &mut conn, runner).await;
    // A failure to close does not matter.
    let _ = runner.bounded(conn.close()).await;
    reading.unwrap_or_default()
}

async fn examine_server(
    config: &Config,
    options: &MySqlConnectOptions,
    table: &TableName,
    conn: &mut MySqlConnection,
    runner: &mut Runner,
) -> Result<Option<Reading>, Unresponsive> {
    let settings = async {
        sqlx::raw_sql(ENGINE_SESSION).execute(&mut *conn).await?;
        sqlx::raw_sql(IMPATIENT).execute(&mut *conn).await
    };
    let session = runner.query(&[SESSION], settings).await?;
    if session.is_some() {
        let found = "READ COMMITTED, lock waits end after 1 s";
        runner.add([Finding::ok(SESSION, found)]);
    }
    let fresh = sqlx::raw_sql(FRESH_SIZES).execute(&mut *conn);
    // A server without this setting refuses the statement, which does not matter.
    if runner.bounded(fresh).await.is_none() {
        return Err(Unresponsive);
    }

    let reading = Reading::take(clock(conn));
    let reading = runner.query(&[CLOCK], reading).await?;

    let asked = runner.query(&server::CHECKS, Variables::read(conn)).await?;
    let limits = &config.ledger;
    if let Some(variables) = &asked {
        runner.add(server::judge(variables, limits.max_connections));
        nodes::examine(options, conn, variables, runner).await?;
    }
    table::examine(config, options, table, conn, asked.as_ref(), runner).await?;
    Ok(reading)
}

/// The server's time.
async fn clock(conn: &mut MySqlConnection) -> sqlx::Result<UnixMs> {
    let row = sqlx::query(queries::CLOCK).fetch_one(conn).await?;
    let micros: i64 = row.try_get(0)?;
    Ok(UnixMs(micros / 1000))
}

/// Error number, if the server returned the error.
fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// True if the error is a missing privilege.
fn is_about_rights(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1044 | 1142 | 1143 | 1227 | 1370))
}

fn statement(sql: String) -> Query<'static, MySql, MySqlArguments> {
    sqlx::query(AssertSqlSafe(sql))
}

fn unreachable(server: &str, error: &sqlx::Error) -> Finding {
    let remedy = match number(error) {
        Some(1698) => {
            "create a user with a password and put it into `ledger.url`, as the README shows: this one logs in over the unix socket only, as `root` does on Debian and Ubuntu"
        }
        Some(1045 | 1251 | 1862 | 3118 | 3955) => {
            "put the right user and password into `ledger.url`, as in `mysql://user:password@host:3306/database` (`@`, `#`, `/` and `%` of a password as %40, %23, %2F and %25), or into the file that `LAPSED__LEDGER__URL_FILE` names"
        }
        Some(1044) => {
            "grant this user rights on the database: `GRANT SELECT, INSERT, UPDATE ON <database>.* TO <user>`"
        }
        Some(1049) => "create the database, or correct its name in `ledger.url`",
        Some(1130) => "let this user connect from this host: `CREATE USER <user>@<host>`",
        Some(1040 | 1203 | 1226) => {
            "the server has no connection left: raise its `max_connections`, or find the clients that hold them"
        }
        _ => {
            "start the server, or correct `ledger.url`: host, port, and `?ssl-mode=...` if it insists on TLS"
        }
    };
    Finding::error(REACHABLE, format!("{server}: {}", words(error))).remedy(remedy)
}
