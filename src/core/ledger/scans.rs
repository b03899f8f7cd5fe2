//! The seam for finding tasks by due time.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    DuePage, DuePlace, DueScan, Known, LeasePage, LedgerError, MethodPages, MethodScan, MethodTag,
    NearScan, Upcoming,
};
use crate::task::{KeyBuckets, Paused};

/// Scans of pending tasks. Called by the background tasks of the engine: sweep, look-ahead, arming horizon, audit and
/// recovery.
#[async_trait]
pub trait Scans: Send + Sync {
    /// Reads a page of pending tasks by due time.
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError>;

    /// Reads a page as [`scan`](Self::scan) does, of the keys in the buckets `among`, without the rows for which `known`
    /// returns true.
    ///
    /// Of a known row, only its index entry is read. The page ends after `limit` entries of these buckets; known and
    /// leased rows count.
    async fn scan_new(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError>;

    /// Reads tasks that fall due about now and are not leased, in the keys of the buckets `among`, without the rows for
    /// which `known` returns true. If there are more entries than `scan.limit`, those with the latest due times are read.
    ///
    /// Of a known row, only its index entry is read. `known` is called once for each entry.
    async fn scan_near(
        &self,
        scan: NearScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<Vec<Upcoming>, LedgerError>;

    /// Returns a number that changes when a task may have become due without a signal to the timer of this process:
    /// when another connection to the ledger has committed. It may also change without a cause. `None`: the ledger cannot
    /// tell.
    ///
    /// Costs less than a scan.
    async fn unsignalled_changes(&self) -> Result<Option<u64>, LedgerError> {
        Ok(None)
    }

    /// Reads a page of overdue tasks as [`scan`](Self::scan) does, without those that `paused` keeps from starting.
    ///
    /// Reads a bounded number of rows, however many are paused: the page may hold fewer than `limit` tasks and still have
    /// a next one.
    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError>;

    /// Reads the first page of overdue tasks of each class and method, as [`scan`](Self::scan) of the oldest does.
    ///
    /// Reads none of the tasks between these pages: however many tasks of one method are overdue, those of the others are
    /// found. `None`: the ledger lacks the index for it.
    async fn scan_methods(&self, scan: MethodScan) -> Result<Option<MethodPages>, LedgerError>;

    /// Reads a page of overdue tasks of one class and method, oldest first, as [`scan`](Self::scan) does.
    ///
    /// `scan.window` is [`Window::OverdueOldest`](super::Window::OverdueOldest).
    async fn scan_method(&self, method: &MethodTag, scan: DueScan) -> Result<DuePage, LedgerError>;

    /// Reads the leases of a page of tasks that are due within `ahead` from now, by due time, after the place `after`. A task
    /// that is not due yet may be leased by a run of an older arming.
    ///
    /// A page covers a fixed number of such rows, leased or not.
    async fn scan_leases(
        &self,
        after: Option<DuePlace>,
        ahead: Duration,
    ) -> Result<LeasePage, LedgerError>;

    /// Returns those of `rows` that are pending, due and not leased, in any order.
    async fn claimable(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError>;
}
