//! Membership in memory: for a daemon without Redis, which has no other members, and for tests with several engines.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    AUDIT_LOCK_TTL, Audit, AuditLockState, Heartbeat, MemberId, Membership, MembershipError,
};
use crate::task::UnixMs;

/// Heartbeats in memory. Engines that share one value are members of each other.
#[derive(Debug, Default)]
pub struct MemoryMembership {
    members: Mutex<Members>,
    hides_others: bool,
}

#[derive(Debug, Default)]
struct Members {
    heartbeats: BTreeMap<MemberId, Heartbeat>,
    audit: Option<Locked>,
}

/// The audit lock, as it was last written.
#[derive(Debug, Clone, Copy)]
struct Locked {
    by: MemberId,
    at: Instant,
    /// The audit, if it has finished.
    finished: Option<Audit>,
}

impl MemoryMembership {
    /// Of a daemon on a ledger that others may share, which are not shown.
    pub fn hiding_others() -> Self {
        Self {
            members: Mutex::default(),
            hides_others: true,
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members
            .lock()
            .expect("nothing panics while holding it")
    }
}

impl Members {
    fn write_audit(&mut self, by: MemberId, finished: Option<Audit>) {
        self.audit = Some(Locked {
            by,
            at: Instant::now(),
            finished,
        });
    }
}

#[async_trait]
impl Membership for MemoryMembership {
    async fn exchange(
        &self,
        own: &Heartbeat,
        _: UnixMs,
    ) -> Result<Vec<Heartbeat>, MembershipError> {
        let mut members = self.members();
        members.heartbeats.insert(own.id, own.clone());
        Ok(members.heartbeats.values().cloned().collect())
    }

    fn shows_all(&self) -> bool {
        !self.hides_others
    }

    async fn leave(&self, id: MemberId) -> Result<(), MembershipError> {
        self.members().heartbeats.remove(&id);
        self.unlock_audit(id).await
    }

    async fn unlock_audit(&self, gone: MemberId) -> Result<(), MembershipError> {
        let mut members = self.members();
        members.audit = members
            .audit
            .filter(|locked| locked.by != gone || locked.finished.is_some());
        Ok(())
    }

    async fn lock_audit(
        &self,
        id: MemberId,
        wanted: Audit,
    ) -> Result<AuditLockState, MembershipError> {
        let mut members = self.members();
        match members
            .audit
            .filter(|locked| locked.at.elapsed() < AUDIT_LOCK_TTL)
        {
            Some(Locked {
                finished: Some(audit),
                ..
            }) if audit.covers(wanted) => return Ok(AuditLockState::Done),
            Some(Locked {
                by, finished: None, ..
            }) if by != id => return Ok(AuditLockState::Taken(Some(by))),
            _ => {}
        }
        members.write_audit(id, None);
        Ok(AuditLockState::Acquired)
    }

    async fn finish_audit(&self, id: MemberId, audit: Audit) -> Result<(), MembershipError> {
        self.members().write_audit(id, Some(audit));
        Ok(())
    }
}
