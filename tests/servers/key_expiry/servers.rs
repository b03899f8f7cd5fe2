//! Private servers, and what can be asked of them.

use lapsed_sandbox::{PrivateRedis, RedisOptions};
use redis::aio::{MultiplexedConnection, PubSub};
use tokio_stream::StreamExt;

use crate::key_expiry::harness::{Daemon, Options};
use crate::support::redis_commands::ask;
use crate::support::redis_stats::number_after;

/// A server that announces expired events.
pub(crate) fn server() -> RedisOptions {
    PrivateRedis::options().set("notify-keyspace-events", "Ex")
}

/// One that expires keys only when somebody touches them, as one with millions of keys all but does.
pub(crate) fn lazy_server() -> RedisOptions {
    server().set("enable-debug-command", "yes")
}

pub(crate) async fn lazy_daemon(redis: &PrivateRedis) -> Options {
    let () = ask(
        &mut admin(redis).await,
        &["DEBUG", "SET-ACTIVE-EXPIRE", "0"],
    )
    .await;
    Daemon::default_on(&redis.url())
}

pub(crate) async fn flags(admin: &mut MultiplexedConnection) -> String {
    let pair: (String, String) = ask(admin, &["CONFIG", "GET", "notify-keyspace-events"]).await;
    pair.1
}

pub(crate) async fn sentinels(admin: &mut MultiplexedConnection) -> i64 {
    let mut exists = redis::cmd("EXISTS");
    (1..=10).for_each(|number| {
        exists.arg(format!("#SILCK`{number}"));
    });
    exists.query_async(admin).await.unwrap()
}

/// What is done to some keys of a server that announces everything.
pub(crate) struct Changes(PubSub);

impl Changes {
    const END: &str = "__keyspace@0__:end";

    /// Listens to keys of database 0 whose names match this pattern.
    pub(crate) async fn of(redis: &PrivateRedis, names: &str) -> Self {
        let client = redis::Client::open(redis.url()).unwrap();
        let mut told = client.get_async_pubsub().await.unwrap();
        told.psubscribe(format!("__keyspace@0__:{names}"))
            .await
            .unwrap();
        told.subscribe(Self::END).await.unwrap();
        Self(told)
    }

    /// The events that the server has published so far, such as `set`.
    pub(crate) async fn until_now(mut self, admin: &mut MultiplexedConnection) -> Vec<String> {
        let () = ask(admin, &["PUBLISH", Self::END, ""]).await;
        let mut events = Vec::new();
        let mut told = self.0.on_message();
        loop {
            let message = told.next().await.unwrap();
            if message.get_channel_name() == Self::END {
                return events;
            }
            events.push(message.get_payload().unwrap());
        }
    }
}

/// How many connections the server has ever had.
pub(crate) async fn connections(admin: &mut MultiplexedConnection) -> i64 {
    let info: String = ask(admin, &["INFO", "stats"]).await;
    number_after(&info, "total_connections_received:")
}

pub(crate) async fn admin(redis: &PrivateRedis) -> MultiplexedConnection {
    redis.connect(0).await.unwrap()
}
