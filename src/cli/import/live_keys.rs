//! Keys that expire and whose names are task keys.

use std::time::Duration;

use anyhow::Context;
use lapsed::task::TaskKey;

use super::scripts::script;
use super::store::{Store, escaped};

/// The remaining time of keys, and when they expire by the clock of Redis. -1 for a key that does not expire, is no string, or
/// that lapsed has armed.
const TIMES: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer = {}
for i = 1, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  local value = redis.pcall('GETRANGE', KEYS[i], 0, 6)
  if left < 0 or type(value) ~= 'string' or value == 'lapsed:' then left = -1 end
  answer[#answer + 1] = left
  answer[#answer + 1] = now + left
end
return answer";

/// Deletes keys that expire at the time that is given, a little earlier or a little later.
const DELETE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer = {}
for i = 1, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  local value = redis.pcall('GETRANGE', KEYS[i], 0, 6)
  local apart = math.abs(now + left - tonumber(ARGV[i]))
  if left >= 0 and type(value) == 'string' and value ~= 'lapsed:' and apart <= 2000 then
    answer[i] = redis.call('DEL', KEYS[i])
  else
    answer[i] = 0
  end
end
return answer";

/// Reads the keys with a prefix, page by page. A key may be read more than once.
pub struct LiveKeys {
    prefix: String,
    cursor: u64,
    ended: bool,
}

/// The time that a key has to live.
pub struct TimeToLive {
    pub remaining: Duration,
    /// Milliseconds since 1970, by the clock of Redis.
    pub expires_ms: i64,
}

impl LiveKeys {
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            cursor: 0,
            ended: false,
        }
    }

    /// The next keys that are task keys without the prefix; `None` at the end.
    pub async fn page(
        &mut self,
        store: &Store,
    ) -> anyhow::Result<Option<Vec<(TaskKey, TimeToLive)>>> {
        if self.ended {
            return Ok(None);
        }
        let mut scan = redis::cmd("SCAN");
        scan.arg(self.cursor).arg("COUNT").arg(1000);
        scan.arg("MATCH")
            .arg(format!("{}*@*", escaped(&self.prefix)));
        let (next, names): (u64, Vec<Vec<u8>>) = scan
            .query_async(&mut store.connection())
            .await
            .context("search the keys of the source's Redis")?;
        self.cursor = next;
        self.ended = next == 0;
        let key = |name: &Vec<u8>| {
            let name = std::str::from_utf8(name).ok()?;
            TaskKey::parse(name.strip_prefix(&self.prefix)?).ok()
        };
        let keys: Vec<TaskKey> = names.iter().filter_map(key).collect();
        if keys.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut call = script(TIMES, keys.len());
        for key in &keys {
            call.arg(self.name(key.as_str().as_bytes()));
        }
        let times: Vec<i64> = call
            .query_async(&mut store.connection())
            .await
            .context("read the remaining times of keys")?;
        let times = times.as_chunks().0.iter();
        let found = keys
            .into_iter()
            .zip(times)
            .filter_map(|(key, [left, expires_ms])| {
                let remaining = Duration::from_millis(u64::try_from(*left).ok()?);
                let expires_ms = *expires_ms;
                Some((
                    key,
                    TimeToLive {
                        remaining,
                        expires_ms,
                    },
                ))
            });
        Ok(Some(found.collect()))
    }

    /// Deletes keys that still expire at this time, in milliseconds since 1970, and that lapsed has not armed. Returns which.
    pub async fn delete(&self, store: &Store, keys: &[(&[u8], i64)]) -> anyhow::Result<Vec<bool>> {
        let mut call = script(DELETE, keys.len());
        for (key, _) in keys {
            call.arg(self.name(key));
        }
        for (_, expires_ms) in keys {
            call.arg(*expires_ms);
        }
        let deleted = call.query_async(&mut store.connection()).await;
        deleted.context("delete keys of the source's Redis")
    }

    fn name(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), key].concat()
    }
}
