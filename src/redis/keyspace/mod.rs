//! The verbs on our keys.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::{Commands, Names, RedisError};
use crate::task::{TaskKey, UnixMs};

/// Most commands in one pipeline: beyond that the round trip no longer matters, the memory does.
pub(super) const PIPELINE_MAX: usize = 1000;

/// What the value of a key that lapsed armed begins with; its due milliseconds follow.
pub(super) const OUR_VALUE: &str = "lapsed:";

/// The keys of one Redis database, by the names they have outside of it. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Keyspace {
    commands: Commands,
    names: Names,
}

/// A key to be armed.
#[derive(Debug, Clone, Copy)]
pub struct ArmedKey<'a> {
    /// The task.
    pub key: &'a TaskKey,
    /// When it falls due, on the ledger's clock: written into the value.
    pub due: UnixMs,
    /// How long that is from now: Redis counts it on its own clock.
    pub remaining: Duration,
}

/// What arming does to a key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is overwritten.
    Replace,
    /// It stays.
    Keep,
}

/// How long a key has to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// It is not there. If it was due, Redis has dropped it and said so because of this question.
    Missing,
    /// It does not expire.
    Forever,
    /// Milliseconds; 0 and 1 are on the point of expiring.
    Ms(u64),
}

/// What writing several keys came to.
#[derive(Debug, Clone, Default)]
pub struct Put {
    /// How many were written.
    pub written: usize,
    /// Why the first of the others was not.
    pub error: Option<RedisError>,
}

/// What a server says about itself; nothing where it may not be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// New with every start of the process.
    pub run_id: Option<String>,
    /// Master or not.
    pub role: Option<Role>,
    /// For how long the process has run, at most: the server counts in whole seconds.
    pub uptime: Option<Duration>,
}

/// The part a server plays in replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It expires keys and takes writes.
    Master,
    /// It does neither.
    Replica,
}

impl Keyspace {
    /// Does no I/O.
    pub fn new(commands: Commands, key_prefix: &str) -> Self {
        Self {
            commands,
            names: Names::new(key_prefix),
        }
    }

