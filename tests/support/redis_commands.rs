//! Commands to a Redis server.

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

/// The answer to a command.
pub async fn ask<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(connection).await.unwrap()
}
