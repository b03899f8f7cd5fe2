//! Reading which tasks are leased, and ending the leases of dead daemons.

use super::Owner;
use crate::task::UnixMs;

/// A place behind the rows of a page: due time and row.
pub type DuePlace = (UnixMs, u64);

/// A lease as it stands in a row, whether or not it has run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLease {
    /// The row.
    pub row: u64,
    /// The claim.
    pub owner: Owner,
    /// Name of the daemon that claimed it.
    pub daemon: String,
    /// When it runs out.
    pub until: UnixMs,
}

/// A page of [`Scans::scan_leases`](super::Scans::scan_leases), and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeasePage {
    /// The leases in it. Not in any order.
    pub leases: Vec<FoundLease>,
    /// Give this as `after` for the next page; `None` at the end.
    pub next: Option<DuePlace>,
}
