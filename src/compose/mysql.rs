//! The ledger in MySQL; the timer, membership and limiter in Redis.

use std::sync::Arc;

use super::Adapters;
use crate::client::{ClientError, MysqlTaskClient};
use crate::config::{Config, ConfigError, LedgerConfig, TimerKind};
use crate::ledger::Ledger;
use crate::ledger::mysql::MysqlLedger;
use crate::limiter::RateLimiter;
use crate::limiter::ledger_limiter::LedgerLimiter;
use crate::limiter::redis_limiter::RedisLimiter;
use crate::membership::{Membership, MemoryMembership, RedisMembership};
use crate::redis::{Events, LedgerName};
use crate::telemetry::Metrics;
use crate::timer::Timer;
use crate::timer::key_expiry::KeyExpiry;
use crate::timer::ledger_poll::LedgerPoll;
use crate::timer::sorted_set::SortedSet;
use crate::timer::wheel::Wheel;

/// Creates the adapters, and returns the ledger once more.
///
/// # Errors
/// [`ConfigError`] for invalid URLs and names.
pub(super) fn adapters(config: &Config) -> Result<(Adapters, Arc<MysqlLedger>), ConfigError> {
    if config.ledger.sqlite_file().is_some() {
        let expected = "expected mysql://user:password@host:port/database";
        return Err(ConfigError::one("ledger.url", expected.to_owned()));
    }
    let metrics = Arc::new(Metrics::default());
    let ledger = Arc::new(MysqlLedger::new(&config.ledger)?);
    let name = LedgerName::new(&name_of(&config.ledger), ledger.identity());
    let clock = ledger.clock().clone();
    let timer: Arc<dyn Timer> = match config.timer {
        TimerKind::KeyExpiry => {
            let timer = KeyExpiry::new(
                &config.redis,
                config.sentinel,
                config.nudge,
                Events::wanted_by(config),
                name.clone(),
                clock,
                Arc::clone(&metrics),
            );
            Arc::new(timer.map_err(|error| ConfigError::one("redis.url", error.to_string()))?)
        }
        TimerKind::SortedSet => {
            let sets = config.sorted_set.clone();
            let metrics = Arc::clone(&metrics);
            let timer = SortedSet::new(&config.redis, sets, clock, metrics, name.clone());
            Arc::new(timer.map_err(|error| ConfigError::one("redis.url", error.to_string()))?)
        }
        TimerKind::Wheel => {
            let (redis, wheel) = (&config.redis, &config.wheel);
            let adopts = config.adopts_any();
            let timer = Wheel::new(redis, wheel, adopts, clock, Arc::clone(&metrics));
            Arc::new(timer.map_err(|error| ConfigError::one("redis.url", error.to_string()))?)
        }
        TimerKind::LedgerPoll => Arc::new(LedgerPoll::exact(clock)),
    };
    let uses_redis = config.timer.uses_redis();
    let membership: Arc<dyn Membership> = match uses_redis && config.fleet.share {
        true => {
            let membership = RedisMembership::new(&config.redis, name.clone());
            Arc::new(membership.map_err(|error| ConfigError::one("redis.url", error.to_string()))?)
        }
        false => Arc::new(MemoryMembership::default()),
    };
    let limiter: Arc<dyn RateLimiter> = match uses_redis {
        true => {
            let limiter = RedisLimiter::new(&config.redis, name);
            Arc::new(limiter.map_err(|error| ConfigError::one("redis.url", error.to_string()))?)
        }
        false => Arc::new(LedgerLimiter::new(Arc::clone(&ledger))),
    };
    let adapters = Adapters {
        ledger: Arc::clone(&ledger) as _,
        timer,
        membership,
        limiter,
        metrics,
        tracer: None,
    };
    Ok((adapters, ledger))
}

/// Database and table. Names a ledger without an identity: daemons may know its server by different addresses, but its
/// database and table by the same names.
pub(crate) fn name_of(ledger: &LedgerConfig) -> String {
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
        let (adapters, ledger) = adapters(config)?;
        ledger.check().await?;
        Ok(Self::with_parts(ledger, adapters.timer))
    }
}
