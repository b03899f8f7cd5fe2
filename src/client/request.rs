//! What a task was created with, to be compared.

use sha2::{Digest as _, Sha256};

use super::Task;
use crate::ledger::RowSnapshot;
use crate::task::{After, Contents, Envelope};

/// The contents of a task, with a hash in place of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    payload: Option<[u8; 32]>,
    after: Option<After>,
    others: Contents,
}

impl Request {
    /// What a stored task was created with.
    pub fn of(row: &RowSnapshot) -> Self {
        let Envelope { payload, after, .. } = Envelope::open(row.contents.payload.clone());
        Self {
            after,
            payload: payload.as_deref().map(hash),
            others: row.contents.without_payload(),
        }
    }

    /// What a task is to be created with.
    pub fn to_create(task: &Task) -> Self {
        Self {
            after: task.envelope.after.clone(),
            payload: task.contents.payload.as_deref().map(hash),
            others: task.contents.without_payload(),
        }
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}
