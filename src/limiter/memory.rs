//! Buckets of this process: for one daemon, for tests, and for a daemon that cannot ask the others.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{LimiterError, RateLimiter};
use crate::task::{Bucket, Grant, Rate};

/// A bucket for each route. It runs on tokio's clock, so a test that pauses time moves it by hand.
#[derive(Debug)]
pub struct MemoryLimiter {
    begun: Instant,
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            buckets: Mutex::default(),
        }
    }
}

impl MemoryLimiter {
    /// Takes at most so many starts where only one in `members` is ours.
    pub fn take_share(&self, route: &str, rate: Rate, members: u32, wanted: u32) -> Grant {
        let now_us = self.begun.elapsed().as_secs_f64() * 1e6;
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
