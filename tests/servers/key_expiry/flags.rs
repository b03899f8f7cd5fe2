//! `notify-keyspace-events`: mended where allowed, done without where not.

use lapsed::timer::{AdoptionCandidate, ArmMode, Cause, Listening, Seen, Source, Timer};
use lapsed_sandbox::PrivateRedis;

use crate::key_expiry::harness::{Daemon, Recorded, key};
use crate::key_expiry::servers::{admin, flags, lazy_daemon, lazy_server, server};
use crate::support::redis_commands::ask;
use crate::support::redis_stats::calls;
use crate::support::wait::until;

#[tokio::test]
async fn flags_that_suffice_are_left_alone_and_what_is_missing_is_added() {
    let rules = [
        ("KEA", true, "KEA"),
        ("KExg", true, "KExg"),
        ("Kg", true, "KgEx"),
        ("Ex", true, "Exg"),
        ("", true, "Exg"),
        ("Ex", false, "Ex"),
        ("", false, "Ex"),
    ];
    for (before, armings, wanted) in rules {
        let redis = PrivateRedis::start().await.unwrap();
        let mut admin = admin(&redis).await;
        let () = ask(
            &mut admin,
            &["CONFIG", "SET", "notify-keyspace-events", before],
        )
        .await;
        let options = Daemon::default_on(&redis.url());
        let _daemon = match armings {
            true => options.listen().await,
            false => options.hearing_expired_alone().listen().await,
        };
        let found = flags(&mut admin).await;
        // The first is the test's own.
        let changes = calls(&mut admin, "config|set").await - 1;
        assert_eq!(changes, i64::from(before != wanted), "from `{before}`");
        // `A` comes back as it was; the order is the server's.
        assert!(wanted.chars().all(|flag| found.contains(flag)), "`{found}`");
        assert_eq!(found.len(), wanted.len(), "`{found}`");
    }
}

#[tokio::test]
async fn without_config_the_probe_detects_whether_events_arrive() {
    let conf = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(conf.path(), "rename-command CONFIG \"\"\n").unwrap();
    let include = conf.path().to_str().unwrap();
    let redis = server().set("include", include).start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url())
        .without_nudge()
        .listen()
        .await;
    daemon.arm(&[daemon.alarm("1", 20)], ArmMode::Replace).await;
    daemon.sink.signal(|signal| signal.key == key("1")).await;
}

#[tokio::test]
async fn an_acl_user_with_the_literal_pattern_and_no_config_is_enough() {
    // Only a touch expires anything here, so only a touched probe can tell that events come.
    let redis = lazy_server().start().await.unwrap();
    lazy_daemon(&redis).await;
    let user = restricted_user(&redis, &[]).await;
    let daemon = Daemon::default_on(&user).listen().await;
    let alarm = daemon.alarm("1", 50);
    daemon
        .arm(std::slice::from_ref(&alarm), ArmMode::Replace)
        .await;
    daemon.timer.expect(vec![alarm]);
    daemon.sink.timed_signal(Source::Event, &key("1")).await;
}

#[tokio::test]
async fn an_acl_user_with_the_documented_rights_hears_what_programs_do_to_keys() {
    let redis = PrivateRedis::options().set("notify-keyspace-events", "Exg");
    let redis = redis.start().await.unwrap();
    let rights = [
        "&__keyevent@0__:expire",
        "&__keyevent@0__:del",
        "&__keyevent@0__:persist",
        "+scan",
        "+info",
    ];
    let user = restricted_user(&redis, &rights).await;
    let daemon = Daemon::default_on(&user).listen().await;
    let mut admin = admin(&redis).await;
    let sighted = |name: &'static str, is_armed: bool| {
        move |event: &Recorded| {
            matches!(event, Recorded::Proposed(AdoptionCandidate { key: of, seen, .. })
                if *of == key(name) && matches!(seen, Seen::Armed(_)) == is_armed)
        }
    };
    // One that it may not read is in nobody's way.
    let () = ask(&mut admin, &["SETEX", "C@other@1", "60", ""]).await;
    let () = ask(&mut admin, &["SETEX", "C@m@1", "60", ""]).await;
    daemon.sink.wait(sighted("1", true)).await;
    let deleted: i64 = ask(&mut admin, &["DEL", "C@m@1"]).await;
    assert_eq!(deleted, 1);
    daemon.sink.wait(sighted("1", false)).await;
    let () = ask(&mut admin, &["SETEX", "C@m@2", "60", ""]).await;
    let page = daemon
        .timer
        .scan_foreign(None, &|key| *key != self::key("1"));
    let mut found: Vec<_> = page
        .await
        .unwrap()
        .foreign
        .into_iter()
        .map(|seen| seen.key)
        .collect();
    found.sort();
    assert_eq!(found, [key("2")]);
}

