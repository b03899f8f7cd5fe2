//! Pages of leases by due time.

use super::Owner;
use crate::task::UnixMs;

/// A place in the order of due times: due time and row id.
pub type DuePlace = (UnixMs, u64);

/// A lease found in a row. It may have expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLease {
    /// The id of the row.
    pub row: u64,
    /// The owner token of the claim.
    pub owner: Owner,
    /// Name of the daemon that holds it.
    pub daemon: String,
    /// When it expires.
    pub until: UnixMs,
}

/// A page of [`Scans::scan_leases`](super::Scans::scan_leases).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeasePage {
    /// The leases, in no order.
    pub leases: Vec<FoundLease>,
    /// `after` of the next page; `None` at the end.
    pub next: Option<DuePlace>,
}
