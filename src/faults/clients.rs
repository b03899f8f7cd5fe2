//! How producers reach the ledger, and what they write down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::history::Story;

/// A producer gives up after this time: it never learns whether the operation happened.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What producers write down.
#[derive(Clone, Default)]
pub struct Stories(Arc<Mutex<BTreeMap<String, Story>>>);

impl Stories {
    pub fn add(&self, key: String, story: Story) {
        self.0.lock().expect("no panic").insert(key, story);
    }

    pub fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// Takes everything.
    pub fn take(&self) -> BTreeMap<String, Story> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

/// Waits for an answer. An error is none.
pub async fn answer<T, E>(asked: impl Future<Output = Result<T, E>>) -> Option<T> {
    timeout(PATIENCE, asked).await.ok()?.ok()
}

/// A connection to a server that speaks Redis, made again after each failure.
#[derive(Clone)]
pub struct RedisClient {
    port: u16,
    connection: Arc<tokio::sync::Mutex<Option<MultiplexedConnection>>>,
}

impl RedisClient {
    pub fn to(port: u16) -> Self {
        Self {
            port,
            connection: Arc::default(),
        }
    }

    /// Sends a command. `None`: no answer, or an error.
    pub async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Option<T> {
        let mut connection = self.connect().await?;
        let answer = timeout(PATIENCE, command.query_async(&mut connection)).await;
        match answer {
            Ok(Ok(value)) => Some(value),
            // An error that the server has answered leaves the connection as it is.
            Ok(Err(error)) if !error.is_io_error() && !error.is_connection_dropped() => None,
            _ => {
                *self.connection.lock().await = None;
                None
            }
        }
    }

    /// Sends the report of a worker. `None`: no answer.
    pub async fn report(&self, command: &redis::Cmd) -> Option<Reported> {
        let mut connection = self.connect().await?;
        let answer: redis::RedisResult<redis::Value> = command.query_async(&mut connection).await;
        match answer {
            Ok(_) => Some(Reported::Taken),
            Err(error) if error.code() == Some("FENCED") => Some(Reported::Fenced),
            Err(_) => {
                *self.connection.lock().await = None;
                None
            }
        }
    }

    async fn connect(&self) -> Option<MultiplexedConnection> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Some(connection.clone());
        }
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/0", self.port)).ok()?;
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(2)))
            .set_response_timeout(Some(Duration::from_secs(5)));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let connection = connection.await.ok()?;
        *kept = Some(connection.clone());
        Some(connection)
    }
}

/// The answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    Taken,
    Fenced,
}
