//! Member: a live daemon of the ledger, as the others know it.

use std::sync::Arc;

use super::{AskedQueues, Capabilities, Heartbeat, MemberId, Readiness};
use crate::task::UnixMs;

/// A live daemon of the ledger, as its heartbeat describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Host and process.
    pub name: String,
    /// Version of its program; empty for one that does not state it.
    pub version: String,
    /// When it joined, on the ledger's clock.
    pub since: UnixMs,
    /// Whether it accepts tasks.
    pub readiness: Readiness,
    /// True if it listens to all events of all keys.
    pub listening: bool,
    /// True if it listens to the expiry of all keys, but does not receive their armings and deletions.
    pub expired_only: bool,
    /// The name of its timer, and what tells which keys it watches; empty for one that does not state it.
    pub timer: String,
    /// What it can run.
    pub capabilities: Arc<Capabilities>,
    /// For each idle route, when a worker asked last; 0 if none has since the start, empty if that is not known.
    pub idle_since: Vec<UnixMs>,
    /// The pull queues that workers have asked it for; empty for one that does not state it.
    pub queues: Arc<AskedQueues>,
    /// True for this daemon.
    pub is_this: bool,
}

impl From<Heartbeat> for Member {
    fn from(heartbeat: Heartbeat) -> Self {
        let Heartbeat {
            id,
            name,
            version,
            since,
            until: _,
            readiness,
            listening,
            expired_only,
            forwards: _,
            timer,
            capabilities,
            idle_since,
            queues,
        } = heartbeat;
        Self {
            id,
            name,
            version,
            since,
            readiness,
            listening,
            expired_only,
            timer,
            capabilities: Arc::new(capabilities),
            idle_since,
            queues: Arc::new(queues),
            is_this: false,
        }
    }
}
