//! Keys of the wheel: one sorted set of entries for each slot, an index of them, and the lists of producers.

#[cfg(feature = "engine")]
mod lists;
mod scripts;

#[cfg(feature = "engine")]
pub use lists::{Handling, Taken, Taking};

use std::ops::Range;
use std::sync::Arc;

use redis::{FromRedisValue, Pipeline, Value};

use self::scripts::{ARM, MARK, REMOVE};
use super::{Commands, RedisError};
use lapsed_core::task::{KeyBucket, TaskKey, UnixMs};

/// Most entries of one script, which blocks the server for about a millisecond.
const SCRIPT_BATCH: usize = 250;

/// Most queries of one pipeline.
const PIPELINE_BATCH: usize = 200;

/// Buckets of keys that share a hash of the index. With a million tasks, each of 8,192 hashes is small enough for the
/// compact encoding.
const BUCKETS_PER_HASH: u16 = 2;

/// The wheel in Redis. Clones share the connection.
///
/// | key | type | holds |
/// |---|---|---|
/// | `<key><slot>` | list | entries of producers |
/// | `<key>lapsed:<slot>` | sorted set | task keys by due time in milliseconds |
/// | `<key>lapsed:due:<hash>` | hash | the due time of each task key, to find its slot |
/// | `<key>lapsed:tick` | string | the last tick that was handled, the run of the server, and the tick from which visits are counted in it |
/// | `<key>lapsed:seen:<run>:<due>` | hash | how many equal entries were taken for a due time |
/// | `<key>lapsed:taken` | hash | entries taken from lists and not adopted yet |
/// | `<key>refused` | list | elements of producers' lists that cannot be tasks |
///
/// # Errors
/// Each method fails if Redis refuses a command, or does not answer: its changes may then have been made in part. A key of
/// a wrong type counts as empty.
#[derive(Debug, Clone)]
pub struct WheelKeys {
    commands: Commands,
    key: String,
    slots: u32,
    tick_ms: i64,
}

/// An entry of a slot: a task key, unchecked, and its due time.
pub type SlotEntry = (Vec<u8>, UnixMs);

/// The last tick that a daemon has handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastTick {
    /// Its number, counted from 1970.
    pub tick: i64,
    /// The run of the server in which it was handled; `None` if the value does not say.
    pub run: Option<String>,
    /// The tick from which visits are counted in that run; `None` if the value does not say.
    pub from: Option<i64>,
}

/// A run of the server, between a start and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// What distinguishes it from others.
    pub id: Arc<str>,
    /// The last tick was written in this run. False only while missed ticks are caught up.
    pub is_marked: bool,
}

impl WheelKeys {
    /// Does no I/O. `key` is the prefix of all keys.
    pub fn new(commands: Commands, key: String, slots: u32, tick_ms: i64) -> Self {
        Self {
            commands,
            key,
            slots,
            tick_ms,
        }
    }

    /// Names the keys, and the size of the wheel.
    pub fn scope(&self) -> String {
        let Self {
            key,
            slots,
            tick_ms,
            ..
        } = self;
        format!("wheel:{key}/{slots}/{tick_ms}ms")
    }

