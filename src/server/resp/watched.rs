//! Watched keys: rows as they were, to be compared.

use sha2::{Digest as _, Sha256};

use lapsed::ledger::RowSnapshot;
use lapsed::task::{State, TaskKey};

/// A watched key with its row.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The key.
    pub key: TaskKey,
    seen: Option<Seen>,
}

/// A row, with a hash instead of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    row: Box<RowSnapshot>,
    value: Option<[u8; 32]>,
    bytes: usize,
}

impl Watched {
    /// Remembers the row of a key.
    pub fn new(key: &TaskKey, row: Option<&RowSnapshot>) -> Self {
        Self {
            key: key.clone(),
            seen: row.map(Seen::of),
        }
    }

    /// Bytes of the value.
    pub fn bytes(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.bytes)
    }

    /// True if the row is still as it was.
    pub fn is_still(&self, row: Option<&RowSnapshot>) -> bool {
        self.seen == row.map(Seen::of)
    }
}

impl Seen {
    fn of(row: &RowSnapshot) -> Self {
        let payload = row.contents.payload.as_ref();
        let value = payload.map(|text| Sha256::digest(text).into());
        let bytes = payload.map_or(0, String::len);
        let mut row = RowSnapshot {
            lookup: row.lookup.clone(),
            recurrence: row.recurrence.clone(),
            contents: row.contents.without_payload(),
        };
        // The time of a retry comes without a change.
        if row.lookup.state == State::Waiting {
            row.lookup.state = State::Pending;
        }
        Self {
            row: Box::new(row),
            value,
            bytes,
        }
    }
}
