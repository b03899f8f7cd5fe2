//! Counters of a Redis server.

use redis::aio::MultiplexedConnection;

use crate::support::redis_commands::ask;

/// How many times the server has executed this command.
pub async fn calls(connection: &mut MultiplexedConnection, command: &str) -> i64 {
    let info: String = ask(connection, &["INFO", "commandstats"]).await;
    number_after(&info, &format!("cmdstat_{command}:calls="))
}

/// The number behind these words in an answer to `INFO`; 0 if they are not there.
pub fn number_after(info: &str, words: &str) -> i64 {
    let Some((_, rest)) = info.split_once(words) else {
        return 0;
    };
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap()
}
