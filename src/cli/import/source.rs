//! The seam to the systems that jobs come from.

use async_trait::async_trait;

use redis::{ErrorKind, ServerErrorKind};

use super::job::{Found, Job};

/// Jobs of another system.
#[async_trait]
pub trait Source: Send {
    /// The number of jobs, if the system can tell it quickly.
    async fn count(&mut self) -> anyhow::Result<Option<u64>>;

    /// The next page; `None` at the end. A page may be empty.
    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>>;

    /// What a person should know of the jobs that are not read, each in a sentence. Called after the last page.
    async fn remarks(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Removes jobs that have not changed since they were read. Returns how many.
    ///
    /// Called after they are committed to the ledger, and before the next page is read.
    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<u64>;
}

/// Says what to do if the server of the source is a node of a cluster that does not have the keys.
pub fn explain(error: anyhow::Error) -> anyhow::Error {
    let is_elsewhere = error.chain().any(|cause| {
        let kind = cause
            .downcast_ref::<redis::RedisError>()
            .map(redis::RedisError::kind);
        matches!(
            kind,
            Some(ErrorKind::Server(
                ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot
            ))
        )
    });
    match is_elsewhere {
        true => error.context(
            "the source's Redis is a node of a cluster, of which an import reads one node at a time: give `--from-redis` the \
             node that has the keys",
        ),
        false => error,
    }
}
