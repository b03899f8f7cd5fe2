//! Engines on the adapters that a configuration asks for, and on those in memory.

use std::sync::Arc;

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(not(feature = "mysql"))]
use super::not_in_this_build;
#[cfg(feature = "sqlite")]
use super::sqlite;
use crate::client::TaskClient;
use crate::config::{Config, ConfigError};
use crate::engine::{Engine, Parts};
use crate::handler::{Handlers, Router};
use crate::ledger::Ledger;
use crate::ledger::memory::MemoryLedger;
use crate::limiter::{MemoryLimiter, RateLimiter};
#[cfg(feature = "mysql")]
use crate::limiter::{ledger_limiter::LedgerLimiter, redis_limiter::RedisLimiter};
#[cfg(feature = "mysql")]
use crate::membership::RedisMembership;
use crate::membership::{Membership, MemoryMembership};
use crate::telemetry::Metrics;
use crate::timer::Timer;
use crate::timer::ledger_poll::LedgerPoll;
use crate::trace::Tracer;

/// The adapters that a configuration selects. Creating them does no I/O.
#[derive(Clone)]
pub struct Adapters {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// The timer.
    pub timer: Arc<dyn Timer>,
    /// The membership.
    pub membership: Arc<dyn Membership>,
    /// The rate limiter.
    pub limiter: Arc<dyn RateLimiter>,
    /// Metrics that all adapters share.
    pub metrics: Arc<Metrics>,
    /// Records the spans of tasks, if any does.
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Adapters {
    /// Creates the adapters.
    ///
    /// # Errors
    /// Returns [`ConfigError`] for invalid URLs and names, and for a ledger that this build lacks.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        #[cfg(feature = "sqlite")]
        if config.ledger.sqlite_file().is_some() {
            return Self::in_sqlite(config);
        }
        #[cfg(feature = "mysql")]
        return Self::in_mysql(config);
        #[cfg(not(feature = "mysql"))]
        Err(not_in_this_build(&config.ledger))
    }

    #[cfg(feature = "sqlite")]
    fn in_sqlite(config: &Config) -> Result<Self, ConfigError> {
        let ledger = sqlite::ledger(config)?;
        let timer = sqlite::timer(&ledger);
        Ok(Self {
            ledger,
            timer,
            membership: Arc::new(MemoryMembership::default()),
            limiter: Arc::new(MemoryLimiter::default()),
            metrics: Arc::new(Metrics::default()),
            tracer: None,
        })
    }

    #[cfg(feature = "mysql")]
    fn in_mysql(config: &Config) -> Result<Self, ConfigError> {
        let ledger = mysql::ledger(config)?;
        let metrics = Arc::new(Metrics::default());
        let timer = mysql::timer(config, &ledger, &metrics)?;
        let name = mysql::name(config, &ledger);
        let uses_redis = config.timer.uses_redis();
        let membership: Arc<dyn Membership> = match uses_redis && config.fleet.share {
            true => {
                let membership = RedisMembership::new(&config.redis, name.clone());
                Arc::new(membership.map_err(mysql::of_redis)?)
            }
            false => Arc::new(MemoryMembership::hiding_others()),
        };
        let limiter: Arc<dyn RateLimiter> = match uses_redis {
            true => Arc::new(RedisLimiter::new(&config.redis, name).map_err(mysql::of_redis)?),
            false => Arc::new(LedgerLimiter::new(Arc::clone(&ledger))),
        };
        Ok(Self {
            ledger,
            timer,
            membership,
            limiter,
            metrics,
            tracer: None,
        })
    }

    /// A producer on these adapters.
    pub fn client(&self) -> TaskClient {
        let tasks = TaskClient::with_parts(Arc::clone(&self.ledger), Arc::clone(&self.timer) as _);
        match &self.tracer {
            Some(tracer) => tasks.with_tracer(Arc::clone(tracer)),
            None => tasks,
        }
    }

    /// Creates an engine on these adapters.
    pub fn engine<S>(&self, config: &Config, handlers: Handlers<S>) -> Engine {
        let parts = Parts {
            ledger: Arc::clone(&self.ledger),
            timer: Arc::clone(&self.timer),
            membership: Arc::clone(&self.membership),
            limiter: Arc::clone(&self.limiter),
            router: Arc::new(Router::new(handlers, config)),
            metrics: Arc::clone(&self.metrics),
            tracer: self.tracer.clone(),
        };
        Engine::with_parts(parts, config)
    }
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

    /// As [`new`](Engine::new), with a recorder of the spans of tasks, such as an OpenTelemetry SDK.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the configuration is invalid.
    pub fn with_tracer<S>(
        config: Config,
        handlers: Handlers<S>,
        tracer: Arc<dyn Tracer>,
    ) -> Result<Self, ConfigError> {
        let adapters = Adapters {
            tracer: Some(tracer),
            ..Adapters::new(&config)?
        };
        Ok(adapters.engine(&config, handlers))
    }
}

/// Creates an engine and a producer on a ledger in memory, to try and test handlers without servers.
///
/// Uses tokio's clock, so tests can pause it. Nothing survives the process.
pub fn in_memory<S>(config: &Config, handlers: Handlers<S>) -> (Engine, TaskClient) {
    let ledger = Arc::new(MemoryLedger::default());
    let timer: Arc<dyn Timer> = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, Arc::clone(&timer) as _);
    let parts = Parts {
        ledger,
        timer,
        membership: Arc::new(MemoryMembership::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        router: Arc::new(Router::new(handlers, config)),
        metrics: Arc::new(Metrics::default()),
        tracer: None,
    };
    (Engine::with_parts(parts, config), tasks)
}