#[tokio::test]
async fn a_key_of_lapsed_is_observed_only_when_its_expiry_is_changed() {
    let redis = PrivateRedis::start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let is_of = |name: &'static str| move |event: &Recorded| matches!(event, Recorded::Proposed(seen) if seen.key == key(name));
    daemon
        .arm(
            &[daemon.alarm("1", 60_000), daemon.alarm("2", 60_000)],
            ArmMode::Replace,
        )
        .await;
    let set: i64 = ask(&mut admin(&redis).await, &["EXPIRE", "C@m@2", "90"]).await;
    assert_eq!(set, 1);
    daemon.sink.wait(is_of("2")).await;
    assert_eq!(daemon.sink.count(is_of("1")), 0);
    let page = daemon.timer.scan_foreign(None, &|_| true).await.unwrap();
    assert_eq!(
        (page.foreign, page.next),
        (vec![], None),
        "but not when it is merely found"
    );
}

#[tokio::test]
async fn a_key_that_is_armed_and_gone_before_it_could_be_looked_at_is_seen_all_the_same() {
    let redis = PrivateRedis::start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let mut admin = admin(&redis).await;
    for number in 0..20 {
        let mark = daemon.sink.mark();
        let () = ask(&mut admin, &["SET", "C@m@1", "", "PX", "1"]).await;
        let seen = daemon
            .sink
            .wait_after(mark, |event| matches!(event, Recorded::Proposed(_)))
            .await;
        assert!(
            matches!(
                &seen,
                Recorded::Proposed(AdoptionCandidate {
                    seen: Seen::Armed(_),
                    ..
                })
            ),
            "{number}: {seen:?}"
        );
        daemon
            .sink
            .wait_after(
                mark,
                |event| matches!(event, Recorded::Raise(signal, _) if signal.key == key("1")),
            )
            .await;
    }
}

#[tokio::test]
async fn flags_that_may_not_be_set_leave_the_nudge_and_no_reconnect_loop() {
    let redis = PrivateRedis::start().await.unwrap();
    let mut admin = admin(&redis).await;
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "~*",
        "allchannels",
        "+@all",
        "-config|set",
    ];
    let () = ask(&mut admin, &rules).await;
    let url = format!("redis://app:pw@127.0.0.1:{}/0", redis.port());
    let daemon = Daemon::default_on(&url).start();
    daemon
        .sink
        .wait(|event| *event == Recorded::Audit(Cause::Subscribed))
        .await;
    let alarm = daemon.alarm("1", 50);
    daemon.timer.expect(vec![alarm]);
    let signal = daemon.sink.signal(|signal| signal.key == key("1")).await;
    assert_eq!(signal.source, Source::Nudge);
    // Ten sentinels, and a probe every 5 s: three of them have met with silence or are about to.
    until("three probes were sent", async || {
        calls(&mut admin.clone(), "set").await >= 13
    })
    .await;
    assert!(!daemon.timer.is_listening());
    assert_eq!(
        daemon
            .sink
            .count(|event| *event == Recorded::Audit(Cause::Subscribed)),
        1
    );
}

#[tokio::test]
async fn without_the_flag_for_armings_it_listens_all_the_same() {
    let redis = server().start().await.unwrap();
    let mut admin = admin(&redis).await;
    let () = ask(&mut admin, &["ACL", "SETUSER", "default", "-config|set"]).await;
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    daemon.arm(&[daemon.alarm("1", 50)], ArmMode::Replace).await;
    daemon.sink.signal(|signal| signal.key == key("1")).await;
    assert_eq!(flags(&mut admin).await, "xE");
}

#[tokio::test]
async fn flags_switched_off_at_run_time_are_switched_on_again() {
    let redis = server().start().await.unwrap();
    let daemon = Daemon::default_on(&redis.url()).listen().await;
    let mut admin = admin(&redis).await;
    let () = ask(
        &mut admin,
        &["CONFIG", "SET", "notify-keyspace-events", "Kg"],
    )
    .await;
    until("the flag is set again", async || {
        flags(&mut admin.clone()).await.contains('x')
    })
    .await;
    daemon.is_listening_becomes(true).await;
    assert!(flags(&mut admin).await.contains('g'));
}

/// The least that the documentation asks for.
async fn restricted_user(redis: &PrivateRedis, more: &[&str]) -> String {
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "resetkeys",
        "~C@m*",
        "~#SILCK`*",
        "~#lapsed:*",
        "resetchannels",
        "&__keyevent@0__:expired",
        "-@all",
        "+set",
        "+del",
        "+pttl",
        "+getrange",
        "+hset",
        "+hgetall",
        "+hdel",
        "+psubscribe",
        "+ping",
    ];
    let rules = [&rules[..], more].concat();
    let () = ask(&mut admin(redis).await, &rules).await;
    format!("redis://app:pw@127.0.0.1:{}/0", redis.port())
}
