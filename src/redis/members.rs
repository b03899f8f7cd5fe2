//! Cluster members in Redis: a hash of heartbeats, and the key of the audit lock.

use std::time::Duration;

use redis::Value;

use super::{Keyspace, LedgerName, Names, RedisError};

/// Longest value of an audit lock that is read: no member writes a longer one.
const AUDIT_LOCK_BYTES_MAX: usize = 64;

/// Field and value of one heartbeat, unchecked.
type RawHeartbeat = (Vec<u8>, Vec<u8>);

/// Heartbeats and audit lock of the members of one ledger. For the names of the keys see [`Names`](super::Names).
#[derive(Debug)]
pub struct Members {
    keyspace: Keyspace,
    ledger: LedgerName,
}

impl Members {
    /// Does no I/O. `ledger` keeps the members of several ledgers apart.
    pub fn new(keyspace: Keyspace, ledger: LedgerName) -> Self {
        Self { keyspace, ledger }
    }

    /// Returns the name of the hash.
    fn heartbeats(&self) -> String {
        self.keyspace.names().members(self.ledger.text())
    }

    /// Writes one heartbeat and returns all of them, unchecked.
    ///
    /// # Errors
    /// If Redis refuses or does not answer; the heartbeat may have been written.
    pub async fn exchange(
        &self,
        id: &str,
        heartbeat: &str,
    ) -> Result<Vec<RawHeartbeat>, RedisError> {
        let mut exchange = redis::pipe();
        let name = self.heartbeats();
        exchange.hset(&name, id, heartbeat).ignore();
        exchange.hgetall(&name);
        let (heartbeats,) = self.keyspace.commands().send("HSET", &exchange).await?;
        Ok(heartbeats)
    }

    /// Returns all heartbeats, unchecked.
    ///
    /// # Errors
    /// If Redis refuses or does not answer.
    pub async fn read(&self) -> Result<Vec<RawHeartbeat>, RedisError> {
        let mut read = redis::pipe();
        read.hgetall(self.heartbeats());
        let (heartbeats,) = self.keyspace.commands().send("HGETALL", &read).await?;
        Ok(heartbeats)
    }

    /// Removes heartbeats.
    ///
    /// # Errors
    /// If Redis refuses or does not answer; some may have been removed.
    pub async fn remove(&self, ids: &[Vec<u8>]) -> Result<(), RedisError> {
        let mut remove = redis::pipe();
        remove.hdel(self.heartbeats(), ids).ignore();
        self.keyspace.commands().send("HDEL", &remove).await
    }

    /// True if this member is subscribed to its hints. Publishes an empty hint, which needs the same rights as
    /// forwarding.
    ///
    /// # Errors
    /// If Redis refuses or does not answer.
    pub async fn is_subscribed(&self, member: u64) -> Result<bool, RedisError> {
        let mut publish = redis::pipe();
        publish.cmd("PUBLISH").arg(Names::hints(member)).arg("");
        let (receivers,): (u64,) = self.keyspace.commands().send("PUBLISH", &publish).await?;
        Ok(receivers > 0)
    }

    /// Takes the audit lock for `ttl` if it is free, or extends it if it is this holder's. Returns the lock's value.
    ///
    /// The name contains the server's `run_id` if it is known, because a restarted or replaced server has not been
    /// audited.
    ///
    /// # Errors
    /// If Redis refuses or does not answer; the lock may have been taken.
    pub async fn lock_audit(&self, holder: &str, ttl: Duration) -> Result<Vec<u8>, RedisError> {
        let name = self.audit_lock().await?;
        let mut take = redis::pipe();
        take.cmd("SET").arg(&name).arg(holder);
        take.arg("PX").arg(ttl.as_millis() as u64).arg("NX");
        take.cmd("GETRANGE")
            .arg(&name)
            .arg(0)
            .arg(AUDIT_LOCK_BYTES_MAX);
        let (taken, found): (Value, Vec<u8>) = self.keyspace.commands().send("SET", &take).await?;
        if taken != Value::Okay && found == holder.as_bytes() {
            self.write_audit_lock(holder, ttl).await?;
        }
        Ok(found)
    }

    /// Writes the audit lock unconditionally.
    ///
    /// # Errors
    /// If Redis refuses or does not answer; it may have been written.
    pub async fn write_audit_lock(&self, value: &str, ttl: Duration) -> Result<(), RedisError> {
        let mut write = redis::pipe();
        write.cmd("SET").arg(self.audit_lock().await?).arg(value);
        write.arg("PX").arg(ttl.as_millis() as u64).ignore();
        self.keyspace.commands().send("SET", &write).await
    }

    /// Releases the audit lock if this holder has it. If another member takes it between the check and the deletion,
    /// two members audit.
    ///
    /// # Errors
    /// If Redis refuses or does not answer; the lock may have been released.
    pub async fn unlock_audit(&self, holder: &str) -> Result<(), RedisError> {
        let name = self.audit_lock().await?;
        let mut read = redis::pipe();
        read.cmd("GETRANGE")
            .arg(&name)
            .arg(0)
            .arg(AUDIT_LOCK_BYTES_MAX);
        let (found,): (Vec<u8>,) = self.keyspace.commands().send("GETRANGE", &read).await?;
        if found != holder.as_bytes() {
            return Ok(());
        }
        let mut del = redis::pipe();
        del.cmd("DEL").arg(&name).ignore();
        self.keyspace.commands().send("DEL", &del).await
    }

    async fn audit_lock(&self) -> Result<String, RedisError> {
        let run_id = self.keyspace.run_ids().await?;
        let audit = self.keyspace.names().audit(self.ledger.text());
        Ok(format!("{audit}:{run_id}"))
    }
}
