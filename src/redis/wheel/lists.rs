//! The lists of producers, and the entries taken from them.

use std::num::NonZeroU64;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::{PIPELINE_BATCH, Run, SCRIPT_BATCH, WheelKeys};
use crate::RedisError;
use lapsed_core::task::{TaskKey, UnixMs};

/// Answer of `HSCAN`: the next cursor, and pairs of field and value.
type Hscan = (u64, Vec<(Vec<u8>, Vec<u8>)>);

/// A page ends after this many bytes.
const PAGE_BYTES: usize = 1024 * 1024;

/// Entries of one page of taken ones.
const TAKEN_PAGE: usize = 100;

/// Reads a page of a list. ARGV from 3: the list, the list of refused elements, how many elements to skip, how many to
/// read, the longest element that is read, and after how many bytes to stop. An element that is too long is moved to the
/// refused ones, by this script, because it is not worth sending.
///
/// Returns the number of elements moved, then the elements.
const READ: &str = "\
local list, refused, at = ARGV[3], ARGV[4], tonumber(ARGV[5]) \
local left, longest, room = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]) \
local out = {0} \
while left > 0 and room > 0 do \
  local element = redis.pcall('LINDEX', list, at) \
  if type(element) ~= 'string' then break end \
  left = left - 1 \
  if #element <= longest then \
    out[#out + 1] = element \
    room = room - #element \
    at = at + 1 \
  else \
    redis.call('RPUSH', refused, element) \
    redis.call('LREM', list, 1, element) \
    out[1] = out[1] + 1 \
  end \
end \
return out";

/// Handles elements of a list. ARGV from 3: the list, the list of refused elements, the run of the server, and 1 if
/// the last tick must be of this run; then for each element itself, `take`, `refuse` or `drop`, and for `take` the field and
/// the value for the hash of taken entries, the due time, and for how many milliseconds equal entries are counted.
///
/// Equal entries with one due time have the same field but for a number, which counts them in this run of the server. The
/// copy is written before the element is removed, so that an error between the two loses nothing. Returns for each element
/// its number, or 0 if it was gone. Elements that are not taken have the number 1. Returns nil, and does nothing, if the last
/// tick is of another run, or missing.
const HANDLE: &str = "\
local own, list, refused, out = KEYS[1], ARGV[3], ARGV[4], {} \
if ARGV[6] == '1' then \
  local tick = redis.pcall('GET', own .. 'tick') \
  if type(tick) ~= 'string' or string.match(tick, '^%d+:([^:]*)') ~= ARGV[5] then return false end \
end \
for i = 7, #ARGV, 6 do \
  local element, verb, field, number = ARGV[i], ARGV[i + 1], ARGV[i + 2], 1 \
  local name, seen = field, own .. 'seen:' .. ARGV[5] .. ':' .. ARGV[i + 4] \
  local equal = string.match(field, '[^~]*$') \
  if verb == 'take' then \
    local before = redis.pcall('HGET', seen, equal) \
    if type(before) == 'string' then number = tonumber(before) + 1 end \
    if number > 1 then name = field .. number end \
    redis.call('HSET', own .. 'taken', name, ARGV[i + 3]) \
    redis.pcall('HSET', seen, equal, number) \
    redis.pcall('PEXPIRE', seen, ARGV[i + 5]) \
  end \
  if verb == 'refuse' then redis.call('RPUSH', refused, element) end \
  if redis.call('LREM', list, 1, element) == 0 then \
    if verb == 'take' then \
      redis.call('HDEL', own .. 'taken', name) \
      redis.pcall('HINCRBY', seen, equal, -1) \
    end \
    if verb == 'refuse' then redis.call('RPOP', refused) end \
    number = 0 \
  end \
  out[#out + 1] = number \
end \
return out";

/// A page of a producer's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Number of elements that were too long, and are among the refused ones now.
    pub too_long: usize,
    /// The elements, in order.
    pub elements: Vec<Vec<u8>>,
}

/// What becomes of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handling {
    /// It becomes the entry of a task.
    Take(Taking),
    /// It moves to the list of refused elements.
    Refuse,
    /// It is removed.
    Drop,
}

/// What an element becomes that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taking {
    /// The key of the first of equal entries; the number of a later one follows.
    pub key: TaskKey,
    /// The due time that the key stands for: equal entries are counted for it.
    pub counted_for: UnixMs,
    /// For how long they are counted.
    pub counted: Duration,
    /// When the task is due.
    pub due: UnixMs,
    /// When the element was read.
    pub heard: UnixMs,
}

