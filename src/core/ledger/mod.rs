//! The seams to the ledger: the durable record of tasks, and of the claims on them.
//!
//! There is one seam for each kind of caller:
//!
//! | seam | called by |
//! |---|---|
//! | [`Claims`] | the stages of the engine |
//! | [`Scans`] | the background tasks of the engine that find tasks |
//! | [`Producer`] | producers |
//! | [`Adoption`] | the adoption of keys that other programs arm |
//! | [`Admin`] | operators, gauges |
//! | [`Retention`] | the deletion of finished tasks |
//! | [`Pauses`] | operators, the pause reader |
//! | [`Documents`] | HTTP, the history |
//! | [`Transfers`](transfer::Transfers) | the move of tasks to another ledger |
//!
//! [`Ledger`] is all of them. It has three adapters, `MysqlLedger`, `SqliteLedger` and
//! [`MemoryLedger`](memory::MemoryLedger), which pass the same conformance suite. All seams are object-safe.
//!
//! Whether a task is due and whether a lease has expired is decided by the ledger's clock in the statement that acts.
//! Losing a race is a result, not an error.

mod admin;
mod adoption;
#[doc(hidden)] // for the adapters
mod cancellation;
mod change;
mod claim;
mod claims;
mod creation;
#[doc(hidden)] // for the adapters
pub mod documents;
mod due_scan;
mod ending;
mod error;
mod forecast;
mod hold;
mod lease_scan;
mod listing;
mod lookup;
#[cfg(feature = "rows")]
pub mod memory;
mod owner;
#[doc(hidden)] // for the adapters
pub mod pauses;
mod producer;
mod progress;
#[doc(hidden)] // for the adapters
pub mod pruning;
mod record;
#[doc(hidden)] // for the adapters
pub mod recurring;
mod retention;
#[allow(missing_docs)]
#[doc(hidden)] // for the adapters
pub mod row;
#[allow(missing_docs)]
#[cfg(feature = "rows")]
#[doc(hidden)] // for the adapters
pub mod rows;
mod scans;
#[doc(hidden)] // for the adapters
pub mod settlement;
mod shared_key;
mod snapshot;
#[doc(hidden)] // for the adapters
pub mod stats;
pub mod transfer;

use std::any::Any;

use async_trait::async_trait;

pub use self::admin::{Admin, REDRIVEN_AGO, RunNowAnswer};
pub use self::adoption::{Adopted, Adoption, AdoptionRequest, CancelByKey, CancelByKeyAnswer};
pub use self::cancellation::{CancelAnswer, CancelPage};
pub use self::change::Seen;
pub use self::change::{Change, Changed, Decide, See, by_rows};
pub use self::claim::{Claim, Claimant, Lease, Renewal};
pub use self::claims::Claims;
pub use self::creation::{CreateResult, Created, IfPending, NewTask, RescheduleAnswer};
pub use self::documents::{
    Collection, DOCUMENT_BYTES_MAX, DOCUMENT_NAME_CHARS_MAX, Document, DocumentPlace,
    DocumentRange, Documents,
};
pub use self::due_scan::{
    DuePage, DueScan, Known, MethodPages, MethodScan, MethodTag, NearScan, Upcoming, Window,
};
pub use self::ending::Ending;
pub use self::error::LedgerError;
pub use self::forecast::{Forecast, ForecastRange};
pub use self::lease_scan::{DuePlace, FoundLease, LeasePage};
pub use self::listing::{
    ListCursor, ListFilter, ListOrder, ListPage, Picked, StateFilter, end_of_prefix,
};
pub use self::lookup::{Lookup, Stamp};
pub use self::owner::Owner;
pub use self::pauses::{
    BY_CHARS_MAX, PAUSES_MAX, PauseAnswer, Pauses, REASON_CHARS_MAX, ReleaseAnswer,
};
pub use self::producer::Producer;
pub use self::progress::{LatestProgress, Progress, ProgressError};
pub use self::record::{LatestOccurrence, MalformedRow, TaskRecord};
pub use self::retention::{ArchiveMaintenance, Prune, PruneCursor, Pruned, Retention};
pub use self::scans::Scans;
pub use self::settlement::{Settled, Settlement};
pub use self::shared_key::{SharedKey, shared_key};
pub use self::snapshot::RowSnapshot;
pub use self::stats::{
    DetailedStats, DetailedStatsLimits, MethodStats, Percentiles, RECENT, Stats,
};
pub use crate::clock::{ClockStep, LedgerClock};
use crate::task::UnixMs;

/// The right of a daemon to use its ledger alone. Ends when it is dropped, and with the process.
pub type Reservation = Box<dyn Any + Send + Sync>;

/// A whole ledger: every seam, its clock and its health. Held by the engine and by `TaskClient`, which
/// pass on the seam that a caller needs.
#[async_trait]
pub trait Ledger:
    Claims + Scans + Producer + Adoption + Admin + Retention + Pauses + Documents
{
    /// Returns the local estimate of the ledger's clock.
    fn clock(&self) -> &LedgerClock;

    /// Reads the ledger's time and adjusts [`clock`](Self::clock) to it.
    async fn sync_clock(&self) -> Result<UnixMs, LedgerError>;

    /// Returns the ledger's time. Reads it from a ledger on another machine, unless that was done recently.
    async fn now(&self) -> Result<UnixMs, LedgerError> {
        Ok(self.clock().now())
    }

    /// Checks that the ledger can be used: it is reachable, its schema is current and the required privileges are granted.
    ///
    /// Does not check that [pauses](Pauses::pauses) can be read.
    async fn check(&self) -> Result<(), LedgerError>;

    /// Checks that the ledger takes writes, by a write that changes nothing.
    ///
    /// # Errors
    /// The ledger can be read at most: it is read-only, or has no space left.
    async fn check_writable(&self) -> Result<(), LedgerError> {
        self.check().await
    }

    /// Reserves the ledger for a daemon of this process, until the result is dropped. `None` if a ledger of this kind may have
    /// several daemons.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if another daemon has it.
    async fn reserve(&self) -> Result<Option<Reservation>, LedgerError> {
        Ok(None)
    }

    /// Closes every connection, and waits for that. A later call opens others.
    async fn close(&self) {}

    /// Returns the adapter if it is in a database, for what only that database has: the transactions of handlers.
    fn database(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}
