//! Alarms as entries of the slots of a wheel.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Commands, Endpoint, RedisError, WheelKeys};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{RedisConfig, WheelConfig};
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::timer::{Alarm, AlarmStore, ArmMode, Armed, Remaining, TimerError};

/// A repair writes no entry that is due within this time. The look-ahead and the sweep find such tasks.
const ABOUT_TO_START: Duration = Duration::from_secs(1);

/// Writes and removes entries.
#[derive(Debug, Clone)]
pub struct WheelSlots {
    pub(crate) keys: WheelKeys,
    clock: LedgerClock,
}

impl WheelSlots {
    /// Does no I/O: the connection is opened on first use.
    ///
    /// # Errors
    /// If the URL cannot be parsed.
    pub fn new(
        redis: &RedisConfig,
        config: &WheelConfig,
        clock: LedgerClock,
    ) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        Ok(Self::on(commands, redis, config, clock))
    }

    pub(crate) fn on(
        commands: Commands,
        redis: &RedisConfig,
        config: &WheelConfig,
        clock: LedgerClock,
    ) -> Self {
        let key = format!("{}{}", redis.key_prefix, config.key);
        let tick_ms = i64::try_from(config.tick.as_millis()).unwrap_or(i64::MAX);
        Self {
            keys: WheelKeys::new(commands, key, config.slots.max(1), tick_ms.max(1)),
            clock,
        }
    }
}

#[async_trait]
impl AlarmStore for WheelSlots {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let now = self.clock.now();
        let (keep, begin) = match mode {
            ArmMode::Replace => (None, UnixMs(i64::MIN)),
            // The task is pending: an entry that is due is of an earlier arming. A task that is about to start may have
            // ended by now, and its entry would stay.
            ArmMode::IfMissing => (Some(now), now.plus(ABOUT_TO_START)),
        };
        let entries = alarms.iter().filter(|alarm| alarm.due > begin);
        let entries = entries.map(|alarm| (&alarm.key, entry_due(alarm, now)));
        let entries: Vec<(&TaskKey, UnixMs)> = entries.collect();
        let written = self.keys.arm(&entries, keep).await;
        let written = written.map_err(|error| TimerError::new("cannot write entries", error))?;
        Ok(Armed {
            written,
            present: alarms.len() - written,
            missing: 0,
        })
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        let entries: Vec<_> = keys.iter().map(|key| (key, None)).collect();
        let removed = self.keys.remove(&entries).await;
        removed.map_err(|error| TimerError::new("cannot remove entries", error))
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        let found = self.keys.due_times(keys).await;
        let found = found.map_err(|error| TimerError::new("cannot query entries", error))?;
        let now = self.clock.now();
        let remaining = |due: Option<UnixMs>| match due {
            Some(due) => Remaining::Ms(due.since(now).as_millis() as u64),
            None => Remaining::Missing,
        };
        Ok(found.into_iter().map(remaining).collect())
    }
}

/// The due time of an entry: that of the row, by which `settle` removes it. The alarm of a task that is due already may say
/// a little later.
fn entry_due(alarm: &Alarm, now: UnixMs) -> UnixMs {
    match alarm.arming {
        Some(arming) if alarm.due <= now => arming.due.min(alarm.due),
        _ => alarm.due,
    }
}