/// An entry that was taken from a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The task.
    pub key: TaskKey,
    /// Its due time.
    pub due: UnixMs,
    /// When it was read.
    pub heard: UnixMs,
    /// The element, as it was in the list.
    pub element: Vec<u8>,
}

/// A page of taken entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenPage {
    /// The entries.
    pub entries: Vec<Taken>,
    /// Cursor of the next page; `None` after the last.
    pub next: Option<u64>,
}

impl WheelKeys {
    fn list(&self, slot: u32) -> String {
        format!("{}{slot}", self.key)
    }

    fn refused(&self) -> String {
        format!("{}refused", self.key)
    }

    /// Returns the number of lists among these slots that are not empty. One command, cheap for a thousand slots. Does not
    /// count as an access to the lists: see [`idle_s`](Self::idle_s).
    pub async fn count_lists(&self, slots: &[u32]) -> Result<usize, RedisError> {
        let mut count = redis::pipe();
        let exists = count.cmd("EXISTS");
        slots.iter().for_each(|slot| {
            exists.arg(self.list(*slot));
        });
        let (count,) = self.commands.send("EXISTS", &count).await?;
        Ok(count)
    }

    /// Returns for each slot, in order, whether its list has elements. Does not count as an access to the lists.
    pub async fn have_lists(&self, slots: &[u32]) -> Result<Vec<bool>, RedisError> {
        let mut found = Vec::with_capacity(slots.len());
        for batch in slots.chunks(PIPELINE_BATCH) {
            let mut query = redis::pipe();
            batch.iter().for_each(|slot| {
                query.cmd("EXISTS").arg(self.list(*slot));
            });
            let answers: Vec<bool> = self.commands.send("EXISTS", &query).await?;
            found.extend(answers);
        }
        Ok(found)
    }

    /// Returns at most `limit` elements of the list of a slot. Removes nothing.
    ///
    /// # Errors
    /// As all methods, and if the key is no list.
    pub async fn peek(&self, slot: u32, limit: usize) -> Result<Vec<Vec<u8>>, RedisError> {
        let mut query = redis::pipe();
        let range = query.cmd("LRANGE").arg(self.list(slot));
        range.arg(0).arg(limit.saturating_sub(1));
        let (elements,) = self.commands.send("LRANGE", &query).await?;
        Ok(elements)
    }

    /// Returns the length of the list of each slot, in order.
    pub async fn lengths(&self, slots: &[u32]) -> Result<Vec<u64>, RedisError> {
        let mut lengths = Vec::with_capacity(slots.len());
        for batch in slots.chunks(PIPELINE_BATCH) {
            let mut query = redis::pipe();
            query.ignore_errors();
            batch.iter().for_each(|slot| {
                query.cmd("LLEN").arg(self.list(*slot));
            });
            let answers: Vec<Value> = self.commands.send("LLEN", &query).await?;
            let length = |answer| u64::from_redis_value(answer).unwrap_or_default();
            lengths.extend(answers.into_iter().map(length));
        }
        Ok(lengths)
    }

    /// Returns for how many whole seconds no command has used the list of a slot; `None` if it is missing, or if the server
    /// does not know.
    pub async fn idle_s(&self, slot: u32) -> Result<Option<u64>, RedisError> {
        let mut query = redis::pipe();
        query.ignore_errors();
        query.cmd("OBJECT").arg("IDLETIME").arg(self.list(slot));
        let answers: Vec<Value> = self.commands.send("OBJECT", &query).await?;
        let idle = answers.into_iter().next().map(u64::from_redis_value);
        Ok(idle.and_then(Result::ok))
    }

    /// Reads a page of at most `limit` elements of the list of a slot, after the first `skip`. Moves elements longer than
    /// `longest` bytes to the refused ones.
    pub async fn read_list(
        &self,
        slot: u32,
        skip: u64,
        limit: u64,
        longest: usize,
    ) -> Result<ListPage, RedisError> {
        let mut read = self.script(READ);
        read.arg(self.list(slot)).arg(self.refused()).arg(skip);
        read.arg(limit.min(2 * SCRIPT_BATCH as u64));
        read.arg(longest).arg(PAGE_BYTES);
        let (answer,): (Vec<Value>,) = self.send(&read).await?;
        let mut answer = answer.into_iter();
        let too_long = answer.next().map(usize::from_redis_value);
        let elements = answer.map(Vec::from_redis_value).collect::<Result<_, _>>();
        Ok(ListPage {
            too_long: too_long.and_then(Result::ok).unwrap_or_default(),
            elements: elements.map_err(|_| RedisError::silence())?,
        })
    }

