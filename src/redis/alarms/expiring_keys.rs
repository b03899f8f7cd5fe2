//! Alarms as keys that expire when their tasks are due.

use std::time::Duration;

use async_trait::async_trait;

use crate::{ArmedKey, Commands, Endpoint, Existing, Keyspace, RedisError, Ttl};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::RedisConfig;
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::timer::{Alarm, AlarmStore, ArmMode, Armed, Remaining, TimerError};

/// Most keys armed in one pipeline.
const ARM_BATCH: usize = 500;

/// Wait before a key armed with the shortest expiry is queried: Redis expires a key strictly after its time.
const DUE_AT_ONCE: Duration = Duration::from_millis(2);

/// Arms and disarms keys.
#[derive(Debug, Clone)]
pub struct ExpiringKeys {
    pub(crate) keyspace: Keyspace,
    clock: LedgerClock,
    /// How far ahead keys are armed; `None` is without limit.
    horizon: Option<Duration>,
}

impl ExpiringKeys {
    /// Does no I/O: the connection is opened on first use.
    ///
    /// # Errors
    /// If the URL cannot be parsed.
    pub fn new(redis: &RedisConfig, clock: LedgerClock) -> Result<Self, RedisError> {
        Ok(Self::on(Endpoint::new(redis)?, redis, clock))
    }

    pub(crate) fn on(endpoint: Endpoint, redis: &RedisConfig, clock: LedgerClock) -> Self {
        Self {
            keyspace: Keyspace::new(Commands::new(endpoint), &redis.key_prefix),
            clock,
            horizon: redis.arm_horizon,
        }
    }

    /// The latest due time for which a key is armed now.
    pub(crate) fn latest(&self) -> UnixMs {
        let horizon = self.horizon.map(|horizon| self.clock.now().plus(horizon));
        horizon.unwrap_or(UnixMs(i64::MAX))
    }

    /// Arms a batch, and raises the signals of tasks that are due already.
    async fn arm_batch(&self, alarms: &[&Alarm], existing: Existing) -> Result<usize, RedisError> {
        // Read for each batch: Redis counts the remaining time from when it receives the command.
        let now = self.clock.now();
        let due = alarms.iter().filter(|alarm| alarm.due <= now);
        let due: Vec<TaskKey> = due.map(|alarm| alarm.key.clone()).collect();
        let is_announced = existing == Existing::Keep
            && !due.is_empty()
            && self.keyspace.announce_expired(&due).await?;
        let armed = alarms
            .iter()
            .filter(|alarm| !is_announced || alarm.due > now);
        let keys: Vec<ArmedKey<'_>> = armed
            .map(|alarm| ArmedKey {
                key: &alarm.key,
                due: alarm.due,
                remaining: alarm.due.since(now),
            })
            .collect();
        let written = self.keyspace.arm(&keys, existing).await?;
        if is_announced {
            return Ok(written + due.len());
        }
        if !due.is_empty() {
            self.raise_at_once(&due).await;
        }
        Ok(written)
    }

    /// Queries keys that were due when they were armed, so that Redis deletes them now and publishes `expired`.
    async fn raise_at_once(&self, due: &[TaskKey]) {
        tokio::time::sleep(DUE_AT_ONCE).await;
        // The keys are armed. A late `expired` event is not an error of arming.
        let _ = self.keyspace.pttl(due).await;
    }
}

#[async_trait]
impl AlarmStore for ExpiringKeys {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let existing = match mode {
            ArmMode::Replace => Existing::Replace,
            ArmMode::IfMissing => Existing::Keep,
        };
        let mut armed = Armed::default();
        for batch in alarms.chunks(ARM_BATCH) {
            let latest = self.latest();
            let (near, beyond): (Vec<&Alarm>, Vec<&Alarm>) =
                batch.iter().partition(|alarm| alarm.due <= latest);
            if mode == ArmMode::Replace && !beyond.is_empty() {
                // Any key of an earlier due time is obsolete.
                let beyond: Vec<TaskKey> = beyond.iter().map(|alarm| alarm.key.clone()).collect();
                self.disarm(&beyond).await?;
            }
            if near.is_empty() {
                continue;
            }
            let written = self.arm_batch(&near, existing).await;
            let written = written.map_err(|error| TimerError::new("cannot arm keys", error))?;
            armed.written += written;
            armed.present += near.len() - written;
        }
        Ok(armed)
    }

    fn horizon(&self) -> Option<Duration> {
        self.horizon
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        let disarmed = self.keyspace.disarm(keys).await;
        disarmed.map_err(|error| TimerError::new("cannot disarm keys", error))
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        let found = self.keyspace.pttl(keys).await;
        let found = found.map_err(|error| TimerError::new("cannot query keys", error))?;
        Ok(found.into_iter().map(Remaining::from).collect())
    }
}

impl From<Ttl> for Remaining {
    fn from(ttl: Ttl) -> Self {
        match ttl {
            Ttl::Missing => Self::Missing,
            Ttl::Forever => Self::Forever,
            Ttl::Ms(ms) => Self::Ms(ms),
        }
    }
}
