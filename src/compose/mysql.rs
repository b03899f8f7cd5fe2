//! The ledger in MySQL, the timer in Redis or none.

use std::sync::Arc;

use lapsed_core::telemetry::Metrics;
use lapsed_redis::{Events, LedgerName, RedisError};

use crate::client::{ClientError, MysqlTaskClient};
use crate::config::{Config, ConfigError, LedgerConfig, TimerKind};
use crate::ledger::Ledger as _;
use crate::ledger::mysql::MysqlLedger;
use crate::timer::Timer;
use crate::timer::key_expiry::KeyExpiry;
use crate::timer::ledger_poll::LedgerPoll;
use crate::timer::sorted_set::SortedSet;
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
    let clock = ledger.clock().clone();
    let metrics = Arc::clone(metrics);
    Ok(match config.timer {
        TimerKind::KeyExpiry => {
            let timer = KeyExpiry::new(
                &config.redis,
                config.sentinel,
                config.nudge,
                Events::wanted_by(config),
                name(config, ledger),
                clock,
                metrics,
            );
            Arc::new(timer.map_err(of_redis)?)
        }
        TimerKind::SortedSet => {
            let sets = config.sorted_set.clone();
            let name = name(config, ledger);
            Arc::new(SortedSet::new(&config.redis, sets, clock, metrics, name).map_err(of_redis)?)
        }
        TimerKind::Wheel => {
            let (redis, wheel) = (&config.redis, &config.wheel);
            let adopts = config.adopts_any();
            Arc::new(Wheel::new(redis, wheel, adopts, clock, metrics).map_err(of_redis)?)
        }
        TimerKind::LedgerPoll => Arc::new(LedgerPoll::exact(clock)),
    })
}

pub(super) fn of_redis(error: RedisError) -> ConfigError {
    ConfigError::one("redis.url", error.to_string())
}

/// The name of the ledger in Redis.
pub(super) fn name(config: &Config, ledger: &MysqlLedger) -> LedgerName {
    LedgerName::new(&name_of(&config.ledger), ledger.identity())
}

/// Database and table. Names a ledger without an identity: daemons may know its server by different addresses, but its
/// database and table by the same names.
#[doc(hidden)] // for `lapsed doctor`
pub fn name_of(ledger: &LedgerConfig) -> String {
    let url = ledger.url.expose().split('?').next().unwrap_or_default();
    let database = url.rsplit('/').next().unwrap_or_default();
    format!("{database}.{}", ledger.table)
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
