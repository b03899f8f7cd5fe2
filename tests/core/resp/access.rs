//! Users: passwords, scopes, classes, masks, and the prefix of keys.

use std::time::Duration;

use super::rig::{RespServer, Wire};

/// A server with the users `default`, who may do everything, and `shop` with these settings.
fn with_shop(settings: &str) -> RespServer {
    let hash = lapsed_server::resp::hash_password(b"secret").unwrap();
    RespServer::with(&format!(
        "password = '{hash}'\n[[resp.users]]\nname = 'shop'\npassword = '{hash}'\n{settings}"
    ))
}

async fn login(server: &RespServer, login: &str) -> Wire {
    let mut wire = server.connect().await;
    wire.send(format!("AUTH {login}\r\n")).await;
    wire.read_until("+OK\r\n").await;
    wire
}

#[tokio::test]
async fn a_connection_is_closed_after_three_wrong_passwords() {
    let server = with_shop("");
    let mut wire = server.connect().await;
    wire.send("AUTH a\r\nAUTH b\r\nHELLO 3 AUTH shop c\r\nAUTH secret\r\nPING\r\n")
        .await;
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(wire.rest().await, wrong.repeat(3));
    let failed = "lapsed_logins_failed_total{server=\"resp\"} 3";
    assert!(server.metrics.render().contains(failed));
}

#[tokio::test]
async fn an_address_that_guesses_is_locked_out_and_costs_nothing() {
    let server = with_shop("");
    // Logged in before: it stays so, and may log in again.
    let mut known = login(&server, "secret").await;
    for guess in 0..20 {
        let mut wire = server.connect().await;
        wire.send(format!("AUTH wrong-{guess}\r\n")).await;
        let said = wire.read_until("\r\n").await;
        assert!(said.starts_with("-WRONGPASS invalid"), "{said}");
    }
    let locked =
        "-WRONGPASS too many wrong passwords came from this address, try again in a minute\r\n";
    let begun = tokio::time::Instant::now();
    for guess in 20..220 {
        let mut wire = server.connect().await;
        wire.send(format!("AUTH wrong-{guess}\r\n")).await;
        assert_eq!(wire.read_until(locked).await, locked);
    }
    // A hash takes tens of milliseconds, in a debug build many more.
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(known.says("PING").await, "+PONG");
    login(&server, "secret").await;
}

#[tokio::test]
async fn set_with_get_needs_the_scope_read() {
    let server = with_shop("scopes = 'schedule'");
    let mut shop = login(&server, "shop secret").await;
    assert_eq!(shop.says("SETEX C@m 100 secret").await, "+OK");
    let refused = "-NOPERM this user has no permissions to run the 'set .. get' command";
    assert_eq!(shop.says("SET C@m x KEEPTTL NX GET").await, refused);
    let mut all = login(&server, "secret").await;
    assert_eq!(all.says("SET C@m x KEEPTTL NX GET").await, "$6\r\nsecret");
}

#[tokio::test]
async fn resp_masks_the_arguments_that_http_masks() {
    let server = RespServer::with("[http]\nmask_payloads = 'Mail'\nmask_arguments = 'User'");
    let mut wire = server.connect().await;
    for key in ["Mail@send@1", "User@end@me", "Order@close@1"] {
        assert_eq!(wire.says(&format!("SETEX {key} 100 hush")).await, "+OK");
    }
    let refused = "-NOPERM payloads of this class are masked";
    assert_eq!(wire.says("GET Mail@send@1").await, refused);
    assert_eq!(wire.says("SET Mail@send@1 x EX 5 GET").await, refused);
    assert_eq!(wire.says("GET Order@close@1").await, "$4\r\nhush");
    let shown = wire.says("LAPSED.SHOW Mail@send@1").await;
    assert!(shown.contains("\"payload\":null"), "{shown}");
    for (pattern, found) in [("*", true), ("User@end@m*", false), ("User@end@h*", true)] {
        let scanned = wire
            .says(&format!("SCAN 0 COUNT 1000 MATCH {pattern}"))
            .await;
        assert_eq!(scanned.contains("User@end@hidden"), found, "{scanned}");
        assert!(!scanned.contains("User@end@me"), "{scanned}");
    }
}

#[tokio::test]
async fn the_prefix_of_a_framework_is_taken_off_and_shown() {
    let server = RespServer::with("[redis]\nkey_prefix = 'laravel_database_'");
    let mut wire = server.connect().await;
    for (line, reply) in [
        ("SETEX laravel_database_Order@close@1 100 v", "+OK"),
        ("GET Order@close@1", "$1\r\nv"),
        ("SETEX Order@close@2 100 w", "+OK"),
        ("GET laravel_database_Order@close@2", "$1\r\nw"),
        ("EXISTS laravel_database_Order@close@1 Order@close@2", ":2"),
        ("DEL laravel_database_Order@close@2", ":1"),
        ("EXPIRE laravel_database_Order@close@1 50", ":1"),
    ] {
        assert_eq!(wire.says(line).await, reply, "{line}");
    }
    let key = lapsed::TaskKey::parse("Order@close@1").unwrap();
    assert!(server.tasks.find(key).await.unwrap().is_some());
    for pattern in ["*", "laravel_database_Order@*", "Order@*"] {
        let scanned = wire.says(&format!("SCAN 0 MATCH {pattern}")).await;
        assert!(
            scanned.contains("$30\r\nlaravel_database_Order@close@1"),
            "{scanned}"
        );
    }
    wire.send(
        "MULTI\r\nSETEX laravel_database_Order@close@3 100 x\r\nGET Order@close@3\r\nEXEC\r\n",
    )
    .await;
    wire.read_until("*2\r\n+OK\r\n$1\r\nx\r\n").await;
}
