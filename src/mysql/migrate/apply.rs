//! Runs the steps of a migration, under a lock that keeps two migrations apart.

use sqlx::MySqlConnection;

use super::plan::{plan_with, require_database};
use super::session::{self, Ran};
use super::{Method, MigrateError, Options, Step, duplicates};
use lapsed_core::task::TableName;

/// Maximum number of times that a migration starts over because others changed the table.
const ROUNDS: usize = 10;

/// Progress of [`apply`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A step is about to run.
    Started(&'a Step),
    /// A step is done.
    Done {
        /// The step.
        step: &'a Step,
        /// The method that the server accepted.
        method: Method,
    },
    /// Others changed the table. The steps are planned again.
    StartedOver(&'a Step),
    /// A step was skipped: this user can neither see that table nor create it.
    Skipped(&'a Step),
}

/// Brings the table up to date, step by step, and reports each to `report`.
///
/// Needs a connection of its own, since it changes settings of the session. Two migrations at once are safe, as are programs
/// that keep writing.
///
/// # Errors
/// Completed steps stay and are correct. Running it again continues from there.
///
/// # Cancel safety
/// As after an error, but the connection must be closed.
pub async fn apply(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
    report: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<(), MigrateError> {
    require_database(conn).await?;
    session::prepare(conn, options).await?;
    session::lock(conn, table, options).await?;
    let applied = apply_locked(conn, table, options, report).await;
    let unlocked = session::unlock(conn, table).await;
    applied.and(unlocked)
}

async fn apply_locked(
    conn: &mut MySqlConnection,
    table: &TableName,
    options: &Options,
    report: &mut (dyn FnMut(Progress<'_>) + Send),
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
            report(Progress::Started(step));
            match run(conn, table, step, options).await? {
                Ran::NotSeen => {
                    report(Progress::Skipped(step));
                    skipped.push(step.clone());
                }
                Ran::Done(method) => report(Progress::Done { step, method }),
                Ran::Stale => {
                    report(Progress::StartedOver(step));
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
