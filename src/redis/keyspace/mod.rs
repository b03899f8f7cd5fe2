//! Commands on the keys of lapsed.

mod inspect;
mod server;

pub use inspect::{Found, Value};
pub use server::{Role, Server};

use std::collections::HashMap;
use std::time::Duration;

use redis::Pipeline;

use super::cluster::{View, slot_of};
use super::{Commands, EventKind, Master, Names, RedisError};
use lapsed_core::task::{TaskKey, UnixMs};

/// Most commands in one pipeline. A longer one costs memory and saves no time.
const PIPELINE_MAX: usize = 1000;

/// How long after the move of a slot events about its keys may be about the move.
const MOVED_LATELY: Duration = Duration::from_secs(2);

/// Longest note.
const NOTE_BYTES_MAX: usize = 64;

/// Prefix of the value of a key that lapsed armed. The due time in milliseconds follows.
const OUR_VALUE: &str = "lapsed:";

/// The keys of one Redis database. Translates between task keys and names in Redis. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Keyspace {
    commands: Commands,
    names: Names,
}

/// A key to arm.
#[derive(Debug, Clone, Copy)]
pub struct ArmedKey<'a> {
    /// The task.
    pub key: &'a TaskKey,
    /// Due time on the ledger's clock, written into the value.
    pub due: UnixMs,
    /// Time until then. Redis measures it on its own clock.
    pub remaining: Duration,
}

/// Where a key is, if it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// On this server.
    All,
    /// On this server or on another one, between which its slot is moving as both say. Each knows whether the other has it.
    WithAnother,
    /// On another server, or its slot has moved lately: what this one says of it proves nothing.
    Nothing,
}

/// How to treat a key that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Overwrite it.
    Replace,
    /// Keep it.
    Keep,
}

/// Remaining time of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// The key is missing. If it was due, this query made Redis delete it and publish its event.
    Missing,
    /// The key does not expire.
    Forever,
    /// Milliseconds. A key with 0 or 1 expires at once.
    Ms(u64),
}

/// The result of writing several keys.
#[derive(Debug, Clone, Default)]
pub struct Put {
    /// Number of keys written.
    pub written: usize,
    /// The first error.
    pub error: Option<RedisError>,
}

impl Keyspace {
    /// Does no I/O.
    pub fn new(commands: Commands, key_prefix: &str) -> Self {
        Self {
            commands,
            names: Names::new(key_prefix),
        }
    }

    /// Returns how names are written and parsed.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the connection.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The same, but what concerns one server concerns this master of a cluster.
    #[must_use]
    pub fn at(&self, master: &Master) -> Self {
        Self {
            commands: self.commands.at(master),
            names: self.names.clone(),
        }
    }

    /// Completes the name of a key that must be on this server. In a cluster it ends with a hash tag.
    ///
    /// # Errors
    /// If this node of a cluster has no slot.
    pub fn here(&self, name: &str) -> Result<String, RedisError> {
        Ok(format!("{name}{}", self.commands.tag()?))
    }

    /// Returns the master of the cluster that has each key, in order; `None` for a server that has all.
    ///
    /// # Errors
    /// If one has no master, or no node of the cluster answers.
    pub async fn owners(&self, keys: &[TaskKey]) -> Result<Vec<Option<Master>>, RedisError> {
        let Some(cluster) = self.commands.cluster() else {
            return Ok(vec![None; keys.len()]);
        };
        let topology = cluster.topology().await?;
        let owner = |key| {
            topology
                .owner(slot_of(self.names.task(key).as_bytes()))
                .cloned()
        };
        keys.iter()
            .map(|key| owner(key).map(Some).ok_or(RedisError::NoMaster(None)))
            .collect()
    }

