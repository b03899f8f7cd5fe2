//! Audit lock: of several daemons that want to audit, one does.

use std::time::Duration;

use super::MemberId;
use crate::task::UnixMs;

/// How long an audit lock is valid, and how long a finished audit is remembered.
pub const AUDIT_LOCK_TTL: Duration = Duration::from_secs(60);

/// An audit, finished or wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// When it began, on the ledger's clock. A wanted audit has to begin after this.
    pub began: UnixMs,
    /// [`Capabilities::digest`](super::Capabilities::digest) of the daemon: it adopts only keys that it can run.
    pub capabilities: u64,
}

impl Audit {
    /// True if this finished audit makes the wanted one unnecessary.
    pub fn covers(self, wanted: Self) -> bool {
        self.began > wanted.began && self.capabilities == wanted.capabilities
    }
}

/// The answer to an attempt to take the audit lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLockState {
    /// This member has the lock.
    Acquired,
    /// Another member has the lock. `None`: its id cannot be read.
    Taken(Option<MemberId>),
    /// An audit that covers the wanted one has finished.
    Done,
}