    /// Handles elements of the list of a slot. Returns for each, in order, whether it was still there: for an element that
    /// was taken, its number among equal ones in this run of the server.
    ///
    /// # Errors
    /// As all methods, and [`RedisError::Replaced`] if the data are of another run and the run does not catch up.
    pub async fn handle(
        &self,
        slot: u32,
        run: &Run,
        elements: &[(Vec<u8>, Handling)],
    ) -> Result<Vec<Option<NonZeroU64>>, RedisError> {
        let mut handled = Vec::with_capacity(elements.len());
        for batch in elements.chunks(SCRIPT_BATCH) {
            let mut handle = self.script(HANDLE);
            handle.arg(self.list(slot)).arg(self.refused());
            handle.arg(&*run.id).arg(u8::from(run.is_marked));
            for (element, handling) in batch {
                handle.arg(element);
                match handling {
                    Handling::Take(taking) => {
                        let Taking {
                            key,
                            counted_for,
                            counted,
                            due,
                            heard,
                        } = taking;
                        let mut value = format!("{}:{}:", due.0, heard.0).into_bytes();
                        value.extend(element);
                        handle.arg("take").arg(key.as_str()).arg(value);
                        handle.arg(counted_for.0).arg(counted.as_millis() as u64)
                    }
                    Handling::Refuse => handle.arg(&["refuse", "", "", "", ""]),
                    Handling::Drop => handle.arg(&["drop", "", "", "", ""]),
                };
            }
            let (batch,): (Option<Vec<u64>>,) = self.send(&handle).await?;
            let batch = batch.ok_or(RedisError::Replaced)?;
            handled.extend(batch.into_iter().map(NonZeroU64::new));
        }
        Ok(handled)
    }

    /// Returns the number of taken entries.
    pub async fn count_taken(&self) -> Result<u64, RedisError> {
        let mut count = redis::pipe();
        count.cmd("HLEN").arg(self.own("taken"));
        let (count,) = self.commands.send("HLEN", &count).await?;
        Ok(count)
    }

    /// Returns a page of the taken entries. Start with 0.
    pub async fn taken(&self, cursor: u64) -> Result<TakenPage, RedisError> {
        let mut scan = redis::pipe();
        scan.cmd("HSCAN").arg(self.own("taken")).arg(cursor);
        scan.arg("COUNT").arg(TAKEN_PAGE);
        let (page,): (Hscan,) = self.commands.send("HSCAN", &scan).await?;
        let (next, pairs) = page;
        Ok(TakenPage {
            entries: pairs
                .iter()
                .filter_map(|(k, v)| Taken::read(k, v))
                .collect(),
            next: (next != 0).then_some(next),
        })
    }

    /// Removes taken entries: their tasks are in the ledger.
    pub async fn forget_taken(&self, keys: &[&TaskKey]) -> Result<(), RedisError> {
        let mut remove = redis::pipe();
        let fields = remove.cmd("HDEL").arg(self.own("taken"));
        keys.iter().for_each(|key| {
            fields.arg(key.as_str());
        });
        fields.ignore();
        self.commands.send("HDEL", &remove).await
    }

    /// Moves a taken entry to the refused elements.
    pub async fn refuse_taken(&self, key: &TaskKey) -> Result<(), RedisError> {
        let mut get = redis::pipe();
        get.cmd("HGET").arg(self.own("taken")).arg(key.as_str());
        let (value,): (Option<Vec<u8>>,) = self.commands.send("HGET", &get).await?;
        if let Some(taken) = value.and_then(|value| Taken::read(key.as_str().as_bytes(), &value)) {
            let mut push = redis::pipe();
            push.cmd("RPUSH").arg(self.refused()).arg(taken.element);
            push.ignore();
            let () = self.commands.send("RPUSH", &push).await?;
        }
        self.forget_taken(&[key]).await
    }
}

impl Taken {
    fn read(key: &[u8], value: &[u8]) -> Option<Self> {
        let key = TaskKey::parse(std::str::from_utf8(key).ok()?).ok()?;
        let mut parts = value.splitn(3, |byte| *byte == b':');
        let mut time = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
        let (due, heard) = (UnixMs(time()?), UnixMs(time()?));
        let element = parts.next()?.to_vec();
        Some(Self {
            key,
            due,
            heard,
            element,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_entry_is_read_back_and_other_values_are_ignored() {
        let read = |value: &str| Taken::read(b"Wheel@m@~0123456789abc", value.as_bytes());
        let taken = read(r#"12:7:{"method":"m"}"#).unwrap();
        assert_eq!((taken.due, taken.heard), (UnixMs(12), UnixMs(7)));
        assert_eq!(taken.element, br#"{"method":"m"}"#);
        for other in ["", "12:7", "x:7:y", "12::y"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
