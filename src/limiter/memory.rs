//! Token buckets of this process: for a single daemon, for tests, and while a shared limiter does not reply.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{LimiterError, RateLimiter};
use crate::task::{Bucket, Grant, Rate};

/// A bucket for each route. Uses tokio's clock, so tests can pause it.
#[derive(Debug)]
pub struct MemoryLimiter {
    started: Instant,
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            buckets: Mutex::default(),
        }
    }
}

impl MemoryLimiter {
    /// Takes at most `wanted` starts from this member's share of the rate, one in `members`.
    pub fn take_share(&self, route: &str, rate: Rate, members: u32, wanted: u32) -> Grant {
        let now_us = self.started.elapsed().as_secs_f64() * 1e6;
        let mut buckets = self
            .buckets
            .lock()
            .expect("nothing panics while holding it");
        let bucket = buckets.entry(route.to_owned()).or_default();
        bucket.take_share(rate, members, wanted, now_us)
    }
}

#[async_trait]
impl RateLimiter for MemoryLimiter {
    async fn take(&self, route: &str, rate: Rate, wanted: u32) -> Result<Grant, LimiterError> {
        Ok(self.take_share(route, rate, 1, wanted))
    }
}
