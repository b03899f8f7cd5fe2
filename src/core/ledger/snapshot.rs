//! The row of a key as it was read.

use super::Lookup;
use crate::task::{Contents, Recurrence};

/// The row of a key, with its recurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSnapshot {
    /// Its state and arming.
    pub lookup: Lookup,
    /// Its recurrence as stored, JSON. `None`: the task runs once.
    pub recurrence: Option<String>,
    /// Payload, tag and limit, as stored.
    pub contents: Contents,
}

impl RowSnapshot {
    /// The recurrence as stored and as parsed. `None` if there is none or it cannot be parsed.
    pub fn stored(&self) -> Option<(&str, Recurrence)> {
        let stored = self.recurrence.as_deref()?;
        Some((stored, stored.parse().ok()?))
    }
}
