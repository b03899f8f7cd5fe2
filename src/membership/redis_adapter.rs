//! Membership in Redis: a hash with one field for each member, and a key for the audit lock.

use async_trait::async_trait;

use super::{
    AUDIT_LOCK_TTL, Audit, AuditLockState, Heartbeat, LIFETIME, MemberId, Membership,
    MembershipError, fnv::fnv1a,
};
use crate::config::RedisConfig;
use crate::redis::{Commands, Endpoint, Keyspace, LedgerName, Members, RedisError};
use crate::task::UnixMs;

/// A heartbeat that expired this many lifetimes ago is removed by any member that reads it.
const LIFETIMES_KEPT: u32 = 20;

/// Most heartbeats removed at once.
const REMOVED_AT_ONCE: usize = 64;

/// Marks a finished audit; its start and its daemon's capabilities follow.
const FINISHED_PREFIX: &str = "audited:";

const AUDIT: &str = "cannot read or write the audit lock";

/// Heartbeats in Redis, on a separate connection, so that they do not queue behind bulk arming.
#[derive(Debug)]
pub struct RedisMembership(Members);

impl RedisMembership {
    /// Does no I/O. `ledger` is the name that all members share. Members of other ledgers are invisible.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn new(redis: &RedisConfig, ledger: LedgerName) -> Result<Self, RedisError> {
        Ok(Self::on(Endpoint::new(redis)?, redis, ledger))
    }

    /// The same on this endpoint.
    #[doc(hidden)] // for a model of the server
    pub fn on(endpoint: Endpoint, redis: &RedisConfig, ledger: LedgerName) -> Self {
        let commands = Commands::new(endpoint);
        let plain = format!("{:016x}", fnv1a(ledger.text().as_bytes()));
        let keyspace = Keyspace::new(commands, &redis.key_prefix);
        Self(Members::new(keyspace, ledger.with_plain(&plain)))
    }

    /// Returns the heartbeats that are valid at `now`, without publishing one: for diagnosis.
    ///
    /// # Errors
    /// If Redis refuses or does not answer.
    pub async fn members(&self, now: UnixMs) -> Result<Vec<Heartbeat>, RedisError> {
        let found = self.0.read().await?;
        let heartbeats = found
            .iter()
            .filter_map(|(id, json)| Heartbeat::read(id, json))
            .filter(|heartbeat| heartbeat.until >= now);
        Ok(heartbeats.collect())
    }
}

#[async_trait]
impl Membership for RedisMembership {
    async fn exchange(
        &self,
        own: &Heartbeat,
        now: UnixMs,
    ) -> Result<Vec<Heartbeat>, MembershipError> {
        let found = self.0.exchange(&own.id.to_string(), &own.to_json()).await;
        let found =
            found.map_err(|error| failed("cannot publish the heartbeat of this daemon", error))?;
        let (mut heartbeats, mut expired) = (Vec::with_capacity(found.len()), Vec::new());
        for (id, json) in found {
            match Heartbeat::read(&id, &json) {
                Some(read) if read.until.plus(LIFETIMES_KEPT * LIFETIME) < now => expired.push(id),
                Some(read) => heartbeats.push(read),
                // A newer version may have written it: leave it.
                None => {}
            }
        }
        expired.truncate(REMOVED_AT_ONCE);
        if !expired.is_empty()
            && let Err(error) = self.0.remove(&expired).await
        {
            tracing::debug!(%error, notes = expired.len(), "could not remove expired heartbeats");
        }
        Ok(heartbeats)
    }

    async fn heartbeats(&self) -> Result<Option<Vec<Heartbeat>>, MembershipError> {
        let found = self.0.read().await;
        let found =
            found.map_err(|error| failed("cannot read the heartbeats of the daemons", error))?;
        let heartbeats = found.iter();
        let heartbeats = heartbeats.filter_map(|(id, json)| Heartbeat::read(id, json));
        Ok(Some(heartbeats.collect()))
    }

    async fn leave(&self, id: MemberId) -> Result<(), MembershipError> {
        let me = id.to_string();
        let unlocked = self.0.unlock_audit(&me).await;
        let removed = self.0.remove(&[me.into_bytes()]).await;
        unlocked
            .and(removed)
            .map_err(|error| failed("cannot remove the heartbeat of this daemon", error))
    }

    async fn is_reachable(&self, id: MemberId) -> Result<bool, MembershipError> {
        let subscribed = self.0.is_subscribed(id.0).await;
        subscribed.map_err(|error| failed("cannot ask whether another daemon is subscribed", error))
    }

    async fn lock_audit(
        &self,
        id: MemberId,
        wanted: Audit,
    ) -> Result<AuditLockState, MembershipError> {
        let me = id.to_string();
        let found = self.0.lock_audit(&me, AUDIT_LOCK_TTL).await;
        let found = found.map_err(|error| failed(AUDIT, error))?;
        if found == me.as_bytes() {
            return Ok(AuditLockState::Acquired);
        }
        let Some(mark) = found.strip_prefix(FINISHED_PREFIX.as_bytes()) else {
            let holder = std::str::from_utf8(&found).ok();
            return Ok(AuditLockState::Taken(holder.and_then(MemberId::parse)));
        };
        match read_mark(mark) {
            Some(audit) if audit.covers(wanted) => Ok(AuditLockState::Done),
            _ => {
                let taken = self.0.write_audit_lock(&me, AUDIT_LOCK_TTL).await;
                taken.map_err(|error| failed(AUDIT, error))?;
                Ok(AuditLockState::Acquired)
            }
        }
    }

    async fn unlock_audit(&self, gone: MemberId) -> Result<(), MembershipError> {
        let released = self.0.unlock_audit(&gone.to_string()).await;
        released.map_err(|error| failed(AUDIT, error))
    }

    async fn finish_audit(&self, _: MemberId, audit: Audit) -> Result<(), MembershipError> {
        let Audit {
            began,
            capabilities,
        } = audit;
        let mark = format!("{FINISHED_PREFIX}{}:{capabilities:016x}", began.0);
        let written = self.0.write_audit_lock(&mark, AUDIT_LOCK_TTL).await;
        written.map_err(|error| failed(AUDIT, error))
    }
}

/// Parses the record of a finished audit; `None` if it is malformed, such as an older version's.
fn read_mark(mark: &[u8]) -> Option<Audit> {
    let (began, capabilities) = std::str::from_utf8(mark).ok()?.split_once(':')?;
    Some(Audit {
        began: UnixMs(began.parse().ok()?),
        capabilities: u64::from_str_radix(capabilities, 16).ok()?,
    })
}

fn failed(message: &str, error: RedisError) -> MembershipError {
    MembershipError::new(message, error.is_transient(), error)
}
