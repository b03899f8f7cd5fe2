//! The seam for retention: deletes finished tasks.

use std::time::Duration;

use async_trait::async_trait;

use super::{DuePlace, LedgerError};
use crate::task::{State, TaskKey, UnixMs};

/// A batch of finished tasks of one state to delete, by due time.
///
/// The age of a task counts from its due time or from when it finished, whichever is later. A task that was cancelled
/// before its due time stays until then: a key that could not be deleted would otherwise create it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prune {
    /// Done, dead or cancelled. No other state is ever pruned.
    pub state: State,
    /// Deletes tasks of at least this age.
    pub age: Option<Duration>,
    /// Deletes this row and those before it in the order of pruning, whatever their age; but see
    /// [`AGE_MIN`](Self::AGE_MIN). [`Retention::surplus`] finds it.
    pub surplus: Option<PruneCursor>,
    /// Where the previous batch ended.
    pub after: Option<PruneCursor>,
    /// Maximum number of rows to examine.
    pub limit: u32,
    /// Moves the rows to the archive instead of deleting them.
    pub archive: bool,
    /// Only counts.
    pub dry_run: bool,
}

impl Prune {
    /// Minimum age of a task that is deleted as surplus: late signals may still arrive.
    pub const AGE_MIN: Duration = Duration::from_secs(60);
}

/// A place in the order of pruning: tasks by due time, then tasks that a program has deleted by due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PruneCursor {
    /// Whether a program has deleted the row.
    pub deleted: bool,
    /// The due time of the row.
    pub due_at: UnixMs,
    /// The id of the row.
    pub row: u64,
}

impl PruneCursor {
    /// Before all rows.
    pub const START: Self = Self {
        deleted: false,
        due_at: UnixMs(0),
        row: 0,
    };
}

/// Result of [`Retention::prune`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Number of rows deleted or archived; in a dry run, of rows that would be.
    pub rows: u64,
    /// In a dry run, the rows that would be deleted, with their keys; `None` for a key outside the grammar.
    pub found: Vec<(u64, Option<TaskKey>)>,
    /// `after` of the next batch; `None` at the end.
    pub next: Option<PruneCursor>,
}

/// Result of [`Retention::maintain_archive`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArchiveMaintenance {
    /// Number of archived rows deleted one by one.
    pub rows: u64,
    /// Names of the partitions that were created for months to come.
    pub created: Vec<String>,
    /// Names of the partitions that were dropped with their rows.
    pub dropped: Vec<String>,
    /// True if more archived rows are too old.
    pub is_behind: bool,
}

/// Deletion of finished tasks. Called by the retention of the engine, and by `TaskClient` when an
/// operator prunes.
#[async_trait]
pub trait Retention: Send + Sync {
    /// Deletes or archives a batch of finished rows in one short transaction.
    ///
    /// # If we crash right after
    /// The rows are gone, or in the archive alone. The next pass takes the others.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if rows are to be archived and there is no archive: then none is deleted.
    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError>;

    /// Deletes or archives those of `rows`, found by a dry run of `prune`, that it would still take. Returns how many.
    ///
    /// Each row is in exactly one table at any time, for whoever reads both in one transaction.
    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError>;

    /// Ends the tasks of a page that were cancelled during a run whose lease has run out since: no run is left whose end
    /// would do it. Returns how many it ended, and `after` of the next page, `None` at the end.
    ///
    /// A page covers a fixed number of rows that are deleted and not finished.
    ///
    /// # If we crash right after
    /// They are cancelled, as before, and may be pruned.
    async fn end_cancelled(
        &self,
        after: Option<DuePlace>,
    ) -> Result<(u64, Option<DuePlace>), LedgerError>;

    /// Returns the last row, in the order of pruning, behind which there are `keep` finished tasks of this state; `None`
    /// if there are no more than `keep`.
    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError>;

    /// Deletes a batch of the archived rows that are older than `keep`, and prepares the archive for months to come.
    ///
    /// A ledger whose archive has a partition for each month drops a partition once all of its rows are older.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] says what is in the way: there is no archive, or a privilege is missing. Rows can be archived
    /// all the same if there is an archive.
    async fn maintain_archive(
        &self,
        keep: Option<Duration>,
    ) -> Result<ArchiveMaintenance, LedgerError>;
}
