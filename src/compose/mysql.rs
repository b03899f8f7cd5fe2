//! The ledger in MySQL, the timer in Redis or none.

use std::sync::Arc;

#[cfg(feature = "engine")]
use lapsed_core::telemetry::Metrics;
#[cfg(feature = "engine")]
use lapsed_redis::Events;
use lapsed_redis::alarms::{ExpiringKeys, SetEntries, WheelSlots};
use lapsed_redis::{LedgerName, RedisError};

use crate::client::{ClientError, MysqlTaskClient};
use crate::config::{Config, ConfigError, TimerKind};
use crate::ledger::Ledger as _;
use crate::ledger::mysql::MysqlLedger;
use crate::timer::AlarmStore;
use crate::timer::ledger_poll::LedgerPoll;
#[cfg(feature = "engine")]
use crate::timer::{
    Timer, key_expiry::KeyExpiry, sorted_set::SortedSet, sorted_set::delayed_sets::WithDelayedSets,
    wheel::Wheel,
};

/// Creates the ledger.
///
/// # Errors
/// [`ConfigError`] for an invalid URL or table name.
pub(super) fn ledger(config: &Config) -> Result<Arc<MysqlLedger>, ConfigError> {
    if config.ledger.sqlite_file().is_some() {
        let expected = "expected mysql://user:password@host:port/database";
        return Err(ConfigError::one("ledger.url", expected.to_owned()));
    }
    Ok(Arc::new(MysqlLedger::new(&config.ledger)?))
}

/// Creates what a producer on this ledger arms: the timer that daemons listen to, without listening.
///
/// # Errors
/// [`ConfigError`] for an invalid URL of Redis.
pub(super) fn alarms(
    config: &Config,
    ledger: &MysqlLedger,
) -> Result<Arc<dyn AlarmStore>, ConfigError> {
    #[cfg(feature = "engine")]
    if !config.delayed_sets().is_empty() {
        return Ok(timer(config, ledger, &Arc::default())?);
    }
    let (redis, clock) = (&config.redis, ledger.clock().clone());
    Ok(match config.timer {
        TimerKind::KeyExpiry => Arc::new(ExpiringKeys::new(redis, clock).map_err(of_redis)?),
        TimerKind::SortedSet => {
            let sets = config.sorted_set.clone();
            let entries = SetEntries::new(redis, sets, clock, name(config, ledger));
            Arc::new(entries.map_err(of_redis)?)
        }
        TimerKind::Wheel => {
            Arc::new(WheelSlots::new(redis, &config.wheel, clock).map_err(of_redis)?)
        }
        TimerKind::LedgerPoll => Arc::new(LedgerPoll::exact(clock)),
    })
}

/// Creates the timer of this ledger.
///
/// # Errors
/// [`ConfigError`] for an invalid URL of Redis.
#[cfg(feature = "engine")]
pub(super) fn timer(
    config: &Config,
    ledger: &MysqlLedger,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Timer>, ConfigError> {
    let (clock, shared) = (ledger.clock().clone(), Arc::clone(metrics));
    let timer: Arc<dyn Timer> = match config.timer {
        TimerKind::KeyExpiry => {
            let timer = KeyExpiry::new(
                &config.redis,
                config.sentinel,
                config.nudge,
                Events::wanted_by(config),
                name(config, ledger),
                clock,
                shared,
            );
            Arc::new(timer.map_err(of_redis)?)
        }
        TimerKind::SortedSet => {
            let sets = config.sorted_set.clone();
            let name = name(config, ledger);
            Arc::new(SortedSet::new(&config.redis, sets, clock, shared, name).map_err(of_redis)?)
        }
        TimerKind::Wheel => {
            let (redis, wheel) = (&config.redis, &config.wheel);
            let adopts = config.adopts_any();
            Arc::new(Wheel::new(redis, wheel, adopts, clock, shared).map_err(of_redis)?)
        }
        TimerKind::LedgerPoll => Arc::new(LedgerPoll::exact(clock)),
    };
    WithDelayedSets::around(timer, config, ledger.clock(), metrics).map_err(of_redis)
}

pub(super) fn of_redis(error: RedisError) -> ConfigError {
    ConfigError::one("redis.url", error.to_string())
}

/// The name of the ledger in Redis.
pub(super) fn name(config: &Config, ledger: &MysqlLedger) -> LedgerName {
    LedgerName::new(&config.ledger.name(), ledger.identity())
}

impl MysqlTaskClient {
    /// As [`TaskClient::connect`](crate::TaskClient::connect).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: &Config) -> Result<Self, ClientError> {
        let ledger = ledger(config)?;
        ledger.check().await?;
        let alarms = alarms(config, &ledger)?;
        Ok(Self::with_parts(ledger, alarms))
    }
}
