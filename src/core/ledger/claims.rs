//! The seam for running tasks: look up, claim, renew, settle.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Claim, Claimant, FoundLease, Lease, LedgerError, Lookup, Progress, Renewal, Settled, Settlement,
};
use crate::task::{Arming, TaskKey};

/// Claims of tasks. Called by the stages of the engine: claim, lease renewal and settle; and by the recovery of leases of
/// dead daemons.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Looks up keys. Returns the results in the order of `keys`, `None` for a key without a row.
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError>;

    /// Claims those of `armings` that are pending, due and not leased. Returns the claims in any order.
    ///
    /// Skips a row that another session has locked, so that it delays no other.
    ///
    /// # If we crash right after
    /// The leases expire, and each claimed task counts one crash.
    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError>;

    /// Extends leases to end `length` from now. Returns the results in the order of `leases`.
    ///
    /// Never revives an expired lease.
    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError>;

    /// As [`renew`](Self::renew), and stores the progress of the runs in the same statement. Returns the results in the order
    /// of `reports`.
    ///
    /// The progress of a claim that is lost is not stored. That of an earlier claim is never shown.
    async fn report(
        &self,
        reports: &[(Lease, Progress)],
        length: Duration,
    ) -> Result<Vec<Renewal>, LedgerError>;

    /// Writes how runs ended. Returns the results in the order of `settlements`.
    ///
    /// The call may be repeated after an error: a settlement that was written the first time answers
    /// [`Settled::Applied`] again.
    ///
    /// # If we crash right after
    /// Retries are not armed. The sweep finds them.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError>;

    /// Lowers the crashes of a claimed task to less than [`SUSPECT_CRASHES`](crate::task::SUSPECT_CRASHES), so that the next
    /// crash of its daemon does not bury it. Returns whether the lease holds. May be repeated.
    ///
    /// # If we crash right after
    /// The next claim counts the crash: the task is a suspect again.
    async fn pardon(&self, lease: &Lease) -> Result<Renewal, LedgerError>;

    /// Ends leases of dead daemons: they expire now, and the next claim counts a crash. Returns how many it ended.
    ///
    /// Skips a lease that is no longer held by the same claim of the same daemon, and a row that another session has
    /// locked.
    ///
    /// # If we crash right after
    /// The tasks are due and not leased. The sweep finds them.
    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError>;
}
