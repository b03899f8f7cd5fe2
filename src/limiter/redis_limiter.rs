//! Buckets that all daemons of a ledger share, in Redis.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::{LimiterError, RateLimiter};
use crate::config::RedisConfig;
use crate::redis::{Commands, Endpoint, FullAt, Keyspace, LedgerName, RedisError, TokenBuckets};
use crate::task::{Grant, Rate};

/// How long Redis may take to answer: what is due does not wait for it.
const PATIENCE: Duration = Duration::from_millis(250);

/// Buckets in Redis, on a connection of their own: they must not queue behind a thousand keys being armed.
///
/// What Redis answered last about each bucket is kept here: a bucket that Redis loses starts empty, not with another burst.
#[derive(Debug)]
pub struct RedisLimiter {
    buckets: TokenBuckets,
    seen: Mutex<HashMap<String, FullAt>>,
}

impl RedisLimiter {
    /// Does no I/O. Daemons of another ledger have other buckets; `ledger` is its name, the same for whoever uses it.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(redis: &RedisConfig, ledger: impl Into<LedgerName>) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        let keyspace = Keyspace::new(commands, &redis.key_prefix);
        Ok(Self {
            buckets: TokenBuckets::new(keyspace, ledger.into()),
            seen: Mutex::default(),
        })
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
            // Starts are taken elsewhere now, and of these the bucket knows nothing.
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
