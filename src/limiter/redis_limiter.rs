//! Token buckets in Redis, shared by all daemons of a ledger.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::{LimiterError, RateLimiter};
use crate::config::RedisConfig;
use crate::redis::{Commands, Endpoint, FullAt, Keyspace, LedgerName, RedisError, TokenBuckets};
use crate::task::{Grant, Rate};

/// Longest wait for a reply. Due tasks do not wait longer for Redis.
const PATIENCE: Duration = Duration::from_millis(250);

/// Buckets in Redis, on a separate connection, so that they do not queue behind bulk arming.
///
/// Keeps the last reply about each bucket. A bucket that Redis loses is therefore taken as empty, and not as full.
#[derive(Debug)]
pub struct RedisLimiter {
    buckets: TokenBuckets,
    seen: Mutex<HashMap<String, FullAt>>,
}

impl RedisLimiter {
    /// Does no I/O. `ledger` is the name that all daemons of a ledger share. Other ledgers have other buckets.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn new(redis: &RedisConfig, ledger: impl Into<LedgerName>) -> Result<Self, RedisError> {
        Ok(Self::on(Endpoint::new(redis)?, redis, ledger))
    }

    /// The same on this endpoint.
    #[doc(hidden)] // for a model of the server
    pub fn on(endpoint: Endpoint, redis: &RedisConfig, ledger: impl Into<LedgerName>) -> Self {
        let keyspace = Keyspace::new(Commands::new(endpoint), &redis.key_prefix);
        Self {
            buckets: TokenBuckets::new(keyspace, ledger.into()),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, FullAt>> {
        self.seen.lock().expect("nothing panics while holding it")
    }
}

#[async_trait]
impl RateLimiter for RedisLimiter {
    async fn take(&self, route: &str, rate: Rate, wanted: u32) -> Result<Grant, LimiterError> {
        let seen = self.seen().get(route).copied().unwrap_or_default();
        let take = self.buckets.take(route, rate, wanted, seen);
        let (taken, full_at) = match timeout(PATIENCE, take).await {
            Ok(Ok((grant, full_at))) => (Ok(grant), full_at),
            // Starts are now granted locally, without the bucket.
            Ok(Err(error)) => {
                let error = LimiterError::new("cannot ask redis how many may start", error);
                (Err(error), FullAt::UNKNOWN)
            }
            Err(_) => (Err(LimiterError::silence()), FullAt::UNKNOWN),
        };
        self.seen().insert(route.to_owned(), full_at);
        taken
    }
}
