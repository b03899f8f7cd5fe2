//! What a task carries.

use super::Envelope;

/// What a task carries beside its key and its schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Its payload, JSON, at most [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX) bytes. In the ledger, in its
    /// [`Envelope`].
    pub payload: Option<String>,
    /// Its tag, to find and cancel tasks by.
    pub tag: Option<String>,
    /// Maximum number of runs, the first one included. Overrides that of the route.
    pub max_attempts: Option<u16>,
}

impl Contents {
    /// True if payload, tag and limit are equal. Trace and signature do not count: each request has its own.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let Self {
            payload,
            tag,
            max_attempts,
        } = self;
        let given = |payload: &Option<String>| Envelope::open(payload.clone()).payload;
        (tag, max_attempts) == (&other.tag, &other.max_attempts)
            && (*payload == other.payload || given(payload) == given(&other.payload))
    }

    /// Tag and limit, without the payload.
    #[must_use]
    pub fn without_payload(&self) -> Self {
        Self {
            payload: None,
            tag: self.tag.clone(),
            max_attempts: self.max_attempts,
        }
    }
}
