//! Builds the adapters of a configuration: the ledger in MySQL; the timer, membership and limiter in Redis.

use std::sync::Arc;

use crate::client::{ClientError, MysqlTaskClient, TaskClient};
use crate::config::{Config, ConfigError, LedgerConfig, TimerKind};
use crate::engine::{Engine, Parts};
use crate::handler::{Handlers, Router};
use crate::ledger::Ledger;
use crate::ledger::mysql::MysqlLedger;
use crate::ledger::transfer::Transfers;
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

/// The adapters that a configuration selects. Creating them does no I/O.
#[derive(Clone)]
pub struct Adapters {
    /// The ledger.
    pub ledger: Arc<MysqlLedger>,
    /// The timer.
    pub timer: Arc<dyn Timer>,
    /// The membership.
    pub membership: Arc<dyn Membership>,
    /// The rate limiter.
    pub limiter: Arc<dyn RateLimiter>,
    /// Metrics that all adapters share.
    pub metrics: Arc<Metrics>,
}

impl Adapters {
    /// Creates the adapters.
    ///
    /// # Errors
    /// Returns [`ConfigError`] for invalid URLs and names.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
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
                    clock,
                    Arc::clone(&metrics),
                );
                Arc::new(timer.map_err(|error| ConfigError::one("redis.url", error.to_string()))?)
            }
            TimerKind::SortedSet => {
                let sets = config.sorted_set.clone();
                let timer = SortedSet::new(&config.redis, sets, clock, Arc::clone(&metrics));
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
                Arc::new(
                    membership.map_err(|error| ConfigError::one("redis.url", error.to_string()))?,
                )
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
        Ok(Self {
            ledger,
            timer,
            membership,
            limiter,
            metrics,
        })
    }

    /// A producer on these adapters.
    pub fn client(&self) -> MysqlTaskClient {
        MysqlTaskClient::with_parts(Arc::clone(&self.ledger), Arc::clone(&self.timer))
    }

    /// Creates an engine on these adapters.
    pub fn engine<S>(&self, config: &Config, handlers: Handlers<S>) -> Engine {
        let parts = Parts {
            ledger: Arc::clone(&self.ledger) as _,
            timer: Arc::clone(&self.timer),
            membership: Arc::clone(&self.membership),
            limiter: Arc::clone(&self.limiter),
            router: Arc::new(Router::new(handlers, config)),
            metrics: Arc::clone(&self.metrics),
        };
        Engine::with_parts(parts, config)
    }
}

/// Creates a ledger alone, for a move.
///
/// # Errors
/// [`ConfigError`] for an invalid URL or table name.
pub fn ledger_to_move(config: &LedgerConfig) -> Result<Arc<dyn Transfers>, ConfigError> {
    Ok(Arc::new(MysqlLedger::new(config)?))
}

/// Database and table. Names a ledger without an identity: daemons may know its server by different addresses, but its
/// database and table by the same names.
pub(crate) fn name_of(ledger: &LedgerConfig) -> String {
    let url = ledger.url.expose().split('?').next().unwrap_or_default();
    let database = url.rsplit('/').next().unwrap_or_default();
    format!("{database}.{}", ledger.table)
}

impl Engine {
    /// Creates a daemon on the configured ledger and timer, with these handlers and the configured routes. Connects in
    /// [`run_until`](Engine::run_until).
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the configuration is invalid.
    pub fn new<S>(config: Config, handlers: Handlers<S>) -> Result<Self, ConfigError> {
        Ok(Adapters::new(&config)?.engine(&config, handlers))
    }
}

impl TaskClient {
    /// Connects to the ledger and the timer of a configuration. Redis is connected when first used.
    ///
    /// # Errors
    /// [`ClientError`]: an unusable configuration, or a ledger that cannot be reached or used.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: &Config) -> Result<Self, ClientError> {
        Ok(MysqlTaskClient::connect(config).await?.into())
    }
}

impl MysqlTaskClient {
    /// As [`TaskClient::connect`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: &Config) -> Result<Self, ClientError> {
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        Ok(adapters.client())
    }
}
