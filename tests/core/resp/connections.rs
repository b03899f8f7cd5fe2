//! Handshakes, users, limits and hostile clients.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::rig::RespServer;
use crate::support::wait::until;

#[tokio::test]
async fn a_handshake_answers_in_the_protocol_that_it_chose() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    let two = wire.says("HELLO 2 SETNAME worker").await;
    assert!(
        two.starts_with("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n"),
        "{two}"
    );
    assert_eq!(wire.says("CLIENT GETNAME").await, "$6\r\nworker");
    let three = wire.says("HELLO 3").await;
    assert!(
        three.starts_with("%7\r\n") && three.contains("$5\r\nproto\r\n:3\r\n"),
        "{three}"
    );
    assert_eq!(wire.says("GET C@m").await, "_");
    for (line, reply) in [
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        (
            "HELLO abc",
            "-ERR Protocol version is not an integer or out of range",
        ),
        ("HELLO 3 foo", "-ERR Syntax error in HELLO option 'foo'"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
        ),
        ("SELECT 0", "+OK"),
        ("SELECT 99", "-ERR DB index is out of range"),
        ("CONFIG GET timeout", "%1\r\n$7\r\ntimeout\r\n$1\r\n0"),
        ("ECHO a", "$1\r\na"),
        ("COMMAND INFO nothing", "*1\r\n_"),
        ("RESET", "+RESET"),
        ("GET C@m", "$-1"),
    ] {
        assert_eq!(wire.says(line).await, reply, "{line}");
    }
    assert!(wire.says("INFO").await.contains("loading:0\r\n"));
    assert!(
        wire.says("COMMAND DOCS setex")
            .await
            .contains("key seconds value")
    );
}

#[tokio::test]
async fn a_subscriber_of_the_old_protocol_may_only_subscribe() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("SUBSCRIBE a b\r\nPING\r\nGET C@m\r\nUNSUBSCRIBE\r\nPING\r\n")
        .await;
    let said = wire.read_until("+PONG\r\n").await;
    assert_eq!(
        said,
        "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n\
         -ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n\
         *3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n+PONG\r\n"
    );
}

#[tokio::test]
async fn a_user_may_do_what_its_scopes_say() {
    let hash = lapsed_server::resp::hash_password(b"secret").unwrap();
    let server = RespServer::with(&format!(
        "password = '{hash}'\n[[resp.users]]\nname = 'shop'\npassword = '{hash}'\nscopes = 'read'"
    ));
    let mut wire = server.connect().await;
    let refused = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let needed = "-NOAUTH Authentication required.\r\n";
    for (line, reply) in [
        ("GET C@m", needed),
        ("PING", needed),
        ("AUTH wrong", refused),
        ("HELLO 3 AUTH shop wrong", refused),
        ("AUTH secret", "+OK\r\n"),
        ("SETEX C@m 100 v", "+OK\r\n"),
        ("AUTH shop secret", "+OK\r\n"),
        ("AUTH shop secret", "+OK\r\n"),
        ("GET C@m", "$1\r\nv\r\n"),
        (
            "DEL C@m",
            "-NOPERM this user has no permissions to run the 'del' command\r\n",
        ),
        ("RESET", "+RESET\r\n"),
        ("GET C@m", needed),
    ] {
        wire.send(format!("{line}\r\n")).await;
        assert_eq!(wire.read_until(reply).await, reply, "{line}");
    }
}

#[tokio::test]
async fn limits_are_small_before_a_client_has_authenticated() {
    let hash = lapsed_server::resp::hash_password(b"secret").unwrap();
    let server = RespServer::with(&format!("password = '{hash}'"));
    for (sent, error) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*1\r\n$20000\r\n", "unauthenticated bulk length"),
    ] {
        let mut wire = server.connect().await;
        wire.send(sent).await;
        assert_eq!(
            wire.rest().await,
            format!("-ERR Protocol error: {error}\r\n")
        );
    }
}

#[tokio::test]
async fn invalid_protocol_closes_the_connection() {
    let server = RespServer::open();
    for (sent, error) in [
        ("*abc\r\n", "invalid multibulk length"),
        ("*2\r\n+OK\r\n", "expected '$', got '+'"),
        ("*1\r\n$abc\r\n", "invalid bulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*9999999999\r\n", "invalid multibulk length"),
        ("*1\r\n$999999999999\r\n", "invalid bulk length"),
        ("SET \"abc\r\n", "unbalanced quotes in request"),
    ] {
        let mut wire = server.connect().await;
        wire.send(sent).await;
        assert_eq!(
            wire.rest().await,
            format!("-ERR Protocol error: {error}\r\n"),
            "{sent}"
        );
    }
    for sent in ["POST / HTTP/1.1\r\n", "Host: a\r\n"] {
        let mut wire = server.connect().await;
        wire.send(sent).await;
        assert_eq!(wire.rest().await, "");
    }
    let mut endless = server.connect().await;
    endless.send("x".repeat(70_000)).await;
    assert_eq!(
        endless.rest().await,
        "-ERR Protocol error: too big inline request\r\n"
    );
}