    /// How names are written and read here.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The connection underneath.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Writes keys that expire when their task falls due, at the earliest in a millisecond. Tells how
    /// many were written; the others were there.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; any of the keys may have been written.
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
            let answers: Vec<Value> = self.commands.send("SET", &set).await?;
            written += answers
                .iter()
                .filter(|answer| **answer == Value::Okay)
                .count();
        }
        Ok(written)
    }

    /// Deletes keys. Whether they were there means nothing: a due one says 0 and emits its event.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; any of the keys may be gone.
    pub async fn disarm(&self, keys: &[TaskKey]) -> Result<(), RedisError> {
        for chunk in keys.chunks(PIPELINE_MAX) {
            let mut del = redis::cmd("DEL");
            chunk.iter().for_each(|key| {
                del.arg(self.names.task(key));
            });
            let mut pipeline = redis::pipe();
            pipeline.add_command(del).ignore();
            self.commands.send::<()>("DEL", &pipeline).await?;
        }
        Ok(())
    }

    /// How long these have to live, in their order. Redis drops those that are due, and says so to
    /// every listener, because they are asked for.
    ///
    /// # Errors
    /// When Redis refuses or does not answer.
    pub async fn pttl(&self, keys: &[TaskKey]) -> Result<Vec<Ttl>, RedisError> {
        self.touch_each(keys, |key| self.names.task(key)).await
    }

    /// As [`pttl`](Self::pttl), for sentinels and probes: names as they are in Redis.
    ///
    /// # Errors
    /// When Redis refuses or does not answer.
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

    /// Whether lapsed armed these, in their order; somebody's `SETEX` has another value.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn are_ours(&self, keys: &[TaskKey]) -> Result<Vec<bool>, RedisError> {
        let mut ours = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(PIPELINE_MAX) {
            // A foreign value can be large, and of any type: read no more than tells.
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
            let answers: Vec<Value> = self.commands.send("GETRANGE", &start).await?;
            let is_ours = |answer| matches!(answer, Value::BulkString(start) if start == OUR_VALUE.as_bytes());
            ours.extend(answers.into_iter().map(is_ours));
        }
        Ok(ours)
    }

    /// Writes empty keys that expire after so long, over what is there: sentinels and probes.
    ///
    /// # Errors
    /// When Redis does not answer; a refusal of some is in [`Put`].
    pub async fn put(&self, names: &[(String, Duration)]) -> Result<Put, RedisError> {
        let mut put = Put::default();
        for chunk in names.chunks(PIPELINE_MAX) {
            let mut set = pipeline(chunk.len());
            set.ignore_errors();
            for (name, expiry) in chunk {
                let expires = set.cmd("SET").arg(name).arg("");
                expires.arg("PX").arg(expiry_ms(*expiry));
            }
            let answers: Vec<Value> = self.commands.send("SET", &set).await?;
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

    /// Sends messages to the hint channels of daemons, by their numbers.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; some may have arrived.
    pub async fn publish_hints(&self, messages: Vec<(u64, String)>) -> Result<(), RedisError> {
        let mut publish = pipeline(messages.len());
        for (member, message) in messages {
            let channel = Names::hints(member);
            publish.cmd("PUBLISH").arg(channel).arg(message).ignore();
        }
        self.commands.send("PUBLISH", &publish).await
    }

    /// Asks the server who it is. One that may not be asked says nothing.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn server(&self) -> Result<Server, RedisError> {
        let mut info = redis::pipe();
        info.cmd("INFO")
            .arg("server")
            .cmd("INFO")
            .arg("replication");
        match self.commands.send::<(String, String)>("INFO", &info).await {
            Ok((server, replication)) => Ok(Server::read(&format!("{server}\n{replication}"))),
            Err(error) if error.is_refusal() => Ok(Server::default()),
            Err(error) => Err(error),
        }
    }
}

impl Server {
    fn read(info: &str) -> Self {
        let field = |name: &str| {
            let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim())
        };
        let role = match field("role") {
            Some("master") => Some(Role::Master),
            Some("slave" | "replica") => Some(Role::Replica),
            _ => None,
        };
        Self {
            run_id: field("run_id").map(str::to_owned),
            role,
            uptime: field("uptime_in_seconds")
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
        }
    }
}

impl Ttl {
    pub(super) fn from_answer(pttl: i64) -> Self {
        match pttl {
            -1 => Self::Forever,
            ms => u64::try_from(ms).map_or(Self::Missing, Self::Ms),
        }
    }
}

pub(super) fn pipeline(commands: usize) -> Pipeline {
    Pipeline::with_capacity(commands)
}

/// Redis takes no expiry of 0.
fn expiry_ms(remaining: Duration) -> u64 {
    u64::try_from(remaining.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_what_info_says() {
        let info =
            "# Server\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n\n# Replication\r\nrole:slave\r\n";
        let server = Server::read(info);
        assert_eq!(server.run_id.as_deref(), Some("abc"));
        assert_eq!(server.role, Some(Role::Replica));
        assert_eq!(server.uptime, Some(Duration::from_secs(7)));
        assert_eq!(Server::read("# nothing"), Server::default());
    }

    #[test]
    fn an_expiry_is_at_least_a_millisecond() {
        assert_eq!(expiry_ms(Duration::ZERO), 1);
        assert_eq!(expiry_ms(Duration::from_micros(2900)), 2);
    }

    #[test]
    fn answers_of_pttl_are_told_apart() {
        let read = [-2, -1, 0, 7].map(Ttl::from_answer);
        assert_eq!(read, [Ttl::Missing, Ttl::Forever, Ttl::Ms(0), Ttl::Ms(7)]);
    }
}