    /// Returns for each key what this server knows of it, which was told `age` ago that the key was deleted. In a cluster
    /// that depends on the key's slot.
    ///
    /// # Errors
    /// If the node does not answer.
    pub async fn holds(&self, keys: &[TaskKey], age: Duration) -> Result<Vec<Holds>, RedisError> {
        let Some((cluster, home)) = self.commands.node() else {
            return Ok(vec![Holds::All; keys.len()]);
        };
        let view = cluster.view_of(&home.address).await?;
        let topology = cluster.topology().await?;
        let mut others: HashMap<&str, Option<View>> = HashMap::new();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let slot = slot_of(self.names.task(key).as_bytes());
            let moved_at = topology.moved_at(slot);
            if moved_at.is_some_and(|at| at.elapsed() <= MOVED_LATELY) {
                found.push(Holds::Nothing);
                continue;
            }
            if view.has_settled(slot) {
                found.push(Holds::All);
                continue;
            }
            let Some(moves) = view.move_of(slot) else {
                found.push(Holds::Nothing);
                continue;
            };
            let id = moves.other();
            if !others.contains_key(id) {
                let other = topology.masters.iter().find(|master| master.id == id);
                let view = match other {
                    Some(other) => self.at(other).view_if_older(other, age).await?,
                    None => None,
                };
                others.insert(id, view);
            }
            let other = others[id].as_ref().and_then(|view| view.move_of(slot));
            found.push(match other {
                Some(other) if moves.is_confirmed_by(other, &home.id) => Holds::WithAnother,
                _ => Holds::Nothing,
            });
        }
        Ok(found)
    }

    /// Returns the view of this node. `None` if it is a replica, or if its process may have started less than `age` ago: what
    /// it had got may be lost.
    async fn view_if_older(
        &self,
        node: &Master,
        age: Duration,
    ) -> Result<Option<View>, RedisError> {
        let Some(cluster) = self.commands.cluster() else {
            return Ok(None);
        };
        if !self.server().await?.is_master_since(age) {
            return Ok(None);
        }
        cluster.view_of(&node.address).await.map(Some)
    }

    /// Writes keys that expire when their tasks fall due, at least one millisecond from now. Returns how many were
    /// written; the others existed and were kept.
    ///
    /// # Errors
    /// If Redis rejects a command or does not reply. Any of the keys may have been written.
    pub async fn arm(
        &self,
        keys: &[ArmedKey<'_>],
        existing: Existing,
    ) -> Result<usize, RedisError> {
        let mut written = 0;
        for chunk in keys.chunks(PIPELINE_MAX) {
            let mut set = pipeline(chunk.len());
            for ArmedKey {
                key,
                due,
                remaining,
            } in chunk
            {
                let value = format!("{OUR_VALUE}{}", due.0);
                let expires = set.cmd("SET").arg(self.names.task(key)).arg(value);
                expires.arg("PX").arg(expiry_ms(*remaining));
                if existing == Existing::Keep {
                    expires.arg("NX");
                }
            }
            let answers: Vec<redis::Value> = self.commands.send("SET", &set).await?;
            written += answers
                .iter()
                .filter(|answer| **answer == redis::Value::Okay)
                .count();
        }
        Ok(written)
    }

    /// Deletes keys. Ignores how many existed: `DEL` of a due key returns 0 and publishes `expired`.
    ///
    /// # Errors
    /// If Redis rejects the command or does not reply. Any of the keys may have been deleted.
    pub async fn disarm(&self, keys: &[TaskKey]) -> Result<(), RedisError> {
        for chunk in keys.chunks(PIPELINE_MAX) {
            // One command for each: a node of a cluster refuses keys of several slots in one.
            let mut del = pipeline(chunk.len());
            chunk.iter().for_each(|key| {
                del.cmd("DEL").arg(self.names.task(key)).ignore();
            });
            self.commands.send::<()>("DEL", &del).await?;
        }
        Ok(())
    }

    /// Returns the remaining time of each key, in order. The query makes Redis delete due keys and publish their
    /// events.
    ///
    /// # Errors
    /// If Redis rejects a command or does not reply.
    pub async fn pttl(&self, keys: &[TaskKey]) -> Result<Vec<Ttl>, RedisError> {
        self.touch_each(keys, |key| self.names.task(key)).await
    }

    /// Like [`pttl`](Self::pttl), for sentinels and probes, by their names in Redis.
    ///
    /// # Errors
    /// If Redis rejects a command or does not reply.
    pub async fn touch(&self, names: &[String]) -> Result<Vec<Ttl>, RedisError> {
        self.touch_each(names, String::clone).await
    }

    async fn touch_each<K>(
        &self,
        keys: &[K],
        name: impl Fn(&K) -> String,
    ) -> Result<Vec<Ttl>, RedisError> {
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(PIPELINE_MAX) {
            let mut pttl = pipeline(chunk.len());
            chunk.iter().for_each(|key| {
                pttl.cmd("PTTL").arg(name(key));
            });
            let answers: Vec<i64> = self.commands.send("PTTL", &pttl).await?;
            found.extend(answers.into_iter().map(Ttl::from_answer));
        }
        Ok(found)
    }

    /// Returns for each key, in order, whether lapsed armed it, according to its value.
    ///
    /// # Errors
    /// If Redis does not reply.
    pub async fn are_ours(&self, keys: &[TaskKey]) -> Result<Vec<bool>, RedisError> {
        let mut ours = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(PIPELINE_MAX) {
            // The value of another program can be large and of any type, so only a prefix is read.
            let mut start = pipeline(chunk.len());
            start.ignore_errors();
            for key in chunk {
                let name = self.names.task(key);
                start
                    .cmd("GETRANGE")
                    .arg(name)
                    .arg(0)
                    .arg(OUR_VALUE.len() - 1);
            }
            let answers: Vec<redis::Value> = self.commands.send("GETRANGE", &start).await?;
            let is_ours = |answer| matches!(answer, redis::Value::BulkString(start) if start == OUR_VALUE.as_bytes());
            ours.extend(answers.into_iter().map(is_ours));
        }
        Ok(ours)
    }

    /// Writes empty keys with these expiries, and overwrites existing ones. For sentinels and probes.
    ///
    /// # Errors
    /// If Redis does not reply. Error replies to single keys are in [`Put`].
    pub async fn put(&self, names: &[(String, Duration)]) -> Result<Put, RedisError> {
        let mut put = Put::default();
        for chunk in names.chunks(PIPELINE_MAX) {
            let mut set = pipeline(chunk.len());
            set.ignore_errors();
            for (name, expiry) in chunk {
                let expires = set.cmd("SET").arg(name).arg("");
                expires.arg("PX").arg(expiry_ms(*expiry));
            }
            let answers: Vec<redis::Value> = self.commands.send("SET", &set).await?;
            for answer in answers {
                match answer.extract_error() {
                    Ok(_) => put.written += 1,
                    Err(error) => {
                        put.error
                            .get_or_insert_with(|| RedisError::of("SET", error));
                    }
                }
            }
        }
        Ok(put)
    }

    /// Publishes `expired` events of due tasks to every daemon. Arming their keys for a millisecond would publish the same, and
    /// `expire` before it: a daemon that cannot read the key before it is gone takes that for a program's. Returns false if
    /// this Redis user may not publish them; its keys are to be armed then.
    ///
    /// # Errors
    /// If the server does not reply. Some events may have been published.
    pub async fn announce_expired(&self, keys: &[TaskKey]) -> Result<bool, RedisError> {
        let channel = self.commands.endpoint().channel(EventKind::Expired);
        for chunk in keys.chunks(PIPELINE_MAX) {
            let event = |key| (channel.clone(), self.names.task(key));
            match self.publish(chunk.iter().map(event).collect()).await {
                Err(error) if error.is_refusal() => return Ok(false),
                answer => answer?,
            }
        }
        Ok(true)
    }

    /// Publishes messages on the hint channels of members.
    ///
    /// # Errors
    /// If Redis rejects a command or does not reply. Some messages may have been sent.
    pub async fn publish_hints(&self, messages: Vec<(u64, String)>) -> Result<(), RedisError> {
        let hints = messages.into_iter();
        let hints = hints.map(|(member, message)| (Names::hints(member), message));
        self.publish(hints.collect()).await
    }

    /// Publishes messages to channels, in this order.
    ///
    /// # Errors
    /// If the server refuses or does not reply.
    pub async fn publish(&self, messages: Vec<(String, String)>) -> Result<(), RedisError> {
        let mut publish = pipeline(messages.len());
        for (channel, message) in messages {
            publish.cmd("PUBLISH").arg(channel).arg(message).ignore();
        }
        self.commands.send("PUBLISH", &publish).await
    }

    /// Returns a note, or `None` if there is none. Reads at most `NOTE_BYTES_MAX`.
    ///
    /// # Errors
    /// If the server refuses or does not reply.
    pub async fn note(&self, name: &str) -> Result<Option<String>, RedisError> {
        let mut read = redis::pipe();
        read.cmd("GETRANGE")
            .arg(name)
            .arg(0)
            .arg(NOTE_BYTES_MAX - 1);
        let (found,): (Vec<u8>,) = self.commands.send("GETRANGE", &read).await?;
        let note = String::from_utf8(found).ok();
        Ok(note.filter(|note| !note.is_empty()))
    }

    /// Writes a note that stays.
    ///
    /// # Errors
    /// If the server refuses or does not reply; it may have been written.
    pub async fn write_note(&self, name: &str, note: &str) -> Result<(), RedisError> {
        let mut write = redis::pipe();
        write.cmd("SET").arg(name).arg(note).ignore();
        self.commands.send("SET", &write).await
    }
}

impl Ttl {
    fn from_answer(pttl: i64) -> Self {
        match pttl {
            -1 => Self::Forever,
            ms => u64::try_from(ms).map_or(Self::Missing, Self::Ms),
        }
    }
}

fn pipeline(commands: usize) -> Pipeline {
    Pipeline::with_capacity(commands)
}

/// Expiry in milliseconds, at least 1: Redis rejects 0.
fn expiry_ms(remaining: Duration) -> u64 {
    u64::try_from(remaining.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_at_least_a_millisecond() {
        assert_eq!(expiry_ms(Duration::ZERO), 1);
        assert_eq!(expiry_ms(Duration::from_micros(2900)), 2);
    }

    #[test]
    fn replies_of_pttl_are_distinguished() {
        let read = [-2, -1, 0, 7].map(Ttl::from_answer);
        assert_eq!(read, [Ttl::Missing, Ttl::Forever, Ttl::Ms(0), Ttl::Ms(7)]);
    }
}