#[tokio::test]
async fn a_client_that_still_sends_a_value_that_is_too_long_gets_the_error() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    wire.send("*4\r\n$5\r\nSETEX\r\n$3\r\nC@m\r\n$3\r\n100\r\n$17000000\r\n")
        .await;
    wire.send("x".repeat(3_000_000)).await;
    assert_eq!(
        wire.rest().await,
        "-ERR Protocol error: invalid bulk length\r\n"
    );
}

#[tokio::test]
async fn a_command_may_arrive_byte_by_byte() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for byte in b"*-1\r\n*0\r\n\r\n*4\r\n$5\r\nSETEX\r\n$3\r\nC@m\r\n$3\r\n100\r\n$2\r\n{}\r\n" {
        wire.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    wire.read_until("+OK\r\n").await;
    assert_eq!(wire.says("get 'C@m'").await, "$2\r\n{}");
}

#[tokio::test]
async fn too_many_connections_are_refused_and_counted() {
    let server = RespServer::with("max_connections = 1");
    let first = server.connect().await;
    let mut second = server.connect().await;
    assert_eq!(
        second.rest().await,
        "-ERR max number of clients reached\r\n"
    );
    let refused = "lapsed_resp_refused_total{reason=\"max_connections\"} 1";
    assert!(server.metrics.render().contains(refused));
    drop(first);
    until("there is room again", async || {
        let mut third = server.connect().await;
        third.send("QUIT\r\n").await;
        third.rest().await == "+OK\r\n"
    })
    .await;
}

#[tokio::test]
async fn connections_that_have_not_authenticated_give_way() {
    let hash = lapsed_server::resp::hash_password(b"secret").unwrap();
    let server = RespServer::with(&format!("password = '{hash}'\nmax_connections = 2"));
    let mut guest = server.connect().await;
    // This does not make it an older or a younger one.
    guest.send("RESET\r\n").await;
    guest.read_until("+RESET\r\n").await;
    let mut user = server.connect().await;
    user.send("AUTH secret\r\n").await;
    user.read_until("+OK\r\n").await;
    let mut second = server.connect().await;
    let mut third = server.connect().await;
    third.send("PING\r\n").await;
    third
        .read_until("-NOAUTH Authentication required.\r\n")
        .await;
    assert_eq!(
        (guest.rest().await, second.rest().await),
        Default::default()
    );
    user.send("PING\r\n").await;
    user.read_until("+PONG\r\n").await;
    third.send("AUTH secret\r\n").await;
    third.read_until("+OK\r\n").await;
    let mut refused = server.connect().await;
    assert_eq!(
        refused.rest().await,
        "-ERR max number of clients reached\r\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_command_that_drips_in_is_cut_off_after_a_minute() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    assert_eq!(wire.says("PING").await, "+PONG");
    for _ in 0..7 {
        // Fails once the other side has closed.
        let _ = wire.0.write_all(b"x").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(wire.rest().await, "");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_replies_is_cut_off_after_half_a_minute() {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    assert_eq!(wire.says("PING").await, "+PONG");
    let text = "x".repeat(100_000);
    let echo = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len());
    let begun = Instant::now();
    // The server reads no further while its replies wait, so the client cannot send any more either.
    let sending = async { while wire.0.write_all(echo.as_bytes()).await.is_ok() {} };
    let ended = timeout(Duration::from_secs(600), sending).await;
    ended.expect("the connection is closed");
    let took = begun.elapsed();
    assert!((30..60).contains(&took.as_secs()), "{took:?}");
    assert_eq!(server.says("PING").await, "+PONG");
}

#[tokio::test]
async fn one_address_does_not_take_all_connections() {
    let server = RespServer::with("max_connections = 16");
    let mut wires = Vec::new();
    for _ in 0..15 {
        let mut wire = server.connect().await;
        assert_eq!(wire.says("PING").await, "+PONG");
        wires.push(wire);
    }
    let refused = "-ERR max number of clients reached\r\n";
    assert_eq!(server.connect().await.rest().await, refused);
    let mut other = server.connect_from("127.0.0.2").await;
    assert_eq!(other.says("PING").await, "+PONG");
    assert_eq!(server.connect_from("127.0.0.3").await.rest().await, refused);
    drop(other);
    until("the place of the other address is free", async || {
        let mut third = server.connect_from("127.0.0.3").await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut third.0, b"QUIT\r\n").await;
        third.rest().await == "+OK\r\n"
    })
    .await;
}
