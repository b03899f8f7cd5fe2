//! Requests: headers, each on a line, of a request from the address on the first line; and the body of a batch.

use std::net::{IpAddr, Ipv4Addr};

use http::HeaderMap;
use lapsed_server::http::access_fuzzing::{header, is_own_host, read_peer};
use lapsed_server::http::api_fuzzing::{split_array, split_lines};
use serde_json::value::RawValue;

use crate::refusal;

/// Most tasks of a batch that are read.
const TASKS_MAX: usize = 1_000;

pub fn run(input: &[u8]) {
    check_batch(input);
    if let Ok(text) = std::str::from_utf8(input) {
        check_host(text.lines().next().unwrap_or_default());
        check_peer(text);
    }
}

fn check_batch(input: &[u8]) {
    let (lines, count) = split_lines(input);
    assert_eq!(lines.len(), count.min(TASKS_MAX));
    assert!(
        lines
            .iter()
            .all(|line| !line.is_empty() && !line.contains(&b'\n'))
    );
    assert_eq!(split_lines(&lines.join(&b"\r\n"[..])).0, lines);
    match (
        split_array(input),
        serde_json::from_slice::<Vec<&RawValue>>(input),
    ) {
        (Ok((elements, count)), Ok(all)) => {
            assert_eq!(count, all.len(), "both readers agree");
            let all = all.iter().map(|element| element.get().as_bytes());
            assert!(all.take(TASKS_MAX).eq(elements.iter().map(Vec::as_slice)));
        }
        (Err(problem), Err(_)) => refusal::check(&problem, &["expected a JSON array of tasks"]),
        (split, all) => panic!("the readers disagree: {split:?}, {all:?}"),
    }
}

fn check_host(host: &str) {
    let is_own = is_own_host(host);
    assert_eq!(is_own_host(&host.to_ascii_uppercase()), is_own, "{host:?}");
    if is_own && !host.contains(':') {
        assert!(is_own_host(&format!("{host}:8787")), "{host:?}");
        // A longer name is another one.
        assert!(!is_own_host(&format!("{host}.evil.example")), "{host:?}");
    }
}

fn check_peer(text: &str) {
    let mut lines = text.lines();
    let connected = lines.next().and_then(|line| line.parse::<IpAddr>().ok());
    let connected = connected.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if let Some((name, value)) = header(name.trim(), value.trim()) {
            headers.append(name, value);
        }
    }
    let given = headers.clone();
    let is_proxy = |address: IpAddr| matches!(address.to_canonical(), IpAddr::V4(address) if address.octets()[0] == 10);
    let from = match read_peer(connected, &mut headers) {
        Ok(from) => from,
        Err(problem) => {
            assert!(is_proxy(connected), "{problem}");
            return refusal::check(&problem, &["x-user", "X-User"]);
        }
    };
    for claim in [
        "x-forwarded-for",
        "x-forwarded-proto",
        "forwarded",
        "via",
        "x-user",
    ] {
        assert!(!headers.contains_key(claim), "{claim} is still there");
    }
    if !is_proxy(connected) {
        assert_eq!(from.address, Some(connected.to_canonical()));
        assert!(from.user.is_none() && !from.https, "{from:?}");
        assert_eq!(headers.get("host"), given.get("host"));
    }
    if from.is_local {
        assert!(connected.to_canonical().is_loopback());
        assert!(!given.contains_key("x-forwarded-for"));
    }
    // What is left has nothing more to say.
    let again = read_peer(connected, &mut headers).expect("no user is named any more");
    assert_eq!((again.user, again.https), (None, false));
}
