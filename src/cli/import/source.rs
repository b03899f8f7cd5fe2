//! The seam to the systems that jobs come from.

use async_trait::async_trait;

use super::job::{Found, Job};

/// Jobs of another system.
#[async_trait]
pub trait Source: Send {
    /// The number of jobs, if the system can tell it quickly.
    async fn count(&mut self) -> anyhow::Result<Option<u64>>;

    /// The next page; `None` at the end. A page may be empty.
    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>>;

    /// Removes jobs that have not changed since they were read. Returns how many.
    ///
    /// Called after they are committed to the ledger, and before the next page is read.
    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<u64>;
}
