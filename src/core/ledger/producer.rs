//! The seam for producers: create, cancel, reschedule, and write the rows of series.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    CancelAnswer, CancelPage, Changed, Created, Decide, LedgerError, ListFilter, NewTask,
    RescheduleAnswer, RowSnapshot, See,
};
use crate::task::{Arming, TaskKey, UnixMs};

/// Creation of tasks. Called by `TaskClient`, and by
/// [`establish`](super::recurring::establish) for recurring tasks.
#[async_trait]
pub trait Producer: Send + Sync {
    /// Creates tasks. Returns the results in the order of `tasks`.
    ///
    /// The same key and due time again changes nothing. If a task of the key exists with another due time, the
    /// [`IfPending`](super::IfPending) of the new task decides. If one call names a key more than once, tasks that move are
    /// written first and tasks that refuse last.
    ///
    /// # If we crash right after
    /// The tasks exist. They run without being armed: the look-ahead and the sweep find them.
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError>;

    /// Reads a row with its recurrence. `None` if the key has no row.
    async fn read_row(&self, key: &TaskKey) -> Result<Option<RowSnapshot>, LedgerError>;

    /// Reads the rows of keys. Shows each to `see`, as [`read_row`](Self::read_row) returns it.
    async fn read_rows(&self, keys: &[TaskKey], see: Arc<dyn See>) -> Result<(), LedgerError>;

    /// Reads the rows of different keys, and changes them as `decide` says, in one transaction: nothing else changes them
    /// in between. Returns what was done, in the order of `keys`.
    ///
    /// # If we crash right after
    /// All changes are made. Tasks run without being armed, as after [`create`](Self::create).
    async fn change(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>, LedgerError>;

    /// Writes the row of a recurring task over `over`, the row as it was read, or a new row if that is `None`.
    ///
    /// Returns its arming, or `None` if the row has changed since. With the due time of the pending row, the arming stays
    /// the same.
    ///
    /// # If we crash right after
    /// As after [`create`](Self::create).
    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&RowSnapshot>,
    ) -> Result<Option<Arming>, LedgerError>;

    /// Marks the row of a series as wanted by a configuration
    /// ([`Recurrence::configured`](crate::task::Recurrence::configured)). Changes nothing else of it.
    ///
    /// Returns false if the recurrence is no longer the one in `seen`.
    async fn mark_configured(&self, seen: &RowSnapshot) -> Result<bool, LedgerError>;

    /// Moves a pending task to another due time. A recurring task continues after the occurrence that was moved.
    async fn reschedule(&self, key: &TaskKey, due: UnixMs)
    -> Result<RescheduleAnswer, LedgerError>;

    /// Cancels tasks. Returns the results in the order of `keys`.
    ///
    /// # If we crash right after
    /// The tasks are cancelled. A key that is still armed signals without effect.
    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError>;

    /// Cancels a page of the tasks that match, each as [`cancel`](Self::cancel) does. A dry run only reports them.
    ///
    /// The cursor of the filter is [`CancelPage::next`] of the previous page. The ledger chooses the length of a page. Tasks
    /// created after the first page may be left out.
    ///
    /// # If we crash right after
    /// The tasks of this page and the previous ones are cancelled.
    async fn cancel_page(
        &self,
        filter: &ListFilter,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError>;
}
