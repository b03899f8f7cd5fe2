//! The seam to the systems that jobs come from.

use async_trait::async_trait;

use redis::{ErrorKind, ServerErrorKind};

use super::job::{Found, Job};

/// What became of jobs that were to be removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many were removed.
    pub taken: u64,
    /// Indices of those that were not there any more: the old system has run or cancelled them. The others have changed.
    pub gone: Vec<usize>,
}

impl Taken {
    /// Of a source that does not tell what is gone from what has changed.
    pub fn count(taken: u64) -> Self {
        Self {
            taken,
            gone: Vec::new(),
        }
    }

    /// Of the answers for consecutive jobs, the first of which has the index `from`.
    pub fn add(&mut self, from: usize, fates: &[Fate]) {
        for (index, fate) in fates.iter().enumerate() {
            match fate {
                Fate::Taken => self.taken += 1,
                Fate::Gone => self.gone.push(from + index),
                Fate::Changed => {}
            }
        }
    }
}

/// What became of a job that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was removed.
    Taken,
    /// It was not there any more.
    Gone,
    /// It has changed, and stays.
    Changed,
}

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

    /// Removes jobs that have not changed since they were read. Says what became of them.
    ///
    /// Called after they are committed to the ledger, and before the next page is read.
    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken>;
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
