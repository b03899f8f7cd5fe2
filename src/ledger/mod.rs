//! The seam to the ledger: the durable record of tasks, and of the claims on them.
//!
//! [`Ledger`] has the verbs of the engine and the producers, [`Catalog`] those of administration,
//! [`Pauses`] those of pausing. All are object-safe; [`MysqlLedger`](mysql::MysqlLedger) is the real one,
//! [`MemoryLedger`](memory::MemoryLedger) obeys the same conformance suite without a server.
//!
//! Whether a task is due and whether a lease holds is decided by the ledger's clock in the statement
//! that acts. Losing a race is an answer here, never an error.

mod adoption;
mod cancellation;
mod catalog;
mod claim;
mod creation;
mod detailed_stats;
mod due_scan;
mod error;
mod lease_scan;
mod listing;
mod lookup;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod migrate;
#[cfg(feature = "mysql")]
pub mod mysql;
mod pauses;
pub mod recurring;
mod settlement;

use std::time::Duration;

use async_trait::async_trait;

pub use self::adoption::{Adopted, AdoptionRequest, WITHDRAW_AHEAD};
pub use self::cancellation::{CancelAnswer, CancelCursor, CancelFilter, CancelPage};
pub use self::catalog::{
    Catalog, Prune, PruneCursor, Pruned, REDRIVEN_AGO, RunNowAnswer, Stats, TaskRecord,
};
pub use self::claim::{Claim, Claimant, Lease, Owner, Renewal};
pub use self::creation::{Created, IfPending, NewTask, RescheduleAnswer, Stands};
pub use self::detailed_stats::{DetailedStats, DetailedStatsLimits, LATELY, MethodStats, Spread};
pub use self::due_scan::{DuePage, DueScan, Known, Upcoming, Window};
pub use self::error::LedgerError;
pub use self::lease_scan::{DuePlace, FoundLease, LeasePage};
pub use self::listing::{
    ListCursor, ListFilter, ListOrder, ListPage, MalformedRow, Picked, StateFilter,
};
pub use self::lookup::{Lookup, Stamp};
pub use self::pauses::{
    BY_CHARS_MAX, PAUSES_MAX, PauseAnswer, Pauses, REASON_CHARS_MAX, ReleaseAnswer,
};
use self::recurring::SeriesRow;
pub use self::settlement::{Settled, Settlement};
use crate::clock::LedgerClock;
use crate::task::{Arming, KeyBuckets, TaskKey, UnixMs};

