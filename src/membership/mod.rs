//! Cluster membership: the live daemons of one ledger, and which of them owns a task.
//!
//! Each daemon is a *member*: every second it publishes a [`Heartbeat`] through [`Membership`] and reads those of the
//! others. `Ownership` assigns each task to one live member that can run it, by rendezvous hashing of its key. The
//! owner nudges the key at the due millisecond and claims the task; the other members claim it only when it is overdue.
//!
//! The three highest-ranked members listen to the events of all keys, however many members there are. The first adopts
//! keys that other programs arm and forwards expired keys to their owners. The second steps in when the first is gone
//! or failed to act. The third only remembers events for a few seconds.
//!
//! **Safety does not depend on membership.** The claim decides who runs a task. A member list that is wrong, stale or
//! missing costs some statements that match nothing, or a second of lateness. A member that knows of no other owns all.

mod asked_queues;
mod audit_lock;
mod capabilities;
mod fnv;
mod heartbeat;
mod member;
mod memory;
mod ownership;
mod redis_adapter;
mod rendezvous;

use std::time::Duration;

use async_trait::async_trait;

use crate::task::UnixMs;

pub use self::asked_queues::{AskedQueue, AskedQueues};
pub use self::audit_lock::{AUDIT_LOCK_TTL, Audit, AuditLockState};
pub use self::capabilities::Capabilities;
pub(crate) use self::capabilities::CapabilityMatcher;
pub use self::heartbeat::{Heartbeat, MemberId, Readiness, VERSION};
pub use self::member::Member;
pub use self::memory::MemoryMembership;
pub use self::ownership::GoneMember;
pub(crate) use self::ownership::{Change, HigherRankedListener, OwnerSet, Ownership};
pub use self::redis_adapter::RedisMembership;

/// Time between two heartbeats of a member.
pub const REFRESH: Duration = Duration::from_secs(1);

/// How long a heartbeat is valid, and how long the list that was last read is.
pub const LIFETIME: Duration = Duration::from_secs(3);

/// Number of members, the highest-ranked ones, that listen to the events of all keys. With three, two of them can die at
/// once and no event is lost.
pub(crate) const LISTENERS: usize = 3;

/// Most members that ownership is divided among, this one included.
pub(crate) const MEMBERS_MAX: usize = 256;

/// The seam to the other daemons of the ledger.
///
/// # If we crash right after a call
/// Our heartbeat expires after [`LIFETIME`], and an audit lock after [`AUDIT_LOCK_TTL`].
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// Replaces our heartbeat and returns those of all members, ours included. `now` is the ledger's time: heartbeats
    /// that expired long before it may be removed.
    async fn exchange(
        &self,
        own: &Heartbeat,
        now: UnixMs,
    ) -> Result<Vec<Heartbeat>, MembershipError>;

    /// Returns the heartbeats of all members, expired ones too, without publishing one: for diagnosis from a process that is
    /// no member. `None` if members are known to themselves only.
    async fn heartbeats(&self) -> Result<Option<Vec<Heartbeat>>, MembershipError> {
        Ok(None)
    }

    /// True if every live member is among those that an exchange returns. False on a ledger whose members do not know of each
    /// other.
    fn shows_all(&self) -> bool {
        true
    }

    /// Removes our heartbeat, and releases the audit lock if we have it.
    async fn leave(&self, id: MemberId) -> Result<(), MembershipError>;

    /// True if this member still receives hints, by which a killed member is detected long before its heartbeat
    /// expires. Called only for members that can receive hints. Returns `true` if the adapter cannot tell.
    async fn is_reachable(&self, _id: MemberId) -> Result<bool, MembershipError> {
        Ok(true)
    }

    /// Takes the audit lock for [`AUDIT_LOCK_TTL`], or extends it if it is ours. Returns [`Done`](AuditLockState::Done)
    /// if a finished audit covers `wanted`. The lock does not outlive the data of the timer: a Redis that was restarted
    /// or replaced has not been audited.
    async fn lock_audit(
        &self,
        id: MemberId,
        wanted: Audit,
    ) -> Result<AuditLockState, MembershipError>;

    /// Releases the audit lock of a member that is gone, if it still has it.
    async fn unlock_audit(&self, gone: MemberId) -> Result<(), MembershipError>;

    /// Replaces our audit lock by a record of the finished audit.
    async fn finish_audit(&self, id: MemberId, audit: Audit) -> Result<(), MembershipError>;
}

/// Error of a membership adapter.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct MembershipError {
    message: String,
    transient: bool,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl MembershipError {
    /// Wraps an adapter's error; `transient` is true if a later call may succeed.
    pub fn new(
        message: impl Into<String>,
        transient: bool,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            message: message.into(),
            transient,
            source: Some(source.into()),
        }
    }

    /// True if a later call may succeed without any change of configuration.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}
