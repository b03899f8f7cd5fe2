//! The keys whose expiry asks for reconciliation.

use std::time::Duration;

use lapsed::timer::Cause;

use crate::key_expiry::harness::{Daemon, Recorded};
use crate::key_expiry::servers::{Changes, admin, lazy_daemon, lazy_server, sentinels, server};
use crate::support::redis_commands::ask;
use crate::support::redis_stats::calls;
use crate::support::wait::until;

#[tokio::test]
async fn each_sentinel_causes_a_sweep_and_an_audit_and_half_of_them_a_rewrite() {
    let redis = lazy_server().start().await.unwrap();
    let interval = Duration::from_millis(300);
    let daemon = lazy_daemon(&redis)
        .await
        .sentinels(10, interval)
        .listen()
        .await;
    let sweeps = |count| {
        let sink = daemon.sink.clone();
        async move || sink.count(|event| *event == Recorded::Sweep(Cause::Sentinel)) >= count
    };
    let admin = admin(&redis).await;
    until("it has swept 6 times", sweeps(6)).await;
    until("all sentinels are there", async || {
        sentinels(&mut admin.clone()).await == 10
    })
    .await;
    until("it has swept 12 times", sweeps(12)).await;
    let audits = daemon
        .sink
        .count(|event| *event == Recorded::Audit(Cause::Sentinel));
    assert!(audits >= 12);
    assert_eq!(
        daemon
            .sink
            .count(|event| *event == Recorded::Audit(Cause::RedisChanged)),
        0
    );
}

#[tokio::test]
async fn sentinels_deleted_without_an_event_are_rewritten_and_cause_an_audit() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url())
        .sentinels(10, Duration::from_secs(2))
        .listen()
        .await;
    let mut admin = admin(&redis).await;
    until("all sentinels are there", async || {
        sentinels(&mut admin.clone()).await == 10
    })
    .await;
    let mark = daemon.sink.mark();
    let () = ask(&mut admin, &["FLUSHALL"]).await;
    daemon
        .sink
        .wait_after(mark, |event| *event == Recorded::Audit(Cause::RedisChanged))
        .await;
    until("all sentinels are there", async || {
        sentinels(&mut admin.clone()).await == 10
    })
    .await;
}

#[tokio::test]
async fn a_second_daemon_leaves_the_sentinels_of_the_first_alone() {
    let redis = server()
        .set("notify-keyspace-events", "KEA")
        .start()
        .await
        .unwrap();
    let _first = Daemon::default_on(&redis.url()).listen().await;
    let mut admin = admin(&redis).await;
    until("all sentinels are there", async || {
        sentinels(&mut admin.clone()).await == 10
    })
    .await;
    let changes = Changes::of(&redis, "#SILCK*").await;
    let checked = calls(&mut admin, "pttl").await;
    let _second = Daemon::default_on(&redis.url()).listen().await;
    until("the second daemon has checked the sentinels", async || {
        calls(&mut admin.clone(), "pttl").await >= checked + 10
    })
    .await;
    assert_eq!(changes.until_now(&mut admin).await, [""; 0]);
}
