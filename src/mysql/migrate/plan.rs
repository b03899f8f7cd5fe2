//! Plans a migration: reads the table and lists the steps to bring it up to date.

use std::fmt;

use sqlx::MySqlConnection;

use super::introspect::TableSchema;
use super::partitions::Partitions;
use super::side_tables::{ARCHIVE, DOCUMENTS, PAUSES, RATES};
use super::{MigrateError, Options, Step, compare, duplicates, generated_index_bug};
use lapsed_core::task::{TableName, UnixMs};

/// The steps that bring a table up to date. `Display` gives the output of `lapsed migrate --dry-run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The table.
    pub table: TableName,
    /// The steps in order; empty if the table is up to date.
    pub steps: Vec<Step>,
    /// The server's estimate of the number of rows, often 10 % off or more.
    pub rows_estimate: u64,
}

impl Plan {
    /// True if the table is up to date.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            steps,
            rows_estimate,
        } = self;
        if steps.is_empty() {
            return writeln!(f, "table `{table}` is up to date");
        }
        writeln!(f, "table `{table}`, about {rows_estimate} rows")?;
        for (number, step) in (1..).zip(steps) {
            writeln!(f, "{number}. {step}")?;
            writeln!(f, "   {}", step.method())?;
            for line in step.statement(table).lines() {
                writeln!(f, "   {line}")?;
            }
        }
        Ok(())
    }
}

/// Checks that the table and its table of pauses have what programs need. Reads only `information_schema`, so it is cheap.
///
/// # Errors
/// [`MigrateError`] if the table is absent, outdated, or cannot be adopted.
pub async fn check(conn: &mut MySqlConnection, table: &TableName) -> Result<(), MigrateError> {
    let mut steps = required_steps(conn, table).await?;
    if PAUSES.is_missing(conn, table).await? {
        steps.push(Step::CreatePauses);
    }
    let columns = PAUSES.missing_columns(conn, table).await?;
    steps.extend(columns.into_iter().map(Step::AddToPauses));
    refuse_differences(table, &steps)
}

/// Checks as [`check`] does, without the table of pauses: producers need no privileges on that.
///
/// # Errors
/// As [`check`].
pub async fn check_tasks(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<(), MigrateError> {
    refuse_differences(table, &required_steps(conn, table).await?)
}

/// Checks that the table has what programs work without: the indexes for lists of recurring tasks and for sweeps by method.
///
/// # Errors
/// As [`check`].
pub async fn check_optional(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<(), MigrateError> {
    let mut steps = steps_of_tasks(conn, table).await?;
    steps.retain(Step::is_optional);
    refuse_differences(table, &steps)
}

/// Plans a migration with the default options.
///
/// # Errors
/// As [`plan_with`].
pub async fn plan(conn: &mut MySqlConnection, table: &TableName) -> Result<Plan, MigrateError> {
    plan_with(conn, table, &Options::default()).await
}

/// Compares the table with the definition. Changes nothing. Counts duplicated keys if there is no unique key.
///
/// # Errors
/// [`MigrateError`] if the table cannot be adopted, or if the server has a bug that makes the table unsafe.
pub async fn plan_with(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
) -> Result<Plan, MigrateError> {
    refuse_broken_server(conn).await?;
    require_database(conn).await?;
    let plan = |steps, rows_estimate| Plan {
        table: table.clone(),
        steps,
        rows_estimate,
    };
    let Some(found) = TableSchema::read(conn, table.as_str()).await? else {
        let mut steps = vec![Step::CreateTable];
        steps.extend(steps_of_side_tables(conn, table, options).await?);
        return Ok(plan(steps, 0));
    };
    // Refuses a table that cannot be adopted before it reads any of its rows.
    let mut steps = compare::steps(table, &found, options, 0, None)?;
    if compare::has_no_unique_key(&found) {
        let surplus = duplicates::count(conn, table, &found).await?;
        let there = TableSchema::read(conn, &table.duplicates()).await?;
        steps = compare::steps(table, &found, options, surplus, there.as_ref())?;
    }
    steps.extend(steps_of_side_tables(conn, table, options).await?);
    steps.extend(compare::add_identity(&found));
    Ok(plan(steps, found.rows_estimate))
}

async fn required_steps(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<Vec<Step>, MigrateError> {
    let mut steps = steps_of_tasks(conn, table).await?;
    steps.retain(|step| !step.is_optional());
    Ok(steps)
}

async fn steps_of_tasks(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<Vec<Step>, MigrateError> {
    require_database(conn).await?;
    let found = TableSchema::read(conn, table.as_str())
        .await?
        .ok_or_else(|| MigrateError::Absent {
            table: table.clone(),
        })?;
    compare::steps(table, &found, &Options::default(), 0, None)
}

async fn steps_of_side_tables(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
) -> Result<Vec<Step>, MigrateError> {
    let mut steps = Vec::new();
    for (side_table, step) in [
        (PAUSES, Step::CreatePauses),
        (RATES, Step::CreateRates),
        (DOCUMENTS, Step::CreateDocuments),
    ] {
        if side_table.is_missing(conn, table).await? {
            steps.push(step);
        }
    }
    let columns = PAUSES.missing_columns(conn, table).await?;
    steps.extend(columns.into_iter().map(Step::AddToPauses));
    if options.archive {
        let now = database_now(conn).await?;
        if ARCHIVE.is_missing(conn, table).await? {
            steps.push(Step::CreateArchive(now));
        } else {
            let columns = ARCHIVE.missing_columns(conn, table).await?;
            steps.extend(columns.into_iter().map(Step::AddToArchive));
            let partitions = Partitions::read(conn, table).await?;
            if !partitions.is_empty() {
                steps.extend(partitions.steps(now, None));
            }
        }
    }
    Ok(steps)
}

/// Reads the clock of the server.
pub(super) async fn database_now(conn: &mut MySqlConnection) -> Result<UnixMs, MigrateError> {
    sqlx::query_scalar("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
        .fetch_one(conn)
        .await
        .map(UnixMs)
        .map_err(MigrateError::sql("read the clock of the server"))
}

fn refuse_differences(table: &TableName, steps: &[Step]) -> Result<(), MigrateError> {
    match compare::first_difference(steps) {
        None => Ok(()),
        Some(difference) => Err(MigrateError::Outdated {
            table: table.clone(),
            difference,
        }),
    }
}

pub(super) async fn require_database(conn: &mut MySqlConnection) -> Result<(), MigrateError> {
    let database: Option<String> = sqlx::query_scalar("SELECT CAST(DATABASE() AS CHAR)")
        .fetch_one(conn)
        .await
        .map_err(MigrateError::sql("ask for the database"))?;
    database.map(drop).ok_or(MigrateError::NoDatabase)
}

async fn refuse_broken_server(conn: &mut MySqlConnection) -> Result<(), MigrateError> {
    let version: String = sqlx::query_scalar("SELECT CAST(VERSION() AS CHAR)")
        .fetch_one(conn)
        .await
        .map_err(MigrateError::sql("ask for the version of the server"))?;
    match generated_index_bug(&version) {
        None => Ok(()),
        Some(bug) => Err(MigrateError::ServerBug { version, bug }),
    }
}
