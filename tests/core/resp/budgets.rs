//! What one client may use: every limit together with every other.

use std::time::Duration;

use lapsed::task::State;
use lapsed::{TaskKey, engine::Metrics};
use tokio::time::Instant;

use super::rig::{RespServer, Wire};
use crate::support::wait::until;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Longest payload.
const PAYLOAD: usize = 64 * KIB;

/// A command as clients send it.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn setex(key: &str, value: &[u8]) -> Vec<u8> {
    command(&[b"SETEX", key.as_bytes(), b"100", value])
}

async fn exists(server: &RespServer, key: &str) -> bool {
    let found = server.tasks.find(TaskKey::parse(key).unwrap()).await;
    found
        .unwrap()
        .is_some_and(|task| task.state == State::Pending)
}

fn refused_for_memory(metrics: &Metrics) -> u64 {
    const LINE: &str = "lapsed_resp_refused_total{reason=\"memory\"} ";
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(LINE));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_transaction_whose_replies_are_too_long_changes_nothing() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let value = "x".repeat(PAYLOAD - 2);
    wire.send(setex("C@long", value.as_bytes())).await;
    wire.read_until("+OK\r\n").await;
    wire.send("MULTI\r\nSETEX C@new 100 a\r\n").await;
    wire.send("GET C@long\r\n".repeat(70)).await;
    wire.send("EXEC\r\n").await;
    let said = wire.read_until("bytes\r\n").await;
    assert!(
        said.ends_with(
            "-EXECABORT Transaction discarded because its replies have more than 4194304 bytes\r\n"
        ),
        "{}",
        &said[said.len().saturating_sub(200)..]
    );
    assert!(!exists(&server, "C@new").await);
    // A few are allowed.
    wire.send("MULTI\r\n").await;
    wire.send("GET C@long\r\n".repeat(10)).await;
    wire.send("EXEC\r\nPING\r\n").await;
    let said = wire.read_until("+PONG\r\n").await;
    assert_eq!(said.matches(&value).count(), 10);
}

/// What is read of the ledger is bounded, too.
#[tokio::test]
async fn a_transaction_that_reads_too_long_values_changes_nothing() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let value = vec![b'x'; PAYLOAD - 2];
    let keys: Vec<String> = (0..66).map(|n| format!("C@long@{n}")).collect();
    for key in &keys {
        wire.send(setex(key, &value)).await;
    }
    // Each value is written over before it is answered, so the replies are short.
    let write = |key: &String| [setex(key, b"y"), command(&[b"GET", key.as_bytes()])].concat();
    for (count, said) in [(66, "-EXECABORT "), (60, "y\r\n")] {
        wire.send("PING\r\nMULTI\r\n").await;
        wire.read_until("+PONG\r\n+OK\r\n").await;
        wire.send(keys[..count].iter().flat_map(write).collect::<Vec<u8>>())
            .await;
        wire.send("EXEC\r\nECHO end\r\n").await;
        let reply = wire.read_until("$3\r\nend\r\n").await;
        let reply = reply.replace("+QUEUED\r\n", "");
        assert!(reply.contains(said), "{count}: {reply}");
    }
}

#[tokio::test]
async fn a_transaction_has_a_limit_of_commands_keys_and_bytes() {
    let server = RespServer::open();
    let keys = |count: usize| (0..count).map(|n| format!("C@m@{n}")).collect::<Vec<_>>();
    let del = |count: usize| {
        let keys = keys(count);
        let mut words: Vec<&[u8]> = vec![b"DEL"];
        words.extend(keys.iter().map(String::as_bytes));
        command(&words)
    };
    let value = vec![b'x'; PAYLOAD];
    let long = vec![b'x'; MIB];
    for (sent, limit) in [
        (b"PING\r\n".repeat(10_001), "10000 commands"),
        ([del(6_000), del(6_000)].concat(), "10000 keys"),
        (setex("C@m", &value).repeat(65), "4194304 bytes"),
        (command(&[b"ECHO", &long]).repeat(5), "4194304 bytes"),
        (
            [
                command(&[b"ECHO", &long[..MIB - 1024]]).repeat(4),
                setex("C@m", &value),
            ]
            .concat(),
            "4194304 bytes",
        ),
    ] {
        let mut wire = server.connect().await;
        wire.send("MULTI\r\n").await;
        wire.send(sent).await;
        wire.send("EXEC\r\n").await;
        let said = wire.read_until("previous errors.\r\n").await;
        let error = format!("-ERR a transaction has at most {limit}\r\n");
        assert!(said.contains(&error), "{limit}");
    }
    assert!(!exists(&server, "C@m").await);
}

