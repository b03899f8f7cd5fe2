//! The default timer: every task is a Redis key that expires when the task falls due.
//!
//! Three things run side by side and need nothing of each other. The listener hears the `expired`
//! events, for as long as there is a link, and makes a new link for as long as there is none. The
//! nudge asks Redis for each expected key at its due millisecond, so that Redis drops it then and
//! not when it gets round to it. What programs do to keys is heard on the same link, and looked at
//! beside it. And whoever arms or disarms talks to the keyspace directly.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::arming::Armings;
use super::listener::Listener;
use super::nudge::Nudge;
use super::{Alarm, ArmMode, Armed, ArmedPage, Hearing, Remaining, SignalSink, Timer, TimerError};
use crate::clock::LedgerClock;
use crate::config::{NudgeConfig, RedisConfig, SentinelConfig};
use crate::redis::{ArmedKey, Commands, Endpoint, Events, Existing, Keyspace, RedisError, Ttl};
use crate::task::{Countdown, TaskKey, UnixMs};
use crate::telemetry::Metrics;

/// Keys armed in one go.
const ARM_BATCH: usize = 500;

/// By then a key that was armed with the shortest expiry is due: Redis expires strictly after it.
const DUE_AT_ONCE: Duration = Duration::from_millis(2);

/// Signals from expiring Redis keys.
#[derive(Debug)]
pub struct KeyExpiry {
    clock: LedgerClock,
    keyspace: Keyspace,
    /// How far ahead keys are armed.
    horizon: Option<Duration>,
    listener: Arc<Listener>,
    nudge: Arc<Nudge>,
    armings: Arc<Armings>,
}

impl KeyExpiry {
    /// Does no I/O: connections are made by whoever first needs them. `events` says whether to hear of keys when they
    /// are armed, too.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(
        redis: &RedisConfig,
        sentinel: SentinelConfig,
        nudge: NudgeConfig,
        events: Events,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        let keyspace = Keyspace::new(commands, &redis.key_prefix);
        let horizon = nudge.horizon;
        let nudge = Arc::new(Nudge::new(nudge, clock.clone(), keyspace.clone()));
        let armings = Arc::new(Armings::new(
            keyspace.clone(),
            clock.clone(),
            Arc::clone(&nudge),
            horizon,
            Arc::clone(&metrics),
        ));
        let listener = Listener::new(
            keyspace.clone(),
            events,
            sentinel,
            Arc::clone(&armings),
            metrics,
        );
        Ok(Self {
            listener: Arc::new(listener),
            nudge,
            armings,
            keyspace,
            horizon: redis.arm_horizon,
            clock,
        })
    }
}

#[async_trait]
impl Timer for KeyExpiry {
    async fn run(&self, sink: Arc<dyn SignalSink>, stop: CancellationToken) {
        // Tasks of their own: hearing must not wait for asking. Both end with the set.
        let mut parts = JoinSet::new();
        let (listener, nudge) = (Arc::clone(&self.listener), Arc::clone(&self.nudge));
        let to_listener = Arc::clone(&sink);
        parts.spawn(async move { listener.run(to_listener.as_ref()).await });
        parts.spawn(async move { nudge.run(sink).await });
        if let Some(Some(Err(ended))) = stop.run_until_cancelled(parts.join_next()).await
            && let Ok(panic) = ended.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        parts.shutdown().await;
        self.listener.stopped();
    }

    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let existing = match mode {
            ArmMode::Replace => Existing::Replace,
            ArmMode::IfMissing => Existing::Keep,
        };
        let mut armed = Armed::default();
        for batch in alarms.chunks(ARM_BATCH) {
            let (near, beyond) = self.parted(batch);
            if mode == ArmMode::Replace && !beyond.is_empty() {
                // Their older keys, if there are any, are of no use; others' keys are not asked about here either.
                self.disarm(&beyond).await?;
            }
            let batch = near.as_ref();
            if batch.is_empty() {
                continue;
            }
            let written = self.arm_batch(batch, existing).await;
            let written = written.map_err(|error| TimerError::new("cannot arm keys", error))?;
            armed.written += written;
            armed.present += batch.len() - written;
        }
        Ok(armed)
    }

    fn horizon(&self) -> Option<Duration> {
        self.horizon
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.nudge.forget(keys);
        let disarmed = self.keyspace.disarm(keys).await;
        disarmed.map_err(|error| TimerError::new("cannot disarm keys", error))
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        let found = self.keyspace.pttl(keys).await;
        let found = found.map_err(|error| TimerError::new("cannot ask for keys", error))?;
        Ok(found.into_iter().map(Remaining::from).collect())
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.nudge.expect(alarms);
    }

    async fn armed_elsewhere(
        &self,
        cursor: Option<u64>,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        let page = self.armings.scan(cursor.unwrap_or(0), wants).await;
        page.map_err(|error| {
            let passes = error.is_transient();
            let error = TimerError::new("cannot go through the keys", error);
            if passes { error } else { error.lasting() }
        })
    }

    async fn inspect(
        &self,
        keys: &[TaskKey],
        since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, TimerError> {
        let found = self.armings.find(keys, since).await;
        found.map_err(|error| TimerError::new("cannot look at keys", error))
    }

    fn is_listening(&self) -> Option<bool> {
        Some(self.listener.is_listening())
    }

    fn hearing(&self) -> Hearing {
        self.listener.hearing()
    }

    fn judge_again(&self) {
        self.listener.judge_again();
    }
}

impl KeyExpiry {
    /// What is armed now, and the keys of what falls due beyond the horizon. The one place that decides it.
    fn parted<'a>(&self, alarms: &'a [Alarm]) -> (Cow<'a, [Alarm]>, Vec<TaskKey>) {
        let Some(horizon) = self.horizon else {
            return (Cow::Borrowed(alarms), Vec::new());
        };
        let horizon = self.clock.now().plus(horizon);
        let (near, beyond): (Vec<Alarm>, Vec<Alarm>) = alarms
            .iter()
            .cloned()
            .partition(|alarm| alarm.due <= horizon);
        let beyond = beyond.into_iter().map(|alarm| alarm.key).collect();
        (Cow::Owned(near), beyond)
    }

    async fn arm_batch(&self, alarms: &[Alarm], existing: Existing) -> Result<usize, RedisError> {
        // Read for each batch: Redis counts what remains from when it gets the key.
        let now = self.clock.now();
        let keys = alarms.iter().map(|alarm| ArmedKey {
            key: &alarm.key,
            due: alarm.due,
            remaining: alarm.due.since(now),
        });
        let keys: Vec<ArmedKey<'_>> = keys.collect();
        let written = self.keyspace.arm(&keys, existing).await?;
        let due = alarms.iter().filter(|alarm| alarm.due <= now);
        let due: Vec<TaskKey> = due.map(|alarm| alarm.key.clone()).collect();
        if !due.is_empty() {
            self.raise_at_once(&due).await;
        }
        Ok(written)
    }

    /// Keys that were due when they were armed: Redis would keep them until it comes across them, and
    /// no daemon would hear of them before.
    async fn raise_at_once(&self, due: &[TaskKey]) {
        tokio::time::sleep(DUE_AT_ONCE).await;
        // They are armed; that Redis gets round to them later is no failure of arming.
        let _ = self.keyspace.pttl(due).await;
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
