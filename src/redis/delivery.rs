//! Delivery of tasks to other programs through Redis.

mod delayed_set;

use redis::{FromRedisValue, Pipeline};

pub use self::delayed_set::{DelayedSet, DueJob, MovedJob, RegisterPage, SeenJob};
use super::{Commands, RedisError};

/// Delivers entries and messages. A returned success was acknowledged by the server.
///
/// If an idle connection turns out to be closed, the command is sent once more on a new one; the entry may then be
/// there twice. Clones share the connection.
///
/// # Cancel safety
/// A command that was handed to the connection is sent even if the caller is cancelled.
#[derive(Debug, Clone)]
pub struct Deliveries {
    commands: Commands,
}

impl Deliveries {
    /// Does no I/O.
    pub fn new(commands: Commands) -> Self {
        Self { commands }
    }

    /// Appends an entry to a stream, and trims the stream to about `entries_max` entries.
    ///
    /// # Errors
    /// If Redis rejects the command or does not reply. Without a reply, the entry may have been added.
    pub async fn append(
        &self,
        key: &str,
        entries_max: Option<u64>,
        fields: &[(&str, &str)],
    ) -> Result<(), RedisError> {
        let mut pipeline = redis::pipe();
        let add = pipeline.cmd("XADD").arg(key);
        if let Some(entries) = entries_max {
            add.arg("MAXLEN").arg("~").arg(entries);
        }
        add.arg("*").arg(fields).ignore();
        self.send("XADD", &pipeline).await
    }

    /// Pushes a value onto the head of a list.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn push(&self, key: &str, value: &str) -> Result<(), RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.lpush(key, value).ignore();
        self.send("LPUSH", &pipeline).await
    }

    /// Publishes a message. Returns the number of receivers.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn publish(&self, channel: &str, message: &str) -> Result<u64, RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.publish(channel, message);
        let (receivers,) = self.send("PUBLISH", &pipeline).await?;
        Ok(receivers)
    }

    async fn send<T: FromRedisValue>(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
    ) -> Result<T, RedisError> {
        match self.commands.send(command, pipeline).await {
            Err(error) if error.is_closed_connection() => {
                self.commands.send(command, pipeline).await
            }
            answered => answered,
        }
    }
}