#[tokio::test]
async fn a_reply_that_is_made_of_few_bytes_is_bounded_in_a_transaction() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("MULTI\r\n").await;
    wire.send("COMMAND DOCS\r\n".repeat(2_000)).await;
    wire.send("EXEC\r\n").await;
    let said = wire.read_until("bytes\r\n").await;
    assert!(said.contains("-EXECABORT Transaction discarded because its replies"));
    let mut words: Vec<&[u8]> = vec![b"COMMAND", b"DOCS"];
    words.extend(vec![&b"get"[..]; 1_000]);
    wire.send(command(&words)).await;
    let error = "-ERR expected at most 256 names of commands\r\n";
    assert_eq!(wire.read_until(error).await, error);
}

#[tokio::test]
async fn a_delete_of_many_keys_answers_for_all_of_them() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let keys: Vec<String> = (0..3_000).map(|n| format!("C@m@{n}")).collect();
    for key in &keys {
        wire.send(setex(key, b"v")).await;
    }
    wire.send("PING\r\n").await;
    wire.read_until("+PONG\r\n").await;
    for (name, reply) in [("EXISTS", ":3000"), ("DEL", ":3000"), ("DEL", ":0")] {
        let mut words: Vec<&[u8]> = vec![name.as_bytes()];
        words.extend(keys.iter().map(String::as_bytes));
        wire.send(command(&words)).await;
        let reply = format!("{reply}\r\n");
        assert_eq!(wire.read_until(&reply).await, reply, "{name}");
    }
}

#[tokio::test]
async fn names_of_channels_are_short() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send(command(&[b"SUBSCRIBE", &[b'x'; 256]])).await;
    let error = "-ERR name of a channel has 256 bytes, expected at most 255\r\n";
    assert_eq!(wire.read_until(error).await, error);
    wire.send(command(&[b"SUBSCRIBE", &[b'x'; 255]])).await;
    wire.read_until(":1\r\n").await;
}

