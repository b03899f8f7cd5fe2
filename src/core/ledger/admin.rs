//! The seam for administration: find, list, count, run now, and dead letters.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    DetailedStats, DetailedStatsLimits, Forecast, ForecastRange, LedgerError, ListFilter, ListPage,
    Picked, Stats, TaskRecord,
};
use crate::task::{Arming, State, TaskKey};

/// A redriven task may start as of this long ago, unless its own due time is later.
///
/// Long enough that it counts as backlog, which leaves slots to tasks that fall due now. Short enough that each sweep finds
/// it at once, however many tasks have been overdue for longer.
pub const REDRIVEN_AGO: Duration = Duration::from_secs(6);

/// Result of [`Admin::run_now`] and [`Admin::redrive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunNowAnswer {
    /// The task is due. This is its arming.
    Due(Arming),
    /// The task is in this state, which does not allow it.
    Refused(State),
    /// There is no such task.
    Unknown,
}

/// Administration of tasks. Called by the command line, by `TaskClient` on behalf of operators, and by
/// the gauges of the engine.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Reads one task.
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError>;

    /// Reads the latest archived task of a key.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] also if there is no archive yet.
    async fn find_archived(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError>;

    /// Reads a page of the tasks that match. A search that takes too long ends the page early.
    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError>;

    /// Counts tasks by state, class and method. Reads no more rows than `limits` allow; the result says which counts are
    /// partial.
    async fn detailed_stats(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, LedgerError>;

    /// Counts pending and waiting tasks by the time at which they may start, from the index alone.
    async fn forecast(&self, range: ForecastRange) -> Result<Forecast, LedgerError>;

    /// Counts tasks by state. Exact as long as there are fewer rows than the default [`DetailedStatsLimits`].
    async fn stats(&self) -> Result<Stats, LedgerError> {
        Ok(self
            .detailed_stats(DetailedStatsLimits::default())
            .await?
            .counts)
    }

    /// Returns how long the oldest overdue task has waited, zero if none is overdue.
    ///
    /// Exact and cheap however many tasks are overdue. Ignores rows whose key is not a task key, since nothing can run
    /// them.
    async fn overdue_for(&self) -> Result<Duration, LedgerError>;

    /// Makes a pending or waiting task due now.
    ///
    /// A recurring task runs once more than scheduled. A task that is kept back by a
    /// [hold](super::Pauses::hold_overdue) is held no longer: its due time becomes now.
    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError>;

    /// Makes a dead task pending again.
    ///
    /// It keeps its due time, so its stable id, and its history. Its counters are cleared. Lateness, deadline and expiry
    /// count from now.
    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError>;

    /// Finds dead tasks that match, in the [order](ListFilter::order) of the filter. Ignores its `states`. Ends early as
    /// [`list`](Self::list) does.
    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError>;

    /// Redrives those of `rows` that are dead, as [`redrive`](Self::redrive) does. Returns how many.
    ///
    /// Skips rows that another session has locked.
    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError>;

    /// Returns the keys of those of `rows` that are dead. Leaves out keys outside the grammar.
    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError>;

    /// Deletes those of `rows` that are dead. Returns how many.
    ///
    /// Skips rows that another session has locked.
    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError>;
}
