//! Buckets of tokens, each one key: how often something may happen, whoever does it.

use std::time::Duration;

use super::{Keyspace, RedisError};
use crate::task::{Grant, Rate};

/// Takes tokens by the generic cell rate algorithm (ITU-T I.371), on the server's clock. The key holds the moment at
/// which the bucket will be full, in microseconds, and goes by itself then.
///
/// KEYS: the bucket. ARGV: microseconds for one token, most tokens, tokens wanted. Answers how many were taken, and after
/// how many microseconds there is one more.
const TAKE: &str = "\
local time = redis.call('TIME') \
local now = time[1] * 1000000 + time[2] \
local interval, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) \
local full = tonumber(redis.call('GET', KEYS[1]) or 0) or 0 \
if full < now then full = now end \
if full > now + burst * interval then full = now + burst * interval end \
local taken = math.max(0, math.min(wanted, math.floor((now + burst * interval - full) / interval))) \
if taken > 0 then \
  full = full + taken * interval \
  redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil((full - now) / 1000) + 1) \
end \
local next = 0 \
if taken < wanted then next = math.ceil(full + interval - burst * interval - now) end \
return {taken, math.max(0, next)}";

/// The buckets of one ledger.
#[derive(Debug)]
pub struct Buckets {
    keyspace: Keyspace,
    ledger: String,
}

impl Buckets {
    /// Does no I/O. `ledger` tells the buckets of several ledgers apart.
    pub fn new(keyspace: Keyspace, ledger: &str) -> Self {
        let ledger = ledger.to_owned();
        Self { keyspace, ledger }
    }

    /// Takes at most so many tokens of the bucket of this name.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; the tokens may be taken.
    pub async fn take(&self, name: &str, rate: Rate, wanted: u32) -> Result<Grant, RedisError> {
        let mut take = redis::pipe();
        let key = self.keyspace.names().rate(&self.ledger, name);
        take.cmd("EVAL").arg(TAKE).arg(1).arg(key);
        take.arg(format!("{:.3}", rate.interval_us()));
        take.arg(rate.burst()).arg(wanted);
        let ((granted, next_us),): ((u32, u64),) =
            self.keyspace.commands().send("EVAL", &take).await?;
        Ok(Grant {
            granted: granted.min(wanted),
            next_in: Duration::from_micros(next_us),
        })
    }
}