/// 80 commands of 1 MiB, each short of its last byte.
async fn half_sent(server: &RespServer, before: &str) -> Vec<Wire> {
    let value = vec![b'x'; MIB];
    let whole = command(&[b"ECHO", &value]);
    let mut wires = Vec::new();
    for _ in 0..80 {
        let mut wire = server.connect().await;
        wire.send(before).await;
        // Fails once the other side has closed.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut wire.0, &whole[..MIB]).await;
        wires.push(wire);
    }
    wires
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partly_sent_commands_are_dropped_in_favour_of_others() {
    let server = RespServer::open();
    let mut wires = half_sent(&server, "").await;
    let value = vec![b'x'; PAYLOAD];
    let begun = Instant::now();
    let mut other = server.connect().await;
    other.send(setex("C@m", &value)).await;
    other.read_until("+OK\r\n").await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert!(exists(&server, "C@m").await);
    until("the oldest are closed", async || {
        refused_for_memory(&server.metrics) >= 80 - 32
    })
    .await;
    let said = wires[0].rest().await;
    assert_eq!(
        said,
        "-ERR clients hold all the memory that they may use together, closing this connection\r\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_transactions_are_dropped_in_favour_of_others() {
    let server = RespServer::open();
    let value = vec![b'x'; 60 * KIB];
    let mut wires = Vec::new();
    for _ in 0..20 {
        let mut wire = server.connect().await;
        wire.send("MULTI\r\n").await;
        let sent = setex("C@held", &value).repeat(60);
        let _ = tokio::io::AsyncWriteExt::write_all(&mut wire.0, &sent).await;
        wires.push(wire);
    }
    let mut other = server.connect().await;
    other.send(setex("C@m", &[b'x'; PAYLOAD])).await;
    other.read_until("+OK\r\n").await;
    until("the oldest are closed", async || {
        refused_for_memory(&server.metrics) >= 10
    })
    .await;
    assert!(!exists(&server, "C@held").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_replies_are_dropped_in_favour_of_others() {
    let server = RespServer::open();
    let value = vec![b'x'; PAYLOAD - 2];
    let mut other = server.connect().await;
    other.send(setex("C@long", &value)).await;
    other.read_until("+OK\r\n").await;
    let mut wires = Vec::new();
    for _ in 0..40 {
        let mut wire = server.connect().await;
        wire.send("GET C@long\r\n".repeat(400)).await;
        wires.push(wire);
    }
    let begun = Instant::now();
    other.send("GET C@long\r\nPING\r\n").await;
    let said = other.read_until("+PONG\r\n").await;
    assert_eq!(said.len(), "$65534\r\n\r\n+PONG\r\n".len() + value.len());
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_pattern_is_short() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let long = [b'b'; 1025];
    for (words, error) in [
        (
            vec![&b"SCAN"[..], b"0", b"MATCH", &long],
            "-ERR pattern has 1025 bytes, expected at most 1024\r\n",
        ),
        (
            vec![&b"CONFIG"[..], b"GET", &long],
            "-ERR expected at most 1024 bytes of patterns\r\n",
        ),
    ] {
        wire.send(command(&words)).await;
        assert_eq!(wire.read_until(error).await, error);
    }
}

#[tokio::test]
async fn a_value_that_is_too_long_is_dropped_and_named() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for bytes in [PAYLOAD + 1, MIB + 1, 5 * MIB] {
        wire.send(setex("C@m", &vec![b'x'; bytes])).await;
        let error = format!(
            "-ERR value has {bytes} bytes, expected at most 65536: it is the payload of a task\r\n"
        );
        assert_eq!(wire.read_until(&error).await, error);
    }
    wire.send(command(&[b"ECHO", &vec![b'x'; MIB + 1]])).await;
    let error = "-ERR an argument has 1048577 bytes, expected at most 1048576\r\n";
    assert_eq!(wire.read_until(error).await, error);
    // What follows is read as before, also in the same packet, and in a transaction the error counts.
    let long = setex("C@m", &vec![b'x'; 2 * MIB]);
    wire.send([&b"MULTI\r\n"[..], &long, b"EXEC\r\nPING\r\n"].concat())
        .await;
    let said = wire.read_until("+PONG\r\n").await;
    assert!(
        said.ends_with("-EXECABORT Transaction discarded because of previous errors.\r\n+PONG\r\n"),
        "{said}"
    );
    let mut too_long = server.connect().await;
    too_long
        .send("*4\r\n$5\r\nSETEX\r\n$3\r\nC@m\r\n$3\r\n100\r\n$17000000\r\n")
        .await;
    assert_eq!(
        too_long.rest().await,
        "-ERR Protocol error: invalid bulk length\r\n"
    );
}

#[tokio::test]
async fn watched_keys_have_a_limit_of_bytes() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let value = "x".repeat(PAYLOAD - 2);
    let keys: Vec<String> = (0..70).map(|number| format!("C@long@{number}")).collect();
    for key in &keys {
        wire.send(setex(key, value.as_bytes())).await;
    }
    wire.send("PING\r\n").await;
    wire.read_until("+PONG\r\n").await;
    let refused = "-ERR the values of watched keys have more than 4194304 bytes";
    assert_eq!(
        wire.says(&format!("WATCH {}", keys.join(" "))).await,
        refused
    );
    // What is watched already counts.
    assert_eq!(
        wire.says(&format!("WATCH {}", keys[..40].join(" "))).await,
        "+OK"
    );
    assert_eq!(
        wire.says(&format!("WATCH {}", keys[40..].join(" "))).await,
        refused
    );
    let mut other = server.connect().await;
    assert_eq!(other.says(&format!("EXPIRE {} 200", keys[39])).await, ":1");
    assert_eq!(
        wire.says("MULTI\r\nPING\r\nEXEC").await,
        "+OK\r\n+QUEUED\r\n*-1"
    );
    assert_eq!(
        wire.says(&format!("WATCH {}", keys[40..].join(" "))).await,
        "+OK"
    );
    assert_eq!(
        wire.says("MULTI\r\nPING\r\nEXEC").await,
        "+OK\r\n+QUEUED\r\n*1\r\n+PONG"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_wait_or_take_no_replies_leave_turns_to_others() {
    let server = RespServer::working(
        "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '10s' }\n",
    );
    let many = "PING\r\n".repeat(2_000);
    let mut wires = Vec::new();
    for _ in 0..40 {
        let mut wire = server.connect().await;
        wire.send(format!("LAPSED.TAKE mail BLOCK 60000\r\n{many}"))
            .await;
        wires.push(wire);
    }
    until("all wait", async || server.waiting() == 40).await;
    for _ in 0..40 {
        let mut wire = server.connect().await;
        // The replies are far more than the kernel takes.
        wire.send(format!("{}{many}", "COMMAND\r\n".repeat(400)))
            .await;
        wires.push(wire);
    }
    let mut other = server.connect().await;
    other.send(&many).await;
    other.read_until(&"+PONG\r\n".repeat(2_000)).await;
}
