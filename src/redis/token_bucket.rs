//! Token buckets, one key each: a rate limit across all daemons.

use std::time::Duration;

use super::{Keyspace, LedgerName, RedisError};
use lapsed_core::task::{Grant, Rate};

/// Takes tokens by the generic cell rate algorithm (ITU-T I.371), on the server's clock. The key holds the time at
/// which the bucket is full, in microseconds, and expires then. A smaller value than the caller has seen means that the
/// key was lost. The bucket is then taken as empty, because the tokens taken by others are unknown.
///
/// KEYS: the bucket. ARGV: microseconds for one token, capacity in tokens, tokens wanted, the time that the caller saw
/// last. Returns the tokens taken, microseconds until the next token, and the new time.
const TAKE: &str = "\
local time = redis.call('TIME') \
local now = time[1] * 1000000 + time[2] \
local interval, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) \
local seen = tonumber(ARGV[4]) \
local empty = now + burst * interval \
local full = tonumber(redis.call('GET', KEYS[1]) or 0) or 0 \
local lost = seen > now and full + 1 < math.min(seen, empty) \
if lost then full = empty end \
if full < now then full = now end \
if full > empty then full = empty end \
local taken = math.max(0, math.min(wanted, math.floor((empty - full) / interval))) \
full = full + taken * interval \
if taken > 0 or lost then \
  redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil((full - now) / 1000) + 1) \
end \
local next = 0 \
if taken < wanted then next = math.ceil(full + interval - empty) end \
return {taken, math.max(0, next), string.format('%.3f', full)}";

/// The time at which a bucket is full by the server's last reply, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FullAt(f64);

impl FullAt {
    /// For a bucket whose state the server may have lost.
    pub const UNKNOWN: Self = Self(1e18);
}

/// The buckets of one ledger.
#[derive(Debug)]
pub struct TokenBuckets {
    keyspace: Keyspace,
    ledger: LedgerName,
}

impl TokenBuckets {
    /// Does no I/O. `ledger` keeps the buckets of several ledgers apart.
    pub fn new(keyspace: Keyspace, ledger: LedgerName) -> Self {
        Self { keyspace, ledger }
    }

    /// Takes up to `wanted` tokens from the bucket `name`. `seen` is the time of the previous reply.
    ///
    /// # Errors
    /// If Redis refuses or does not answer; the tokens may have been taken.
    pub async fn take(
        &self,
        name: &str,
        rate: Rate,
        wanted: u32,
        seen: FullAt,
    ) -> Result<(Grant, FullAt), RedisError> {
        let mut take = redis::pipe();
        let key = self.keyspace.names().rate(self.ledger.text(), name);
        take.cmd("EVAL").arg(TAKE).arg(1).arg(key);
        take.arg(format!("{:.3}", rate.interval_us()));
        take.arg(rate.burst()).arg(wanted);
        take.arg(format!("{:.3}", seen.0));
        let ((granted, next_us, full_at),): ((u32, u64, f64),) =
            self.keyspace.commands().send("EVAL", &take).await?;
        let grant = Grant {
            granted: granted.min(wanted),
            next_in: Duration::from_micros(next_us),
        };
        Ok((grant, FullAt(full_at)))
    }
}
