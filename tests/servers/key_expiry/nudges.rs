//! Keys asked for at their due time.

use std::time::Duration;

use lapsed::timer::{Alarm, ArmMode, Source, Timer};
use lapsed_sandbox::PrivateRedis;

use crate::key_expiry::harness::{Daemon, key};
use crate::key_expiry::servers::{admin, lazy_daemon, lazy_server, server};
use crate::support::redis_commands::ask;
use crate::support::wait::until;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn nudged_keys_go_at_their_due_time_however_many_others_wait() {
    let redis = lazy_server().start().await.unwrap();
    let daemon = lazy_daemon(&redis).await.listen().await;
    let mut admin = admin(&redis).await;
    let mut far = redis::pipe();
    for number in 0..20_000 {
        far.set_ex(format!("Far@away@{number}"), "", DAY.as_secs())
            .ignore();
    }
    far.exec_async(&mut admin).await.unwrap();
    let alarms: Vec<Alarm> = (0..500)
        .map(|n| daemon.alarm(&n.to_string(), 500 + n))
        .collect();
    daemon.arm(&alarms, ArmMode::Replace).await;
    daemon.timer.expect(alarms.clone());
    for alarm in &alarms {
        let (signal, at) = daemon.sink.timed_signal(Source::Nudge, &alarm.key).await;
        assert_eq!(signal.arming, alarm.arming);
        assert!(at >= alarm.due, "{} came early", alarm.key);
        // Redis never expires by itself here: the nudge made it.
        daemon.sink.timed_signal(Source::Event, &alarm.key).await;
    }
    // 20 000 far ones, ten sentinels and at most one probe.
    until("the nudged keys are gone", async || {
        ask::<i64>(&mut admin.clone(), &["DBSIZE"]).await <= 20_011
    })
    .await;
}

#[tokio::test]
async fn a_nudge_that_gets_no_answer_raises_the_signal_all_the_same() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    redis.stop_process().unwrap();
    let alarms: Vec<Alarm> = (0..3000)
        .map(|n| daemon.alarm(&n.to_string(), 100))
        .collect();
    daemon.timer.expect(alarms.clone());
    for alarm in &alarms {
        let (_, at) = daemon.sink.timed_signal(Source::Nudge, &alarm.key).await;
        assert!(at >= alarm.due, "{} came early", alarm.key);
    }
    redis.continue_process().unwrap();
}

/// Arms a string and a list that outlive the due time of their tasks, and a key of lapsed that does. Returns whether the
/// signals of the first two came when their keys expired.
async fn foreign_keys_are_raised_late(daemon: &Daemon, redis: &PrivateRedis, round: usize) -> bool {
    let [string, list, ours] = ["string", "list", "ours"].map(|name| format!("{name}{round}"));
    let named = |name: &str| key(name).to_string();
    let mut admin = admin(redis).await;
    let started = daemon.now();
    let () = ask(&mut admin, &["SET", &named(&string), "", "PX", "900"]).await;
    let () = ask(&mut admin, &["RPUSH", &named(&list), "x"]).await;
    let () = ask(&mut admin, &["PEXPIRE", &named(&list), "900"]).await;
    // Longer than this test waits for anything: it is not its expiry that is heard.
    let () = ask(
        &mut admin,
        &["SET", &named(&ours), "lapsed:1", "EX", "3600"],
    )
    .await;
    let alarms = [&string, &list, &ours].map(|name| daemon.alarm(name, 50));
    daemon.timer.expect(alarms.to_vec());
    daemon.sink.timed_signal(Source::Nudge, &key(&ours)).await;
    let mut are_late = true;
    for name in [&string, &list] {
        let (_, at) = daemon.sink.timed_signal(Source::Nudge, &key(name)).await;
        are_late &= at.since(started) >= Duration::from_millis(890);
        daemon.sink.timed_signal(Source::Event, &key(name)).await;
    }
    are_late
}

#[tokio::test]
async fn a_foreign_key_that_lives_a_little_longer_is_raised_when_it_is_due() {
    let redis = lazy_server().start().await.unwrap();
    let daemon = lazy_daemon(&redis).await.listen().await;
    // On a busy machine Redis may answer too late; the row decides then.
    for round in 0..5 {
        if foreign_keys_are_raised_late(&daemon, &redis, round).await {
            return;
        }
    }
    panic!("they came early each time");
}

#[tokio::test]
async fn without_nudge_nothing_is_raised_from_memory() {
    let redis = lazy_server().start().await.unwrap();
    let daemon = lazy_daemon(&redis).await.without_nudge().listen().await;
    daemon.timer.expect(vec![daemon.alarm("expected", 20)]);
    daemon
        .arm(&[daemon.alarm("later", 300)], ArmMode::Replace)
        .await;
    let admin = admin(&redis).await;
    until("the later key is gone", async || {
        ask::<i64>(&mut admin.clone(), &["PTTL", "C@m@later"]).await == -2
    })
    .await;
    daemon
        .sink
        .signal(|signal| signal.key == key("later"))
        .await;
    assert_eq!(daemon.sink.signals().len(), 1);
}
