//! What is handed to other programs by way of Redis.

use redis::{FromRedisValue, Pipeline};

use super::{Commands, RedisError};

/// Hands things over. What it says is done has been acknowledged by the server.
///
/// A connection that turns out to have been closed while it rested is made anew, and the command is sent once more: it
/// may then be there twice. Cloning is cheap, and clones share the connection.
///
/// # Cancel safety
/// What was handed to the connection is still sent.
#[derive(Debug, Clone)]
pub struct Deliveries {
    commands: Commands,
}

impl Deliveries {
    /// Does no I/O.
    pub fn new(commands: Commands) -> Self {
        Self { commands }
    }

    /// Appends an entry to a stream, which is then cut to about so many.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; in the latter case it may be there.
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

    /// Pushes onto the head of a list.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn push(&self, key: &str, value: &str) -> Result<(), RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.lpush(key, value).ignore();
        self.send("LPUSH", &pipeline).await
    }

    /// Sends a message, and tells how many received it.
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
