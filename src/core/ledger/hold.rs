//! Held rows: what a move between ledgers writes into them. See [`transfer`](super::transfer).

use sha2::{Digest, Sha256};

use super::Owner;
use crate::task::{TaskKey, UnixMs};

/// End of a held lease: the latest time that the column of MySQL takes.
pub(super) const HELD_UNTIL: UnixMs = UnixMs(9_999_999_999_999);

/// The name of the daemon in a held row.
pub(super) const MOVER: &str = "lapsed move";

/// Returns the owner token of a held row. MySQL computes the same.
pub(super) fn hold_token(key: &TaskKey, due: UnixMs) -> Owner {
    let digest = Sha256::digest(format!("{} {key}", due.0));
    let mut token = [0; 16];
    token.copy_from_slice(&digest[..16]);
    Owner(token)
}

/// A task that a move holds: a key, and the due time that the task had when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTask {
    /// The key.
    pub key: TaskKey,
    /// When the task was due.
    pub due: UnixMs,
}

impl HeldTask {
    /// Returns the owner token of its rows while they are held.
    #[doc(hidden)] // for the ledgers
    pub fn token(&self) -> Owner {
        hold_token(&self.key, self.due)
    }
}

/// A place among the rows: by status, deletion, due time and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MovePlace {
    /// The status of the row, as it is stored.
    pub status: u8,
    /// Whether a program has deleted the row.
    pub deleted: bool,
    /// The due time of the row.
    pub due_at: UnixMs,
    /// The id of the row.
    pub row: u64,
}

/// How a frozen task ends in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// Done, with a note as its result. Skips tasks that were cancelled since they were frozen, and returns them.
    Moved,
    /// Cancelled. Skips tasks that were not.
    Cancelled,
}
