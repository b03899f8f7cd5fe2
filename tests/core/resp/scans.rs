//! `SCAN`: pages, options and cursors.

use std::collections::BTreeSet;

use super::rig::{RespServer, Wire};

/// Tasks of 250 keys, on a connection.
async fn scanned() -> (RespServer, Wire) {
    let server = RespServer::open();
    let mut wire = server.connect().await;
    for n in 0..250 {
        wire.send(format!("SETEX C@m@{n} 100 v\r\n")).await;
    }
    wire.send("PING\r\n").await;
    wire.read_until("+PONG\r\n").await;
    (server, wire)
}

/// The next cursor and the keys of a page.
async fn page(wire: &mut Wire, line: &str) -> (String, Vec<String>) {
    let reply = wire.says(line).await;
    let mut texts = reply.lines().filter(|line| !line.starts_with(['*', '$']));
    let next = texts.next().unwrap_or_else(|| panic!("{line}: {reply}"));
    (next.to_owned(), texts.map(str::to_owned).collect())
}

#[tokio::test]
async fn pages_of_a_scan_have_every_key_once() {
    let (_server, mut wire) = scanned().await;
    for (count, sizes) in [(1, [100, 100, 50].as_slice()), (150, &[150, 100])] {
        let (mut cursor, mut pages, mut all) = ("0".to_owned(), Vec::new(), Vec::new());
        loop {
            let line = format!("SCAN {cursor} COUNT {count}");
            let (next, keys) = page(&mut wire, &line).await;
            pages.push(keys.len());
            all.extend(keys);
            assert!(pages.len() <= sizes.len(), "{pages:?}, then {next}");
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(pages, sizes);
        let each: BTreeSet<String> = (0..250).map(|n| format!("C@m@{n}")).collect();
        assert_eq!((all.len(), all.into_iter().collect()), (250, each));
    }
}

#[tokio::test]
async fn a_scan_takes_the_options_of_redis_in_any_order() {
    let (_server, mut wire) = scanned().await;
    for (options, expected) in [
        ("", 100),
        ("COUNT 250", 250),
        ("TYPE string COUNT 250", 250),
        ("type LIST count 250", 0),
        ("COUNT 250 MATCH C@m@1*", 111),
        ("MATCH C@m@1* COUNT 250 TYPE string", 111),
        ("COUNT 250 MATCH C@m@1* TYPE hash", 0),
        ("TYPE hash MATCH C@m@1* COUNT 250 TYPE string", 111),
    ] {
        let (_, keys) = page(&mut wire, &format!("SCAN 0 {options}")).await;
        assert_eq!(keys.len(), expected, "{options}");
    }
    for (line, error) in [
        ("SCAN x", "invalid cursor"),
        ("SCAN 0 COUNT 0", "syntax error"),
        ("SCAN 0 COUNT -1", "syntax error"),
        ("SCAN 0 COUNT x", "value is not an integer or out of range"),
        ("SCAN 0 COUNT", "syntax error"),
        ("SCAN 0 FROM 1", "syntax error"),
    ] {
        assert_eq!(wire.says(line).await, format!("-ERR {error}"), "{line}");
    }
}

#[tokio::test]
async fn a_scan_passes_over_tasks_that_were_cancelled() {
    let (_server, mut wire) = scanned().await;
    for n in 0..100 {
        let key = format!("C@m@{n}");
        assert_eq!(wire.says(&format!("DEL {key}")).await, ":1");
    }
    let (next, keys) = page(&mut wire, "SCAN 0").await;
    assert_eq!(keys, Vec::<String>::new());
    assert_ne!(next, "0", "an empty page is not the last");
    let (_, keys) = page(&mut wire, &format!("SCAN {next}")).await;
    assert_eq!(keys.len(), 100);
}
