//! Redis fails; tasks do not.

use lapsed::Config;
use lapsed::timer::Source;

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::wait::until;

async fn sentinels(rig: &Rig) -> i64 {
    let names: Vec<String> = (1..=10).map(|n| format!("#SILCK`{n}")).collect();
    let words: Vec<&str> = ["EXISTS"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    rig.redis_says(&words).await
}

/// Tasks an hour away and more, a second apart.
async fn create_far(daemon: &Daemon, count: i64) {
    for number in 0..count {
        let name = format!("Job@record@far{number}");
        daemon.create(&name, 3_600_000 + number * 1_000).await;
    }
}

/// Every far task is armed, for when its row says: its key has the exact time as its value, and expires about then.
async fn until_far_are_armed(rig: &Rig, count: i64) {
    // Two clocks are read one after the other, the earlier by the daemon, and a busy machine stalls between.
    const APART_MS_MAX: i64 = 60_000;
    for number in 0..count {
        let name = format!("Job@record@far{number}");
        until(format!("`{name}` is armed"), async || {
            rig.pttl(&name).await > 0
        })
        .await;
        let due = rig.record(&name).await.due.0;
        let value: String = rig.redis_says(&["GET", &name]).await;
        assert_eq!(value, format!("lapsed:{due}"), "{name}");
        let expires: i64 = rig.redis_says(&["PEXPIRETIME", &name]).await;
        assert!(
            (expires - due).abs() < APART_MS_MAX,
            "`{name}` expires at {expires}, its task is due at {due}"
        );
    }
}

#[tokio::test]
async fn tasks_run_while_redis_cannot_be_reached_and_it_is_subscribed_to_when_it_can() {
    let mut rig = Rig::new("").await;
    rig.redis.kill();
    let daemon = rig.daemon();
    for number in 0..10 {
        let made = daemon
            .create(&format!("Job@record@{number}"), number * 200)
            .await;
        assert!(!made.armed);
    }
    rig.until_done(10).await;
    assert_eq!(daemon.status.is_listening(), Some(false));

    rig.redis.start_again().await.unwrap();
    daemon.hears_events().await;
    let made = daemon.create("Job@record@armed", 500).await;
    assert!(made.armed);
    rig.until_done(11).await;
    until("its event is heard", async || {
        daemon.signals(Source::Event) >= 1.0
    })
    .await;
    rig.each_ran_once(11).await;
}

#[tokio::test]
async fn keys_are_armed_again_after_redis_lost_its_data() {
    let mut rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    create_far(&daemon, 30).await;
    for number in 0..40 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 500 + number * 100).await;
    }
    until("some have run", async || rig.with_status(1).await > 3).await;
    rig.redis.kill();
    until("some more have run without it", async || {
        rig.with_status(1).await > 12
    })
    .await;
    rig.redis.restart().await.unwrap();

    until_far_are_armed(&rig, 30).await;
    until("the sentinels are back", async || {
        sentinels(&rig).await == 10
    })
    .await;
    rig.until_done(40).await;
    rig.each_ran_once(40).await;
}

#[tokio::test]
async fn keys_deleted_by_flushall_are_armed_again() {
    // Sentinels are looked after twice in an interval.
    let rig = Rig::new("sentinel.interval = '2s'").await;
    let daemon = rig.listening_daemon().await;
    create_far(&daemon, 30).await;
    for number in 0..20 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 500 + number * 100).await;
    }
    until("some have run", async || rig.with_status(1).await > 3).await;
    let () = rig.redis_says(&["FLUSHALL"]).await;

    until_far_are_armed(&rig, 30).await;
    until("the sentinels are back", async || {
        sentinels(&rig).await == 10
    })
    .await;
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
}

#[tokio::test]
async fn a_subscription_that_is_killed_again_and_again_loses_no_task() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    for round in 0..10 {
        for number in 0..5 {
            let name = format!("Job@record@{round}-{number}");
            daemon.create(&name, number * 60).await;
        }
        until("its subscription is killed", async || {
            let words = ["CLIENT", "KILL", "TYPE", "pubsub"];
            rig.redis_says::<i64>(&words).await > 0
        })
        .await;
    }
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    daemon.hears_events().await;
}

#[tokio::test]
async fn tasks_go_on_while_redis_hangs() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@before", 2_000).await;
    rig.redis.stop_process().unwrap();
    for number in 0..10 {
        let name = format!("Job@record@{number}");
        let made = daemon.create(&name, number * 100).await;
        assert!(!made.armed);
    }
    rig.until_done(11).await;
    rig.each_ran_once(11).await;

    rig.redis.continue_process().unwrap();
    daemon.hears_events().await;
    until("keys are written again", async || {
        daemon.create("Job@record@after", 100).await.armed
    })
    .await;
    rig.until_done(12).await;
}

#[tokio::test]
async fn another_server_at_the_redis_address_loses_no_task() {
    // MariaDB speaks first, and not what is expected.
    let rig = Rig::new("").await;
    let ledger = rig.config().ledger.url.expose().to_owned();
    let port = ledger
        .rsplit_once(':')
        .unwrap()
        .1
        .split('/')
        .next()
        .unwrap();
    let text = rig.config_text();
    let wrong = text.replace(
        &format!("127.0.0.1:{}", rig.redis.port()),
        &format!("127.0.0.1:{port}"),
    );
    assert_ne!(text, wrong);
    let daemon = Daemon::start(
        &Config::from_toml(&wrong).unwrap(),
        crate::support::handlers::handlers(),
    );
    for number in 0..5 {
        let made = daemon
            .create(&format!("Job@record@{number}"), number * 100)
            .await;
        assert!(!made.armed);
    }
    rig.until_done(5).await;
    rig.each_ran_once(5).await;
}
