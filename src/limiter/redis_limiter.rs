//! Buckets that all daemons of a ledger share, in Redis.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::{LimiterError, RateLimiter};
use crate::config::RedisConfig;
use crate::redis::{Buckets, Commands, Endpoint, Keyspace, RedisError};
use crate::task::{Grant, Rate};

/// How long Redis may take to answer: what is due does not wait for it.
const PATIENCE: Duration = Duration::from_millis(250);

/// Buckets in Redis, on a connection of their own: they must not queue behind a thousand keys being armed.
#[derive(Debug)]
pub struct RedisLimiter(Buckets);

impl RedisLimiter {
    /// Does no I/O. Daemons of another ledger have other buckets; `ledger` is its name, the same for whoever uses it.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(redis: &RedisConfig, ledger: &str) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        let keyspace = Keyspace::new(commands, &redis.key_prefix);
        Ok(Self(Buckets::new(keyspace, ledger)))
    }
}

#[async_trait]
impl RateLimiter for RedisLimiter {
    async fn take(&self, route: &str, rate: Rate, wanted: u32) -> Result<Grant, LimiterError> {
        match timeout(PATIENCE, self.0.take(route, rate, wanted)).await {
            Ok(taken) => taken
                .map_err(|error| LimiterError::new("cannot ask redis how many may start", error)),
            Err(_) => Err(LimiterError::silence()),
        }
    }
}
