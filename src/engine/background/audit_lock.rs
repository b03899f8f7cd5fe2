//! Audit lock: lets one daemon audit where several would. Advisory: at worst two audit.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::LedgerClock;
use crate::engine::capabilities::capabilities;
use crate::handler::Router;
use crate::membership::{
    Audit, AuditLockState, LIFETIME, MemberId, Membership, Ownership, REFRESH,
};
use crate::task::UnixMs;
use crate::timer::Cause;

/// Minimum interval between audits, unless Redis has changed.
pub const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// Timeout for a request for the audit lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// First pause before asking again whether another daemon has finished its audit.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Interval at which a long audit renews its lock.
const RENEW_EVERY: Duration = Duration::from_secs(20);

/// Lets one daemon audit where several would. Advisory: at worst two audit.
pub struct AuditLock {
    pub membership: Arc<dyn Membership>,
    pub ownership: Arc<Ownership>,
    pub router: Arc<Router>,
    pub clock: LedgerClock,
}

impl AuditLock {
    /// Earliest start of an audit by another daemon that makes this daemon's audit unnecessary. All daemons hear the
    /// same sentinels, so for a sentinel it is [`AUDIT_EVERY`] ago. For any other cause it is now: an earlier audit may
    /// have missed what this daemon has not heard.
    pub fn serves_since(&self, cause: Cause) -> UnixMs {
        let back = match cause {
            Cause::Sentinel => AUDIT_EVERY,
            _ => Duration::ZERO,
        };
        let now = self.clock.now();
        UnixMs(now.0.saturating_sub(back.as_millis() as i64))
    }

    /// Waits until this daemon may audit. Returns false if an audit by another daemon makes that unnecessary.
    pub async fn acquire(&self, since: UnixMs) -> bool {
        let mut pause = RETRY_AFTER;
        loop {
            match self.try_lock(since).await {
                AuditLockState::Acquired => return true,
                AuditLockState::Done => return false,
                AuditLockState::Taken(None) => tokio::time::sleep(pause).await,
                AuditLockState::Taken(Some(holder)) => {
                    if self.is_gone_after(holder, pause).await {
                        self.unlock_dead(holder).await;
                        continue;
                    }
                }
            }
            pause = (2 * pause).min(RENEW_EVERY);
        }
    }

    /// Waits for `pause`, and longer while this member seems to be gone. Returns true if the member is gone: its
    /// heartbeat has expired, and no new one has arrived for another [`LIFETIME`].
    async fn is_gone_after(&self, holder: MemberId, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut gone_since: Option<Instant> = None;
        loop {
            gone_since = match self.ownership.is_alive(holder) {
                Some(false) => gone_since.or(Some(Instant::now())),
                Some(true) | None => None,
            };
            if gone_since.is_some_and(|since| since.elapsed() >= LIFETIME) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && gone_since.is_none() {
                return false;
            }
            let step = match gone_since {
                Some(_) => REFRESH,
                None => REFRESH.min(left),
            };
            tokio::time::sleep(step).await;
        }
    }

    async fn unlock_dead(&self, holder: MemberId) {
        tracing::info!("a daemon died during its audit: taking over");
        let released = self.membership.unlock_audit(holder);
        if !matches!(
            tokio::time::timeout(LOCK_TIMEOUT, released).await,
            Ok(Ok(()))
        ) {
            tracing::debug!("could not take over the audit lock");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Takes or renews the lock. If the membership store does not answer, each daemon audits.
    async fn try_lock(&self, since: UnixMs) -> AuditLockState {
        let wanted = self.audit_of(since);
        let taken = self.membership.lock_audit(self.ownership.me(), wanted);
        match tokio::time::timeout(LOCK_TIMEOUT, taken).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not take the audit lock: auditing without it");
                AuditLockState::Acquired
            }
            Err(_) => AuditLockState::Acquired,
        }
    }

    /// Releases the lock, and tells the other daemons when the audit began.
    pub async fn release(&self, began: UnixMs) {
        let audit = self.audit_of(began);
        let released = self.membership.finish_audit(self.ownership.me(), audit);
        if !matches!(
            tokio::time::timeout(LOCK_TIMEOUT, released).await,
            Ok(Ok(()))
        ) {
            tracing::debug!("could not tell the other daemons of this audit: they audit too");
        }
    }

    fn audit_of(&self, began: UnixMs) -> Audit {
        Audit {
            began,
            capabilities: capabilities(&self.router, Vec::new()).digest(),
        }
    }

    /// Renews the lock of a long audit, at most once per [`RENEW_EVERY`].
    pub async fn renew(&self, renewed: &mut Instant) {
        if renewed.elapsed() >= RENEW_EVERY {
            *renewed = Instant::now();
            self.try_lock(UnixMs(0)).await;
        }
    }
}
