//! The ledger in MySQL, the timer in Redis or none.

use std::sync::Arc;

use lapsed_core::telemetry::Metrics;
use lapsed_redis::{Events, LedgerName, RedisError};

use crate::client::{ClientError, MysqlTaskClient};
use crate::config::{Config, ConfigError, TimerKind};
use crate::ledger::Ledger as _;
use crate::ledger::mysql::MysqlLedger;
use crate::timer::Timer;
use crate::timer::key_expiry::KeyExpiry;
use crate::timer::ledger_poll::LedgerPoll;
use crate::timer::sorted_set::SortedSet;
#[cfg(feature = "engine")]
use crate::timer::sorted_set::delayed_sets::WithDelayedSets;
use crate::timer::wheel::Wheel;

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

/// Creates the timer of this ledger.
///
/// # Errors
/// [`ConfigError`] for an invalid URL of Redis.
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
    #[cfg(feature = "engine")]
    let timer =
        WithDelayedSets::around(timer, config, ledger.clock(), metrics).map_err(of_redis)?;
    Ok(timer)
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
        let timer = timer(config, &ledger, &Arc::new(Metrics::default()))?;
        Ok(Self::with_parts(ledger, timer))
    }
}
