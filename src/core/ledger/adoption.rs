//! The seam for adoption: rows for keys that a program armed with a bare `SETEX`.

use std::time::Duration;

use async_trait::async_trait;

use super::{LedgerError, Lookup};
use crate::task::{Arming, Origin, TaskKey, UnixMs};

/// Request to write the row of a key that a program armed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionRequest {
    /// The key.
    pub key: TaskKey,
    /// Due time of the task.
    pub due: UnixMs,
    /// When the key was armed. Overrides changes of the row before that.
    pub heard: UnixMs,
    /// True if the due time comes from the key now: a deletion of the key then cancels the task. Otherwise the origin of
    /// the row stays as it is.
    pub from_key: bool,
    /// True if the key is an entry that was read in a sorted set: its absence there cancels the task, too.
    pub is_entry: bool,
    /// The row on which the decision is based; `None` if there was none.
    pub over: Option<Lookup>,
    /// The payload, JSON, at most [`PAYLOAD_BYTES_MAX`](crate::task::PAYLOAD_BYTES_MAX) bytes. `None`: an unfinished task
    /// keeps the payload that it has.
    pub payload: Option<String>,
}

impl AdoptionRequest {
    /// The origin of the row after the adoption; `None` if it stays as it is.
    pub fn origin(&self) -> Option<Origin> {
        self.from_key.then_some(match self.is_entry {
            true => Origin::Entry,
            false => Origin::Key,
        })
    }
}

/// Result of [`Adoption::adopt`] for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// The row is written. This is its arming.
    Written(Arming),
    /// The row has changed, or was created, since the decision. Nothing was written.
    Overtaken,
    /// Another session holds the row's lock. Nothing was written; try again later.
    Locked,
    /// Not tried, because this call has waited for the lock of another row. Try again now, without that row.
    Untried,
    /// The table cannot hold keys like this one. Says why, and what to do about it.
    Unfit(String),
    /// The ledger refuses this row. Says why.
    Refused(String),
}

/// Request to cancel the adopted task of a key that a program deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelByKey {
    /// The row on which the decision is based.
    pub over: Lookup,
    /// When the deletion was heard.
    pub heard: UnixMs,
}

/// Result of [`Adoption::cancel_by_key`] for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelByKeyAnswer {
    /// The task is cancelled.
    Cancelled,
    /// The withdrawal does not apply to the row as it is now. Nothing was written.
    Left,
    /// Another session holds the row's lock. Nothing was written; try again later.
    Locked,
}

/// Rows on behalf of keys that other programs arm and delete. Called by the adoption of the engine.
#[async_trait]
pub trait Adoption: Send + Sync {
    /// Writes rows of armed keys. Returns the results in the order of `keys`.
    ///
    /// Holds no lock while it waits for another: a program may be about to write such a row in a transaction of its own.
    ///
    /// # If we crash right after
    /// The tasks exist, as after [`create`](super::Producer::create). Adopting the keys again finds their rows.
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError>;

    /// Cancels adopted tasks whose keys were deleted. Returns the results in the order of `cancellations`.
    ///
    /// Cancels only a task that was adopted, is not recurring, is unchanged since it was looked up, and is due in more
    /// than `ahead`; with an `ahead` of zero it may be due. It may wait for a retry, or follow a run of an older arming. A locked row delays no other.
    ///
    /// # If we crash right after
    /// The tasks are cancelled. A withdrawal that was not written is lost, as a deletion that no daemon heard.
    async fn cancel_by_key(
        &self,
        cancellations: &[CancelByKey],
        ahead: Duration,
    ) -> Result<Vec<CancelByKeyAnswer>, LedgerError>;

    /// Reverts the deletion of a row by a legacy program that has since armed the key again: sets `sts = 0` where
    /// `sts = 1` and `status = 0`. Does not revert a [cancellation](super::Producer::cancel). Returns false if it did not.
    ///
    /// Does not wait for another session that has locked the row.
    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError>;
}
