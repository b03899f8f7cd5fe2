//! The same random commands to a Redis server and to the RESP server: the replies are the same, byte by byte, but for
//! times that differ by what passes between two servers.
//!
//! A failure prints the shortest session that it finds, and a seed. `PROPTEST_RNG_SEED` runs others.

mod plan;

use std::sync::atomic::{AtomicU32, Ordering};

use lapsed_sandbox::PrivateRedis;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestCaseResult, TestRunner};

use self::plan::{Batch, session};
use crate::support::resp_server::RespServer;
use crate::support::resp_wire::{Reply, Wire, command};

const SESSIONS: u32 = 300;

#[tokio::test]
async fn two_redis_servers_do_not_differ() {
    let one = PrivateRedis::start().await.unwrap();
    let other = PrivateRedis::start().await.unwrap();
    compare(one.port(), other.port()).unwrap();
}

macro_rules! servers {
    ($($name:ident: $server:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let (redis, server) = (PrivateRedis::start().await.unwrap(), $server);
            if let Err(difference) = compare(redis.port(), server.port()) {
                panic!("{difference}");
            }
        }
    )*};
}

servers! {
    the_resp_server_in_memory_gives_the_same_replies: RespServer::in_memory();
    the_resp_server_on_sqlite_gives_the_same_replies: RespServer::on_sqlite().await;
    the_resp_server_on_mysql_gives_the_same_replies: RespServer::on_mysql().await;
}

#[tokio::test]
async fn a_server_that_differs_is_found() {
    let one = PrivateRedis::start().await.unwrap();
    let full = PrivateRedis::options().set("maxmemory", "1");
    let other = full.start().await.unwrap();
    let difference = compare(one.port(), other.port()).unwrap_err();
    assert!(difference.contains("OOM"), "{difference}");
}

/// Compares random sessions. The error is the shortest session in which a reply differs.
fn compare(redis: u16, server: u16) -> Result<(), String> {
    let config = Config {
        cases: SESSIONS,
        failure_persistence: None,
        ..Config::default()
    };
    let compare =
        |(version, batches): (u8, Vec<Batch>)| compare_session(redis, server, version, &batches);
    let result = TestRunner::new(config).run(&session(), compare);
    result.map_err(|error| error.to_string())
}

/// One connection to each, with keys that no other session uses.
fn compare_session(redis: u16, server: u16, version: u8, batches: &[Batch]) -> TestCaseResult {
    static SESSION: AtomicU32 = AtomicU32::new(1);
    let session = SESSION.fetch_add(1, Ordering::Relaxed);
    let (mut redis, mut server) = (Wire::connect(redis), Wire::connect(server));
    if version == 3 {
        for wire in [&mut redis, &mut server] {
            let greeting = wire.ask(&["HELLO", "3"]);
            prop_assert!(matches!(greeting, Reply::Map(_)), "{:?}", greeting);
        }
    }
    let started = jiff::Timestamp::now().as_second();
    let mut count = 0;
    for batch in batches {
        let commands: Vec<Vec<String>> = batch
            .iter()
            .map(|words| {
                count += 1;
                let word = |word: &String| in_session(word, session, started, count);
                words.iter().map(word).collect()
            })
            .collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        redis.send(&bytes);
        server.send(&bytes);
        for words in commands {
            let (expected, found) = (redis.reply(), server.reply());
            if !is_same(&expected, &found) {
                return Err(TestCaseError::fail(format!(
                    "RESP{version} {words:?}: redis-server says {expected:?}, lapsed {found:?}"
                )));
            }
        }
    }
    Ok(())
}

/// A word of the `count`th command of a session, which is sent now: no two keys of sessions are the same. A relative time
/// may meet an absolute one, and no other relative one.
fn in_session(word: &str, session: u32, started: i64, count: u32) -> String {
    match word.as_bytes() {
        [b'{', digit, b'}'] => format!("Order@close@{session}@{}", char::from(*digit)),
        [b'[', digit, b']', thousand @ ..] => {
            let seconds = u32::from(digit - b'0') * 100_000 + count * 200;
            format!("{seconds}{}", String::from_utf8_lossy(thousand))
        }
        [b'|', digit, b'|', thousand @ ..] => {
            let seconds = moment(started, *digit);
            format!("{seconds}{}", String::from_utf8_lossy(thousand))
        }
        [b'(', digit, b')'] => {
            let now = jiff::Timestamp::now().as_millisecond();
            (moment(started, *digit) * 1_000 - now).to_string()
        }
        // The same for both servers, so it may be the same twice.
        [b'<', digit, b'>', thousand @ ..] => {
            let seconds = started + i64::from(digit - b'0') * 100_000 + 50_000;
            format!("{seconds}{}", String::from_utf8_lossy(thousand))
        }
        _ => word.to_owned(),
    }
}

/// Unix seconds.
fn moment(started: i64, digit: u8) -> i64 {
    started + i64::from(digit - b'0') * 100_000 + 70_000
}

fn is_same(expected: &Reply, found: &Reply) -> bool {
    match (expected, found) {
        (Reply::Integer(expected), Reply::Integer(found)) => {
            expected.abs_diff(*found) <= tolerance(*expected)
        }
        // Of `EXEC`.
        (Reply::Array(expected), Reply::Array(found)) => {
            expected.len() == found.len()
                && expected
                    .iter()
                    .zip(found)
                    .all(|(one, other)| is_same(one, other))
        }
        _ => expected == found,
    }
}

/// Times are 200 s apart, and their size tells the unit: seconds to wait, milliseconds to wait, Unix seconds, Unix
/// milliseconds.
fn tolerance(time: i64) -> u64 {
    match time {
        ..90_000 => 0,
        90_000..9_000_000 => 60,
        9_000_000..1_500_000_000 => 60_000,
        1_500_000_000..900_000_000_000 => 60,
        900_000_000_000.. => 60_000,
    }
}
