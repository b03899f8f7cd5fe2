//! A daemon that hears of keys late, or not at all.

use std::time::Duration;

use lapsed::task::Countdown;
use lapsed::timer::{AdoptionCandidate, Cause, Listening, Seen, TimerError};
use lapsed_sandbox::PrivateRedis;

use crate::key_expiry::harness::{Daemon, Recorded, key};
use crate::key_expiry::proxy::{Fault, Proxy};
use crate::key_expiry::servers::{admin, server};
use crate::support::redis_commands::ask;
use crate::support::wait::until;

/// A link that is lost after this silence. On a busy machine Redis may be silent for more than the second of the default,
/// and the events of a lost link are lost.
const PATIENT: Duration = Duration::from_secs(5);

/// Arms many keys that the daemon does not run. The event of each is some 90 bytes long.
async fn arm_others(redis: &PrivateRedis, count: usize) {
    let mut set = redis::pipe();
    for number in 0..count {
        let key = format!("Other@m@{number}");
        set.cmd("PSETEX").arg(key).arg(600_000).arg("").ignore();
    }
    let () = set.query_async(&mut admin(redis).await).await.unwrap();
}

async fn arm(redis: &PrivateRedis, name: &str, delay_ms: i64) {
    let key = key(name).to_string();
    let set = ["PSETEX", &key, &delay_ms.to_string(), ""];
    let () = ask(&mut admin(redis).await, &set).await;
}

/// The countdown of this key, if that was reported as armed.
fn countdown(candidate: &AdoptionCandidate, name: &str) -> Option<Countdown> {
    match candidate.seen {
        Seen::Armed(seen) if candidate.key == key(name) => Some(seen),
        _ => None,
    }
}

/// Goes through all keys for this one.
async fn scan(daemon: &Daemon, name: &str) -> Result<Option<Countdown>, TimerError> {
    let (wanted, mut cursor) = (key(name), None);
    loop {
        let page = daemon
            .timer
            .scan_foreign(cursor, &|key| *key == wanted)
            .await?;
        let found = page.foreign.iter().find_map(|seen| countdown(seen, name));
        if found.is_some() || page.next.is_none() {
            return Ok(found);
        }
        cursor = page.next;
    }
}

async fn heard(daemon: &Daemon, name: &str) -> Countdown {
    let is_heard = |event: &Recorded| matches!(event, Recorded::Proposed(candidate) if countdown(candidate, name).is_some());
    match daemon.sink.wait(is_heard).await {
        Recorded::Proposed(candidate) => countdown(&candidate, name).unwrap(),
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_link_whose_events_are_far_behind_is_kept() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url())
        .response_timeout(PATIENT)
        .listen()
        .await;
    let mark = daemon.sink.mark();
    proxy.set(Fault::SlowEvents);
    // Longer than a ping may take, and a probe.
    arm_others(&redis, 16_000).await;
    arm(&redis, "last", 600_000).await;
    heard(&daemon, "last").await;
    let lost = |event: &Recorded| *event == Recorded::Audit(Cause::Subscribed);
    assert_eq!(daemon.sink.count_after(mark, lost), 0);
}

#[tokio::test]
async fn the_event_of_a_key_that_a_scan_finds_is_heard_before() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url())
        .response_timeout(PATIENT)
        .listen()
        .await;
    proxy.set(Fault::SlowEvents);
    arm_others(&redis, 3_000).await;
    arm(&redis, "found", 600_000).await;
    let found = loop {
        // On a busy machine it may give up.
        if let Ok(Some(found)) = scan(&daemon, "found").await {
            break found;
        }
    };
    assert!(heard(&daemon, "found").await.heard <= found.alive_at);
}

#[tokio::test]
async fn a_daemon_knows_how_late_it_may_hear_of_a_key_that_is_gone() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url())
        .response_timeout(PATIENT)
        .listen()
        .await;
    proxy.set(Fault::SlowEvents);
    // These events alone take longer than an event of unknown age may.
    arm_others(&redis, 4_000).await;
    let armed = daemon.now();
    arm(&redis, "1", 1).await;
    let heard = heard(&daemon, "1").await;
    assert_eq!((heard.alive_at, heard.late), (None, true));
    assert!(heard.heard <= Some(armed), "{heard:?}, armed at {armed}");
}

#[tokio::test]
async fn an_event_that_is_read_on_time_has_the_time_of_its_reading() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let armed = daemon.now();
    arm(&redis, "1", 600_000).await;
    let heard = heard(&daemon, "1").await;
    assert!(!heard.late);
    assert!(heard.heard >= Some(armed), "{heard:?}, armed at {armed}");
}

#[tokio::test]
async fn a_step_of_a_clock_makes_the_age_of_older_rows_unknown_to_a_scan() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    arm(&redis, "1", 600_000).await;
    heard(&daemon, "1").await;
    // The server says in whole seconds how long it has been up.
    until("the server was started before", async || {
        let found = scan(&daemon, "1").await.unwrap().unwrap();
        found.kept_since <= Some(lapsed::UnixMs(daemon.now().0 - 1_000))
    })
    .await;
    let after = lapsed::UnixMs(daemon.now().0 + 15_000);
    daemon.clock.set(after);
    for _ in 0..2 {
        let found = scan(&daemon, "1").await.unwrap().unwrap();
        assert_eq!(found.kept_since, Some(after));
    }
}

#[tokio::test]
async fn a_key_is_inspected_again_if_there_was_no_answer() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url()).listen().await;
    proxy.set(Fault::SwallowInspections);
    arm(&redis, "1", 600_000).await;
    until("it is inspected", async || proxy.swallowed() > 0).await;
    proxy.set(Fault::None);
    assert!(heard(&daemon, "1").await.alive_at.is_some());
}

#[tokio::test]
async fn a_key_that_was_heard_and_expires_unheard_is_reported() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url()).listen().await;
    proxy.set(Fault::SwallowInspections);
    arm(&redis, "1", 5_000).await;
    until("it is heard", async || proxy.swallowed() > 0).await;
    proxy.set(Fault::Swallow);
    let (name, admin) = (key("1").to_string(), admin(&redis).await);
    until("it has expired", async || {
        ask::<i64>(&mut admin.clone(), &["EXISTS", &name]).await == 0
    })
    .await;
    daemon.is_listening_becomes(false).await;
    proxy.set(Fault::None);
    let is_reported = |event: &Recorded| matches!(event, Recorded::Proposed(candidate) if candidate.key == key("1") && matches!(candidate.seen, Seen::Expired(_)));
    daemon.sink.wait(is_reported).await;
    let signals = daemon.sink.signals();
    assert!(signals.iter().all(|signal| signal.key != key("1")));
}

#[tokio::test]
async fn a_key_that_a_restarted_server_has_lost_is_not_reported_as_expired() {
    let mut redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url()).listen().await;
    proxy.set(Fault::SwallowInspections);
    arm(&redis, "1", 600_000).await;
    until("it is heard", async || proxy.swallowed() > 0).await;
    proxy.set(Fault::Swallow);
    daemon.is_listening_becomes(false).await;
    // It keeps no data.
    redis.restart().await.unwrap();
    proxy.set(Fault::None);
    daemon
        .counts(r#"dropped_total{reason="unverified"} 1"#)
        .await;
    let is_reported = |event: &Recorded| matches!(event, Recorded::Proposed(_));
    assert_eq!(daemon.sink.count(is_reported), 0);
}