/// The verbs of the engine and of producers.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The local estimate of the ledger's clock.
    fn clock(&self) -> &LedgerClock;

    /// Reads the ledger's time and adjusts [`clock`](Self::clock) to it.
    async fn sync_clock(&self) -> Result<UnixMs, LedgerError>;

    /// The ledger's time, for what counts from now. A ledger on another machine is asked for it if it was not lately.
    async fn now(&self) -> Result<UnixMs, LedgerError> {
        Ok(self.clock().now())
    }

    /// Whether the ledger can be used as it is: reachable, schema up to date, rights granted. Who also wants to know
    /// what is paused asks for [that](Pauses::all).
    async fn check(&self) -> Result<(), LedgerError>;

    /// What is paused and held, in the same ledger.
    fn pauses(&self) -> &dyn Pauses;

    /// The MySQL adapter, if this is one: handlers and producers join their own transactions to it.
    #[cfg(feature = "mysql")]
    fn as_mysql(&self) -> Option<&mysql::MysqlLedger> {
        None
    }

    /// Creates tasks; where one of the key exists with another due time, its [`IfPending`] decides. Answers in the order
    /// of `tasks`. The same key and due time again changes nothing. Where one call names a key more than once, those that
    /// move come first, and those that refuse last.
    ///
    /// # If we crash right after
    /// The tasks exist. They need no arming to run: the look-ahead and the sweep find them.
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError>;

    /// Reads a row with its recurrence; `None` if the key has no row.
    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError>;

    /// Writes the row of a recurring task over `over`, the row as it was read; `None` if there was none. Returns its
    /// arming, or `None` if the row has changed since. With the due time of the pending row it remains the same arming.
    ///
    /// # If we crash right after
    /// As after [`create`](Self::create).
    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError>;

    /// Notes in the row of a series that a configuration wants it
    /// ([`Recurrence::configured`](crate::task::Recurrence::configured)); nothing else of it changes. Tells whether it did:
    /// not if that is no longer what was seen.
    async fn mark_configured(&self, seen: &SeriesRow) -> Result<bool, LedgerError>;

    /// Moves a pending task to another due time. A recurring task continues after the occurrence that was moved.
    async fn reschedule(&self, key: &TaskKey, due: UnixMs)
    -> Result<RescheduleAnswer, LedgerError>;

    /// Cancels tasks; results in the order of `keys`.
    ///
    /// # If we crash right after
    /// They are cancelled; a key that is still armed signals in vain.
    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError>;

    /// Cancels a page of the tasks that match, each as [`cancel`](Self::cancel) would, or only reports them in a dry run;
    /// starts at [`CancelPage::next`] of the previous page. Tasks created after the first page may be left out.
    ///
    /// # If we crash right after
    /// The tasks of this page and the previous ones are cancelled.
    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError>;

    /// Looks up keys; results in their order, `None` for a key without a row.
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError>;

    /// Reads a page of pending tasks by due time.
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError>;

    /// As [`scan`](Self::scan), of the keys in these buckets, without the rows that `known` says yes to, by row and due
    /// time: of those no more than an index entry is read. The page ends after `limit` entries of these buckets, known,
    /// leased or not.
    async fn scan_news(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError>;

    /// Claims those of these armings that are pending, due and not leased, in any order.
    /// A row that another session has locked is skipped, and delays no other.
    ///
    /// # If we crash right after
    /// The leases run out, and each claimed task counts one crash.
    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError>;

    /// Extends leases to `length` from now; results in their order. Never revives an expired lease.
    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError>;

    /// Reads the leases of a page of the due tasks, in the order of their due times, behind `after`. A page goes past a
    /// fixed number of due rows, leased or not.
    async fn scan_leases(&self, after: Option<DuePlace>) -> Result<LeasePage, LedgerError>;

    /// Ends leases whose daemon is dead: they have run out now, so the next claim counts a crash. Leaves alone what is
    /// no longer held by this very claim of this daemon, and what another session has locked. Answers how many it ended.
    ///
    /// # If we crash right after
    /// The tasks are due and free; the sweep finds them.
    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError>;

    /// Returns those of these rows that are pending, due and not leased, in any order.
    async fn free_of(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError>;

    /// Writes how runs ended; answers in order. May be repeated after an error: what was written
    /// the first time answers [`Settled::Applied`] again.
    ///
    /// # If we crash right after
    /// Retries are not armed; the sweep finds them.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError>;

    /// Writes rows on behalf of keys that some program armed; answers in their order. Each is written by itself, so
    /// that no lock is held while another is waited for: a program may be about to write such a row in a
    /// transaction of its own.
    ///
    /// # If we crash right after
    /// The tasks exist, as after [`create`](Self::create). Adopting them again finds them there.
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError>;

    /// Cancels an adopted task whose key was heard to be deleted at this moment: only if it was adopted, is not recurring, is
    /// as it was seen, and falls due in more than [`WITHDRAW_AHEAD`]. It may wait for a retry, or behind a run. Tells
    /// whether it did.
    async fn withdraw(&self, seen: &Lookup, heard: UnixMs) -> Result<bool, LedgerError>;

    /// Takes back the deletion of a row by a legacy program that has since armed the key again
    /// (`sts = 0` where `sts = 1` and `status = 0`); not a [cancellation](Self::cancel). Tells whether it did.
    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError>;
}
