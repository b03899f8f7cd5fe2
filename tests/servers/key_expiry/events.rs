//! What is heard, and what is armed.

use lapsed::timer::{AlarmStore, ArmMode, Armed, Cause, Remaining, Source};

use crate::key_expiry::harness::{Daemon, Recorded, key, keys};
use crate::key_expiry::servers::{Changes, admin, lazy_daemon, lazy_server, server};
use crate::support::redis_commands::ask;

#[tokio::test]
async fn an_armed_key_that_expires_raises_a_signal() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url())
        .without_nudge()
        .listen()
        .await;
    daemon.arm(&[daemon.alarm("1", 50)], ArmMode::Replace).await;
    let signal = daemon.sink.signal(|signal| signal.key == key("1")).await;
    assert_eq!((signal.source, signal.arming), (Source::Event, None));
}

#[tokio::test]
async fn any_database_is_heard_and_no_other() {
    let redis = server().start().await.unwrap();
    let url = |database| format!("redis://127.0.0.1:{}/{database}", redis.port());
    let five = Daemon::default_on(&url(5)).without_nudge().listen().await;
    let zero = Daemon::default_on(&url(0)).without_nudge().listen().await;
    zero.arm(&[zero.alarm("zero", 20)], ArmMode::Replace).await;
    five.arm(&[five.alarm("five", 200)], ArmMode::Replace).await;
    five.sink.signal(|signal| signal.key == key("five")).await;
    zero.sink.signal(|signal| signal.key == key("zero")).await;
    assert_eq!(
        (five.sink.signals().len(), zero.sink.signals().len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_prefix_is_added_and_stripped_at_the_edge() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url())
        .without_nudge()
        .prefix("app_cache:")
        .listen()
        .await;
    let mut admin = admin(&redis).await;
    let alarm = daemon.alarm("1", 300);
    daemon
        .arm(std::slice::from_ref(&alarm), ArmMode::Replace)
        .await;
    let value: String = ask(&mut admin, &["GET", "app_cache:C@m@1"]).await;
    assert_eq!(value, format!("lapsed:{}", alarm.due.0));
    assert!(matches!(
        daemon.timer.remaining(&keys(["1"])).await.unwrap()[..],
        [Remaining::Ms(1..=300)]
    ));
    let () = ask(&mut admin, &["SET", "C@m@not-ours", "", "PX", "1"]).await;
    daemon.sink.signal(|signal| signal.key == key("1")).await;
    daemon.counts(r#"dropped_total{reason="foreign"} 1"#).await;
    assert_eq!(daemon.sink.signals().len(), 1);
}

#[tokio::test]
async fn arming_returns_the_previous_expiry_and_disarming_removes_the_key() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let day = 24 * 3600 * 1000;
    daemon
        .arm(&[daemon.alarm("1", day)], ArmMode::Replace)
        .await;
    let both = [daemon.alarm("1", 2 * day), daemon.alarm("2", 2 * day)];
    let armed = daemon.arm(&both, ArmMode::IfMissing).await;
    assert_eq!(
        armed,
        Armed {
            written: 1,
            present: 1,
            missing: 0,
        }
    );
    let [Remaining::Ms(kept), Remaining::Ms(new), Remaining::Missing] = daemon
        .timer
        .remaining(&keys(["1", "2", "3"]))
        .await
        .unwrap()[..]
    else {
        panic!("expected two keys and no third")
    };
    assert!(kept <= day as u64 && new > day as u64);
    let armed = daemon.arm(&both, ArmMode::Replace).await;
    assert_eq!(
        armed,
        Armed {
            written: 2,
            present: 0,
            missing: 0,
        }
    );
    daemon.timer.disarm(&keys(["1", "2"])).await.unwrap();
    let remaining = daemon.timer.remaining(&keys(["1", "2"])).await.unwrap();
    assert_eq!(remaining, [Remaining::Missing; 2]);
}

#[tokio::test]
async fn a_key_armed_too_late_is_announced_at_once() {
    let redis = lazy_server().start().await.unwrap();
    let daemon = lazy_daemon(&redis).await.without_nudge().listen().await;
    daemon
        .arm(&[daemon.alarm("1", -5000)], ArmMode::Replace)
        .await;
    let signal = daemon.sink.signal(|signal| signal.key == key("1")).await;
    // This server expires nothing by itself.
    assert_eq!(signal.source, Source::Event);
}

#[tokio::test]
async fn a_due_task_whose_key_is_missing_is_announced_without_a_key() {
    let redis = lazy_server()
        .set("notify-keyspace-events", "KEA")
        .start()
        .await
        .unwrap();
    let daemon = lazy_daemon(&redis).await.without_nudge().listen().await;
    let changes = Changes::of(&redis, "C@m@1").await;
    let due = [daemon.alarm("1", -5000)];
    assert_eq!(daemon.arm(&due, ArmMode::IfMissing).await.written, 1);
    let signal = daemon.sink.signal(|signal| signal.key == key("1")).await;
    assert_eq!(signal.source, Source::Event);
    // An arming that lasts a millisecond would look like one of a program.
    let changes = changes.until_now(&mut admin(&redis).await).await;
    assert_eq!(changes, [""; 0]);
}

#[tokio::test]
async fn a_due_task_is_armed_if_the_user_may_not_publish() {
    let redis = lazy_server().start().await.unwrap();
    let daemon = lazy_daemon(&redis).await.without_nudge().listen().await;
    let mut admin = admin(&redis).await;
    let () = ask(&mut admin, &["ACL", "SETUSER", "default", "-publish"]).await;
    daemon
        .arm(&[daemon.alarm("1", -5000)], ArmMode::IfMissing)
        .await;
    let signal = daemon.sink.signal(|signal| signal.key == key("1")).await;
    assert_eq!(signal.source, Source::Event);
}

#[tokio::test]
async fn binary_huge_and_broken_names_are_counted_and_harm_nothing() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url())
        .without_nudge()
        .listen()
        .await;
    let mut admin = admin(&redis).await;
    let names: [(&[u8], &str); 7] = [
        (b"C@m@\xff\xfe", "not_utf8"),
        (b"C@m@a\r\nb", "foreign"),
        (b"", "foreign"),
        (b"@@", "foreign"),
        (b"#SILCK`07", "foreign"),
        (b"C@m@\0", "foreign"),
        (&vec![b'x'; 1_000_004], "too_long"),
    ];
    for (name, _) in names {
        let () = redis::cmd("SET")
            .arg(name)
            .arg("")
            .arg("PX")
            .arg(1)
            .query_async(&mut admin)
            .await
            .unwrap();
        let channel = "__keyevent@0__:expired";
        let () = redis::cmd("PUBLISH")
            .arg(channel)
            .arg(name)
            .query_async(&mut admin)
            .await
            .unwrap();
    }
    daemon.arm(&[daemon.alarm("1", 50)], ArmMode::Replace).await;
    daemon.sink.signal(|signal| signal.key == key("1")).await;
    for reason in ["not_utf8", "foreign", "too_long"] {
        let count = 2 * names.iter().filter(|(_, of)| *of == reason).count();
        daemon
            .counts(&format!(r#"dropped_total{{reason="{reason}"}} {count}"#))
            .await;
    }
    assert_eq!(daemon.sink.signals().len(), 1);
    assert_eq!(
        daemon
            .sink
            .count(|event| *event == Recorded::Sweep(Cause::Subscribed)),
        1
    );
}
