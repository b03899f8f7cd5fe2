//! The members as a process sees them, with faults.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lapsed::membership::{Audit, AuditLockState, Heartbeat, MemberId, Membership, MembershipError};
use lapsed_core::task::UnixMs;

use crate::plan::FaultKind;
use crate::process::Process;

pub struct SimMembers {
    inner: Arc<dyn Membership>,
    process: Arc<Process>,
    seen: Mutex<Option<Vec<Heartbeat>>>,
}

impl SimMembers {
    pub fn new(inner: Arc<dyn Membership>, process: Arc<Process>) -> Self {
        Self {
            inner,
            process,
            seen: Mutex::default(),
        }
    }

    async fn pass(&self) -> Result<(), MembershipError> {
        self.process.runs().await;
        match self.process.strikes(FaultKind::MembersUnreachable) {
            true => Err(MembershipError::new(
                "cannot reach the members",
                true,
                "no answer",
            )),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Membership for SimMembers {
    async fn exchange(
        &self,
        own: &Heartbeat,
        now: UnixMs,
    ) -> Result<Vec<Heartbeat>, MembershipError> {
        self.pass().await?;
        let found = self.inner.exchange(own, now).await?;
        if self.process.strikes(FaultKind::MembersSplit) {
            return Ok(vec![own.clone()]);
        }
        let is_stale = self.process.has(FaultKind::MembersStale).is_some();
        let mut seen = self.seen.lock().expect("nothing panics while holding it");
        if is_stale && let Some(seen) = &*seen {
            self.process.strikes(FaultKind::MembersStale);
            return Ok(seen.clone());
        }
        *seen = Some(found.clone());
        Ok(found)
    }

    async fn leave(&self, id: MemberId) -> Result<(), MembershipError> {
        self.pass().await?;
        self.inner.leave(id).await
    }

    async fn is_reachable(&self, id: MemberId) -> Result<bool, MembershipError> {
        self.pass().await?;
        match self.process.strikes(FaultKind::MembersFalseDeath) {
            true => Ok(false),
            false => self.inner.is_reachable(id).await,
        }
    }

    async fn lock_audit(
        &self,
        id: MemberId,
        wanted: Audit,
    ) -> Result<AuditLockState, MembershipError> {
        self.pass().await?;
        self.inner.lock_audit(id, wanted).await
    }

    async fn unlock_audit(&self, gone: MemberId) -> Result<(), MembershipError> {
        self.pass().await?;
        self.inner.unlock_audit(gone).await
    }

    async fn finish_audit(&self, id: MemberId, audit: Audit) -> Result<(), MembershipError> {
        self.pass().await?;
        self.inner.finish_audit(id, audit).await
    }
}