    /// Returns the connection.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    fn own(&self, name: &str) -> String {
        format!("{}lapsed:{name}", self.key)
    }

    fn slot_set(&self, slot: u32) -> String {
        self.own(&slot.to_string())
    }

    /// Starts a call of a script. `EVAL` rather than `EVALSHA`: no server has to know the script.
    fn script(&self, text: &str) -> Pipeline {
        let mut script = redis::pipe();
        let command = script.cmd("EVAL").arg(text).arg(1).arg(self.own(""));
        command.arg(self.tick_ms).arg(self.slots);
        script
    }

    async fn send<T: FromRedisValue>(&self, script: &Pipeline) -> Result<T, RedisError> {
        self.commands.send("EVAL", script).await
    }

    /// Writes entries, and moves those of known keys. With `keep`, an entry that is not due by then stays as it is. Returns
    /// how many were written.
    pub async fn arm(
        &self,
        entries: &[(&TaskKey, UnixMs)],
        keep: Option<UnixMs>,
    ) -> Result<usize, RedisError> {
        let mut written = 0;
        for batch in entries.chunks(SCRIPT_BATCH) {
            let mut script = self.script(ARM);
            script.arg(keep.map_or(-1, |now| now.0));
            for (key, due) in batch {
                script.arg(hash_of(key)).arg(key.as_str()).arg(due.0);
            }
            let (count,): (usize,) = self.send(&script).await?;
            written += count;
        }
        Ok(written)
    }

    /// Removes entries that are not due later than the given time; without one, all.
    pub async fn remove(&self, entries: &[(&TaskKey, Option<UnixMs>)]) -> Result<(), RedisError> {
        for batch in entries.chunks(SCRIPT_BATCH) {
            let mut script = self.script(REMOVE);
            for (key, latest) in batch {
                let latest = latest.map_or(i64::MAX, |latest| latest.0);
                script.arg(hash_of(key)).arg(key.as_str()).arg(latest);
            }
            script.ignore();
            let () = self.send(&script).await?;
        }
        Ok(())
    }

    /// Returns the due time of each key, in order; `None` without an entry.
    pub async fn due_times(&self, keys: &[TaskKey]) -> Result<Vec<Option<UnixMs>>, RedisError> {
        let mut found = Vec::with_capacity(keys.len());
        for batch in keys.chunks(PIPELINE_BATCH) {
            let mut query = redis::pipe();
            query.ignore_errors();
            for key in batch {
                let index = self.own(&format!("due:{}", hash_of(key)));
                query.cmd("HGET").arg(index).arg(key.as_str());
            }
            let answers: Vec<Value> = self.commands.send("HGET", &query).await?;
            let due = |answer| i64::from_redis_value(answer).ok().map(UnixMs);
            found.extend(answers.into_iter().map(due));
        }
        Ok(found)
    }

    /// Returns the entries of each slot with `from <= due < below`, in order of due time; of each slot those at these
    /// positions among them.
    pub async fn due_in(
        &self,
        slots: &[u32],
        from: Option<UnixMs>,
        below: UnixMs,
        positions: Range<usize>,
    ) -> Result<Vec<SlotEntry>, RedisError> {
        let mut found = Vec::new();
        for batch in slots.chunks(PIPELINE_BATCH) {
            let mut query = redis::pipe();
            query.ignore_errors();
            for slot in batch {
                let from = from.map_or_else(|| "-inf".to_owned(), |from| from.0.to_string());
                let range = query.cmd("ZRANGEBYSCORE").arg(self.slot_set(*slot));
                range.arg(from).arg(format!("({}", below.0));
                range.arg("WITHSCORES").arg("LIMIT");
                range.arg(positions.start).arg(positions.len());
            }
            let answers: Vec<Value> = self.commands.send("ZRANGEBYSCORE", &query).await?;
            for answer in answers {
                // A wrong type is an error reply.
                let entries = Vec::<(Vec<u8>, f64)>::from_redis_value(answer);
                let entries = entries.unwrap_or_default().into_iter();
                found.extend(entries.map(|(member, score)| (member, UnixMs(score as i64))));
            }
        }
        Ok(found)
    }

    /// Returns the last handled tick; `None` if no daemon has written one.
    pub async fn last_tick(&self) -> Result<Option<LastTick>, RedisError> {
        let mut query = redis::pipe();
        query.ignore_errors();
        query.cmd("GET").arg(self.own("tick"));
        let answers: Vec<Value> = self.commands.send("GET", &query).await?;
        let text = answers.into_iter().next().map(String::from_redis_value);
        Ok(text
            .and_then(Result::ok)
            .and_then(|text| LastTick::read(&text)))
    }

    /// Writes that a tick is handled in a run of the server, in which visits are counted from `from`. Returns false if no
    /// tick was there: the server has lost its data, or is new.
    ///
    /// # Errors
    /// As all methods, and [`RedisError::Replaced`] if the run is marked and the tick is of another one, or missing.
    pub async fn mark_tick(&self, tick: i64, run: &Run, from: i64) -> Result<bool, RedisError> {
        let mut script = self.script(MARK);
        script.arg(tick).arg(&*run.id).arg(from);
        script.arg(u8::from(run.is_marked));
        let (was_there,): (Option<bool>,) = self.send(&script).await?;
        was_there.ok_or(RedisError::Replaced)
    }
}

impl LastTick {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let tick = parts.next()?.parse().ok()?;
        let run = parts.next().map(str::to_owned);
        let from = parts.next().and_then(|from| from.parse().ok());
        Some(Self { tick, run, from })
    }
}

/// The hash of the index that holds a key.
fn hash_of(key: &TaskKey) -> u16 {
    KeyBucket::of(key).number() / BUCKETS_PER_HASH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_tick_is_read_with_and_without_its_run() {
        let tick = |tick, run: Option<&str>, from| {
            let run = run.map(str::to_owned);
            Some(LastTick { tick, run, from })
        };
        assert_eq!(LastTick::read("17:ab:5"), tick(17, Some("ab"), Some(5)));
        assert_eq!(LastTick::read("17:ab"), tick(17, Some("ab"), None));
        assert_eq!(LastTick::read("17"), tick(17, None, None));
        assert_eq!(LastTick::read("x:ab"), None);
    }
}
