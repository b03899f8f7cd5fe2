//! Creates the ledger's table, or adopts one that an older program has filled.
//!
//! ```text
//! look: information_schema -> TableSchema        compare: TableSchema -> [Step]        act: one statement a step
//! ```
//!
//! - Nothing remembers how far a migration came: the table itself says so. Each step is complete in itself, so a
//!   migration that was interrupted, at whatever point, is finished by running it again.
//! - No row is lost: surplus rows of a duplicated key move to `<table>_duplicates`.
//! - Programs that know only the first six columns go on working while it runs and after it.
//! - What it does not know: how the ledger uses the table. Who wants another column adds it to
//!   `migrations/tb_time_limit_task.sql` and to the rules in `schema`.

mod duplicates;
mod error;
mod identity;
mod introspect;
mod schema;
mod session;
mod side_tables;
mod step;
mod version;

use std::fmt;
use std::time::Duration;

use sqlx::MySqlConnection;

use crate::task::TableName;

pub use error::MigrateError;
pub use identity::identity;
pub use schema::Index;
pub use step::{Method, Step};
pub use version::generated_index_bug;

use introspect::TableSchema;
use session::Ran;

/// How often a migration starts over because others changed the table meanwhile.
const ROUNDS: usize = 10;

/// How to migrate.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long one statement may wait for transactions that use the table, and the whole for another migration.
    pub lock_wait: Duration,
    /// Whether the column of keys becomes `utf8mb4`, so that keys may have any character. Otherwise it keeps its
    /// character set.
    pub utf8mb4: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lock_wait: Duration::from_secs(30),
            utf8mb4: false,
        }
    }
}

impl Options {
    /// With another patience.
    #[must_use]
    pub fn lock_wait(mut self, lock_wait: Duration) -> Self {
        self.lock_wait = lock_wait;
        self
    }

    /// With the column of keys in `utf8mb4`, or as it is.
    #[must_use]
    pub fn utf8mb4(mut self, utf8mb4: bool) -> Self {
        self.utf8mb4 = utf8mb4;
        self
    }
}

/// What it takes to bring a table up to date. Its `Display` is what `lapsed migrate --dry-run` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Of which table.
    pub table: TableName,
    /// In the order in which they must run; empty when the table is up to date.
    pub steps: Vec<Step>,
    /// The server's own guess; often 10 % off, sometimes more.
    pub rows_estimate: u64,
}

/// What [`apply`] tells of its progress.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A step is about to run.
    Begun(&'a Step),
    /// A step is done.
    Done {
        /// Which.
        step: &'a Step,
        /// The method that the server accepted.
        method: Method,
    },
    /// Others changed the table; the steps are planned anew.
    StartedOver(&'a Step),
    /// A step was left out: this user can neither see that table nor create it.
    Skipped(&'a Step),
}

/// Checks that the table has the wanted shape, and that of pauses is there. Reads `information_schema` alone, so it is
/// cheap.
///
/// # Errors
/// When the table is absent, outdated, or none that could be adopted.
pub async fn check(conn: &mut MySqlConnection, table: &TableName) -> Result<(), MigrateError> {
    let mut steps = steps_of_tasks(conn, table).await?;
    steps.extend(side_tables::PAUSES.step(conn, table).await?);
    refuse_lacks(table, &steps)
}

/// As [`check`], of the tasks' table alone: who only creates tasks needs no right on the other.
///
/// # Errors
/// As [`check`].
pub async fn check_tasks(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<(), MigrateError> {
    refuse_lacks(table, &steps_of_tasks(conn, table).await?)
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
    schema::steps(table, &found, &Options::default(), 0, None)
}

async fn steps_of_side_tables(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<Vec<Step>, MigrateError> {
    let mut steps = Vec::new();
    for side_table in [side_tables::PAUSES, side_tables::RATES] {
        steps.extend(side_table.step(conn, table).await?);
    }
    Ok(steps)
}

fn refuse_lacks(table: &TableName, steps: &[Step]) -> Result<(), MigrateError> {
    match schema::first_lack(steps) {
        None => Ok(()),
        Some(lack) => Err(MigrateError::Outdated {
            table: table.clone(),
            lack,
        }),
    }
}

/// As [`plan_with`], with the default options.
///
/// # Errors
/// As [`plan_with`].
pub async fn plan(conn: &mut MySqlConnection, table: &TableName) -> Result<Plan, MigrateError> {
    plan_with(conn, table, &Options::default()).await
}

/// Compares the table with the wanted shape. Changes nothing; counts duplicated keys if there is no unique key.
///
/// # Errors
/// When the table cannot be adopted, or the server cannot be trusted with it.
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
        steps.extend(steps_of_side_tables(conn, table).await?);
        return Ok(plan(steps, 0));
    };
    // Refuses what cannot be adopted before it reads a single row of it.
    let mut steps = schema::steps(table, &found, options, 0, None)?;
    if schema::lacks_unique_key(&found) {
        let surplus = duplicates::count(conn, table, &found).await?;
        let there = TableSchema::read(conn, &table.duplicates()).await?;
        steps = schema::steps(table, &found, options, surplus, there.as_ref())?;
    }
    steps.extend(steps_of_side_tables(conn, table).await?);
    steps.extend(identity::step(&found));
    Ok(plan(steps, found.rows_estimate))
}

/// Brings the table up to date, step by step, and tells of each.
///
/// Wants a connection of its own: session settings stay changed. Two migrations at once are safe, as are programs
/// that go on writing.
///
/// # Errors
/// Whatever is done by then stays done and is correct; running again goes on from there.
///
/// # Cancel safety
/// As after an error, but the connection must be closed.
pub async fn apply(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
    tell: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<(), MigrateError> {
    require_database(conn).await?;
    session::prepare(conn, options).await?;
    session::lock(conn, table, options).await?;
    let applied = apply_locked(conn, table, options, tell).await;
    let unlocked = session::unlock(conn, table).await;
    applied.and(unlocked)
}

async fn apply_locked(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
    tell: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<(), MigrateError> {
    let mut skipped: Vec<Step> = Vec::new();
    for _ in 0..ROUNDS {
        let plan = plan_with(conn, table, options).await?;
        let is_left = |step: &&Step| !skipped.contains(step);
        let steps: Vec<Step> = plan.steps.iter().filter(is_left).cloned().collect();
        if steps.is_empty() {
            return Ok(());
        }
        for step in &steps {
            tell(Progress::Begun(step));
            match run(conn, table, step, options).await? {
                Ran::NotSeen => {
                    tell(Progress::Skipped(step));
                    skipped.push(step.clone());
                }
                Ran::Done(method) => tell(Progress::Done { step, method }),
                Ran::Stale => {
                    tell(Progress::StartedOver(step));
                    break;
                }
            }
        }
    }
    Err(MigrateError::Restless {
        table: table.clone(),
        rounds: ROUNDS,
    })
}

async fn run(
    conn: &mut MySqlConnection,
    table: &TableName,
    step: &Step,
    options: &Options,
) -> Result<Ran, MigrateError> {
    if let Step::MoveDuplicates { .. } = step {
        duplicates::move_away(conn, table).await?;
        Ok(Ran::Done(Method::Plain))
    } else {
        session::run_ddl(conn, table, step, options).await
    }
}

async fn require_database(conn: &mut MySqlConnection) -> Result<(), MigrateError> {
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

impl Plan {
    /// Whether the table is up to date.
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
