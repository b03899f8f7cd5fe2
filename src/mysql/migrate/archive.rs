//! The maintenance of the archive: partitions for months to come, and those that are too old.

use std::time::Duration;

use sqlx::MySqlConnection;

use super::partitions::Partitions;
use super::plan::database_now;
use super::session::{self, Ran};
use super::side_tables::ARCHIVE;
use super::{MigrateError, Options, Step};
use lapsed_core::ledger::ArchiveMaintenance;
use lapsed_core::task::TableName;

/// How long a change of the archive waits for those who read it. Rows cannot be archived meanwhile.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Creates the partitions of the archive for months to come, and drops those whose rows are all older than `keep`.
///
/// Needs a connection of its own, since it changes settings of the session. Does nothing while another session does it, or
/// migrates.
///
/// # Errors
/// [`MigrateError::Absent`] if there is no archive. Otherwise rows can be archived all the same.
pub async fn maintain(
    conn: &mut MySqlConnection,
    table: &TableName,
    keep: Option<Duration>,
) -> Result<ArchiveMaintenance, MigrateError> {
    let mut done = ArchiveMaintenance::default();
    if steps(conn, table, keep).await?.is_empty() {
        return Ok(done);
    }
    let options = Options::default().lock_wait(LOCK_WAIT);
    session::prepare(conn, &options).await?;
    match session::lock(conn, table, &options).await {
        Err(MigrateError::Busy { .. }) => return Ok(done),
        locked => locked?,
    }
    let changed = change(conn, table, keep, &options, &mut done).await;
    let unlocked = session::unlock(conn, table).await;
    changed.and(unlocked).map(|()| done)
}

async fn change(
    conn: &mut MySqlConnection,
    table: &TableName,
    keep: Option<Duration>,
    options: &Options,
    done: &mut ArchiveMaintenance,
) -> Result<(), MigrateError> {
    // Another session may have done it meanwhile.
    for step in steps(conn, table, keep).await? {
        match (session::run_ddl(conn, table, &step, options).await?, step) {
            (Ran::Done(_), Step::AddPartitions { months, .. }) => {
                done.created.extend(months.iter().map(ToString::to_string));
            }
            (Ran::Done(_), Step::DropPartitions(names)) => done.dropped.extend(names),
            _ => {}
        }
    }
    Ok(())
}

/// Returns what is to be done.
async fn steps(
    conn: &mut MySqlConnection,
    table: &TableName,
    keep: Option<Duration>,
) -> Result<Vec<Step>, MigrateError> {
    let partitions = Partitions::read(conn, table).await?;
    if partitions.is_empty() {
        return match (ARCHIVE.is_missing(conn, table).await?, keep) {
            (true, _) => Err(MigrateError::Absent {
                table: table.archive(),
            }),
            (false, None) => Ok(Vec::new()),
            (false, Some(_)) => Err(MigrateError::Incompatible {
                table: table.archive(),
                problem: "it has no partitions, which `retention.archive_keep` drops: rename it and run `lapsed migrate`"
                    .to_owned(),
            }),
        };
    }
    let now = database_now(conn).await?;
    Ok(partitions.steps(now, keep))
}
