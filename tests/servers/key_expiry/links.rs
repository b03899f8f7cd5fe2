//! Links that break, go silent, or lead to the wrong server.

use lapsed::timer::{AlarmStore, ArmMode, Cause};
use lapsed_sandbox::PrivateRedis;
use tokio::time::timeout;

use crate::key_expiry::harness::{Daemon, Recorded, key};
use crate::key_expiry::proxy::{Fault, Proxy};
use crate::key_expiry::servers::{admin, connections, flags, sentinels, server};
use crate::support::redis_commands::ask;
use crate::support::wait::{DEADLINE, until};

#[tokio::test]
async fn a_killed_subscription_is_made_again_and_asks_for_reconciliation() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url())
        .without_nudge()
        .listen()
        .await;
    let mark = daemon.sink.mark();
    let () = ask(
        &mut admin(&redis).await,
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    )
    .await;
    daemon
        .sink
        .wait_after(mark, |event| *event == Recorded::Sweep(Cause::Subscribed))
        .await;
    daemon
        .sink
        .wait_after(mark, |event| *event == Recorded::Audit(Cause::Subscribed))
        .await;
    daemon.counts("lapsed_resubscriptions_total 1").await;
    daemon.is_listening_becomes(true).await;
    daemon.arm(&[daemon.alarm("1", 20)], ArmMode::Replace).await;
    daemon.sink.signal(|signal| signal.key == key("1")).await;
    assert_eq!(
        daemon
            .sink
            .count(|event| *event == Recorded::Audit(Cause::RedisChanged)),
        0
    );
}

#[tokio::test]
async fn a_server_that_comes_back_empty_gets_its_flags_and_sentinels_again() {
    let mut redis = PrivateRedis::start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let mark = daemon.sink.mark();
    redis.kill();
    daemon.is_listening_becomes(false).await;
    daemon
        .counts(r#"lapsed_subscription_up{node="127.0.0.1:"#)
        .await;
    redis.restart().await.unwrap();
    daemon
        .sink
        .wait_after(mark, |event| *event == Recorded::Audit(Cause::RedisChanged))
        .await;
    daemon
        .sink
        .wait_after(mark, |event| *event == Recorded::Sweep(Cause::Subscribed))
        .await;
    daemon.is_listening_becomes(true).await;
    let mut admin = admin(&redis).await;
    until("all sentinels are there", async || {
        sentinels(&mut admin.clone()).await == 10
    })
    .await;
    assert!(flags(&mut admin).await.contains('x'));
}

#[tokio::test]
async fn arming_without_a_server_fails_soon_and_works_again_when_it_is_back() {
    let mut redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    redis.kill();
    let alarm = [daemon.alarm("1", 60_000)];
    // Each waiting for a connection would take five minutes.
    let all_fail = async {
        for _ in 0..100 {
            let armed = daemon.timer.arm(&alarm, ArmMode::Replace).await;
            assert_eq!(armed.unwrap_err().to_string(), "cannot arm keys");
        }
    };
    timeout(DEADLINE, all_fail).await.expect("they fail soon");
    redis.restart().await.unwrap();
    until("arming works again", async || {
        daemon.timer.arm(&alarm, ArmMode::Replace).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_half_open_link_is_noticed_and_replaced() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url()).listen().await;
    let mark = daemon.sink.mark();
    proxy.set(Fault::Swallow);
    daemon.is_listening_becomes(false).await;
    proxy.set(Fault::None);
    daemon.is_listening_becomes(true).await;
    daemon
        .sink
        .wait_after(mark, |event| *event == Recorded::Sweep(Cause::Subscribed))
        .await;
}

#[tokio::test]
async fn a_link_that_answers_but_announces_nothing_is_noticed_and_replaced() {
    let redis = server().start().await.unwrap();
    let proxy = Proxy::to(redis.port()).await;
    let daemon = Daemon::default_on(&proxy.url()).listen().await;
    let mark = daemon.sink.mark();
    proxy.set(Fault::SwallowEvents);
    let resubscribed = |event: &Recorded| *event == Recorded::Audit(Cause::Subscribed);
    daemon.sink.wait_after(mark, resubscribed).await;
    proxy.set(Fault::None);
    daemon.is_listening_becomes(true).await;
}

#[tokio::test]
async fn a_replica_is_not_listened_to_and_a_demoted_master_is_left() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let mark = daemon.sink.mark();
    let mut admin = admin(&redis).await;
    let () = ask(&mut admin, &["REPLICAOF", "127.0.0.1", "1"]).await;
    daemon.is_listening_becomes(false).await;
    // It knocks again and again, and is turned away each time.
    let before = connections(&mut admin).await;
    until("it has tried three times more", async || {
        connections(&mut admin.clone()).await >= before + 3
    })
    .await;
    let subscribed = |event: &Recorded| *event == Recorded::Sweep(Cause::Subscribed);
    assert_eq!(daemon.sink.count_after(mark, subscribed), 0);
    let () = ask(&mut admin, &["REPLICAOF", "NO", "ONE"]).await;
    daemon.is_listening_becomes(true).await;
}

#[tokio::test]
async fn a_stopped_timer_no_longer_listens() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    daemon.stop.cancel();
    daemon.is_listening_becomes(false).await;
    let admin = admin(&redis).await;
    until("nothing is subscribed", async || {
        ask::<i64>(&mut admin.clone(), &["PUBSUB", "NUMPAT"]).await == 0
    })
    .await;
}
