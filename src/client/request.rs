//! What a task was created with, to be compared.

use sha2::{Digest as _, Sha256};

use super::Task;
use crate::ledger::RowSnapshot;
use crate::task::Envelope;

/// Payload, tag and limit of a task, with a hash in place of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    payload: Option<[u8; 32]>,
    tag: Option<String>,
    max_attempts: Option<u16>,
}

impl Request {
    /// What a stored task was created with.
    pub(crate) fn of(row: &RowSnapshot) -> Self {
        let payload = Envelope::open(row.payload.clone()).payload;
        Self {
            payload: payload.as_deref().map(hash),
            tag: row.tag.clone(),
            max_attempts: row.max_attempts,
        }
    }

    /// What a task is to be created with.
    pub(crate) fn to_create(task: &Task) -> Self {
        Self {
            payload: task.payload.as_deref().map(hash),
            tag: task.tag.clone(),
            max_attempts: task.max_attempts,
        }
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}
