//! Redis clients in their default configuration. Each runs the same steps, and gets the replies that a Redis server gives.

mod handshakes;
mod programs;
mod redis_rs;

use std::ffi::OsStr;

use lapsed_sandbox::PrivateRedis;

use self::programs::Client;
use crate::support::not_tried::not_tried;
use crate::support::resp_server::RespServer;

/// What a client prints: the step, and what it was answered. `<= n` is a number that a few minutes may have lowered.
const EXPECTED: [(&str, &str); 15] = [
    ("setex", "OK"),
    ("set px", "OK"),
    ("ttl", "<= 1000"),
    ("pttl", "<= 2000500"),
    ("get", r#"{"order":42}"#),
    ("get missing", "nil"),
    ("exists", "2"),
    ("expire", "1"),
    ("ttl moved", "<= 3000"),
    ("del", "1"),
    ("del again", "0"),
    ("pipeline", "OK OK 1 1 -2"),
    ("multi", "OK 1 -2"),
    (
        "unknown",
        "unknown command 'NOSUCH', with args beginning with: '{key}1' '7'",
    ),
    ("arity", "wrong number of arguments for 'setex' command"),
];

macro_rules! clients {
    ($($name:ident: $client:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let (redis, server) = servers().await;
            check($client, redis.port().to_string());
            check($client, server.port().to_string());
        }
    )*};
}

/// The steps are right if a Redis server passes them.
async fn servers() -> (PrivateRedis, RespServer) {
    (
        PrivateRedis::start().await.unwrap(),
        RespServer::on_sqlite().await,
    )
}

clients! {
    redis_cli: Client::RedisCli;
    redis_cli_with_resp3: Client::RedisCliResp3;
    hiredis: Client::Hiredis;
    redis_py: Client::RedisPy;
    node_redis: Client::NodeRedis;
    ioredis: Client::Ioredis;
    phpredis: Client::Phpredis;
    predis: Client::Predis;
    redis_rb: Client::RedisRb;
    go_redis_5: Client::GoRedis5;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_rs() {
    let (redis, server) = servers().await;
    for protocol in ["resp2", "resp3"] {
        for port in [redis.port(), server.port()] {
            let said = redis_rs::run(port, protocol, KEY).await;
            assert_expected(protocol, &said);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_connect_to_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    for client in [
        Client::RedisCli,
        Client::RedisPy,
        Client::NodeRedis,
        Client::Ioredis,
        Client::Phpredis,
        Client::Predis,
    ] {
        let socket = directory.path().join(format!("{client:?}"));
        let _server = RespServer::on_socket(&socket);
        check(client, &socket);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_of_clients_that_cannot_be_had() {
    let (redis, server) = servers().await;
    handshakes::all(redis.port());
    handshakes::all(server.port());
    not_tried(
        "handshakes_of_clients_that_cannot_be_had",
        handshakes::NOT_HAD,
    );
}

/// What all keys begin with.
const KEY: &str = "Order@close@1";

/// Runs the program of a client and compares what it prints.
fn check(client: Client, server: impl AsRef<OsStr>) {
    assert_expected(&format!("{client:?}"), &client.run(server, KEY));
}

fn assert_expected(client: &str, printed: &str) {
    let lines: Vec<(&str, &str)> = printed
        .lines()
        .map(|line| line.split_once(": ").unwrap_or((line, "")))
        // Some clients show `ERR`, some do not; and Redis leaves a space at the end of one error.
        .map(|(step, answer)| (step, answer.trim_start_matches("ERR ").trim_end()))
        .collect();
    let steps: Vec<&str> = lines.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, EXPECTED.map(|(step, _)| step), "{client}: {printed}");
    for ((step, expected), (_, found)) in EXPECTED.iter().zip(lines) {
        let expected = expected.replace("{key}", KEY);
        let is_right = match expected.strip_prefix("<= ") {
            Some(most) => {
                let (most, found): (i64, i64) =
                    (most.parse().unwrap(), found.parse().unwrap_or(-9));
                found <= most && found > most / 10 * 9
            }
            None => found == expected,
        };
        assert!(
            is_right,
            "{client}: `{step}` answers `{found}`, expected `{expected}`"
        );
    }
}
