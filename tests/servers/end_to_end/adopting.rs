//! A bare `SETEX` is a task: written into the ledger, moved, called off, run once.

use std::time::Duration;

use lapsed::engine::DropReason;
use lapsed::task::State;
use lapsed::timer::Source;
use lapsed::{Handlers, TaskContext};
use rustix::process::Signal;

use crate::support::daemon::Daemon;
use crate::support::handlers::write_down;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::create;
use crate::support::wait::until;

/// Nothing but events and nudges starts a task.
const WITHOUT_SWEEP: &str = "sweep.interval = '1h'";

#[tokio::test]
async fn a_bare_setex_runs_once_and_at_its_time() {
    let rig = Rig::new(WITHOUT_SWEEP).await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    let started = rig.now_ms().await;
    let () = rig.redis_says(&["SETEX", "Job@record@s", "1", ""]).await;
    let () = rig
        .redis_says(&["SET", "Job@record@set", "whatever", "EX", "1"])
        .await;
    for delay_ms in [30, 300, 700, 5_000] {
        rig.arm(&format!("Job@record@{delay_ms}"), delay_ms).await;
    }
    rig.until_done(6).await;
    rig.each_ran_once(6).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
    for run in &rig.runs().await {
        let delay_ms = match run.name.trim_start_matches("Job@record@") {
            "s" | "set" => 1_000,
            delay => delay.parse().unwrap(),
        };
        // A due time that is too late would keep it from running before the deadline. Both clocks are cut to milliseconds.
        assert!(
            run.due_ms + 1 >= started + delay_ms,
            "{run:?} since {started}"
        );
    }
    assert!(rig.record("Job@record@s").await.adopted);
    daemon
        .until_counted_adopted("expire", |count| count >= 1.0)
        .await;
}

#[tokio::test]
async fn an_adopted_task_runs_from_its_row_when_redis_is_killed() {
    let mut rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    rig.arm("Job@record@1", 4_000).await;
    let record = rig.until_adopted("Job@record@1").await;
    assert_eq!((record.state, record.adopted), (State::Pending, true));
    rig.redis.kill();
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.runs().await[0].due_ms, record.due.0);
}

#[tokio::test]
async fn setex_again_moves_the_task() {
    let rig = Rig::new(WITHOUT_SWEEP).await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    for (name, before_ms, after_ms) in [
        ("Job@record@later", 2_000, 4_000),
        ("Job@record@sooner", 60_000, 1_500),
    ] {
        rig.arm(name, before_ms).await;
        let before = rig.until_adopted(name).await;
        rig.arm(name, after_ms).await;
        until("it is moved", async || {
            rig.record(name).await.due != before.due
        })
        .await;
    }
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
    daemon
        .until_counted_adopted("moved", |count| count == 2.0)
        .await;
}

#[tokio::test]
async fn expire_moves_a_task_whoever_created_it() {
    let rig = Rig::new(WITHOUT_SWEEP).await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    rig.arm("Job@record@bare", 60_000).await;
    rig.until_adopted("Job@record@bare").await;
    daemon.create("Job@record@made", 60_000).await;
    for name in ["Job@record@bare", "Job@record@made"] {
        let set: i64 = rig.redis_says(&["EXPIRE", name, "2"]).await;
        assert_eq!(set, 1);
    }
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
}

#[tokio::test]
async fn deleting_the_key_cancels_an_adopted_task_and_no_other() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    for name in ["del", "unlink", "persist", "expire", "again"] {
        rig.arm(&format!("Job@record@{name}"), 5_000).await;
    }
    for name in ["del", "unlink", "persist", "expire", "again"] {
        rig.until_adopted(&format!("Job@record@{name}")).await;
    }
    daemon.create("Job@record@made", 3_000).await;
    let commands: [&[&str]; 6] = [
        &["DEL", "Job@record@del"],
        &["UNLINK", "Job@record@unlink"],
        &["PERSIST", "Job@record@persist"],
        &["EXPIRE", "Job@record@expire", "-1"],
        &["DEL", "Job@record@again"],
        &["DEL", "Job@record@made"],
    ];
    for command in commands {
        let done: i64 = rig.redis_says(command).await;
        assert_eq!(done, 1, "{command:?}");
    }
    for name in ["del", "persist", "expire", "again"] {
        rig.until_state(&format!("Job@record@{name}"), State::Cancelled)
            .await;
    }
    rig.arm("Job@record@again", 4_000).await;
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    let mut ran: Vec<String> = rig.runs().await.into_iter().map(|run| run.name).collect();
    ran.sort();
    assert_eq!(ran, ["Job@record@again", "Job@record@made"]);
}

#[tokio::test]
async fn a_key_deleted_and_armed_again_at_once_runs_once() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    rig.arm("Job@record@1", 3_000).await;
    rig.until_adopted("Job@record@1").await;
    for _ in 0..3 {
        let _: i64 = rig.redis_says(&["DEL", "Job@record@1"]).await;
        rig.arm("Job@record@1", 2_500).await;
    }
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn keys_armed_while_no_daemon_ran_are_adopted_at_its_start() {
    let rig = Setup::new("redis.key_prefix = 'app:'").start().await;
    for number in 0..50 {
        rig.arm(&format!("app:Job@record@{number}"), 60_000).await;
    }
    rig.arm("Job@record@unprefixed", 60_000).await;
    rig.arm("app:Other@method@1", 60_000).await;
    rig.arm("app:Job@record@soon", 3_000).await;
    let daemon = rig.daemon();
    until("all are adopted", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE adopted = 1")
            .await
            == 51
    })
    .await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    daemon
        .until_counted_adopted("scan", |count| count == 51.0)
        .await;
}

#[tokio::test]
async fn a_key_armed_without_an_event_runs_when_it_expires() {
    // Without `g`, and without the right to add it, arming is silent.
    let redis = lapsed_sandbox::PrivateRedis::options().set("notify-keyspace-events", "Ex");
    let rig = Setup::new("").redis(redis).start().await;
    let rules: Vec<&str> = "ACL SETUSER default -config|set".split(' ').collect();
    let () = rig.redis_says(&rules).await;
    let daemon = rig.listening_daemon().await;
    until("the first audit is over", async || {
        daemon.metric("lapsed_audits_total{reason=\"subscribed\"}")
            + daemon.metric("lapsed_audits_total{reason=\"start\"}")
            >= 1.0
    })
    .await;
    rig.arm("Job@record@1", 1_000).await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    daemon
        .until_counted_adopted("expired", |count| count == 1.0)
        .await;
}

#[tokio::test]
async fn keys_that_expire_unheard_outlive_the_daemon_although_their_route_is_busy() {
    const COUNT: i64 = 10;
    for signal in [Signal::TERM, Signal::KILL] {
        let redis = lapsed_sandbox::PrivateRedis::options().set("notify-keyspace-events", "Ex");
        let settings = "engine.drain_timeout = '10s'\n[[routes]]\nmatch = '^Slow@'\n\
                        exec = ['sleep', '600']\nconcurrency = 1";
        let rig = Setup::new(settings).redis(redis).start().await;
        let rules: Vec<&str> = "ACL SETUSER default -config|set".split(' ').collect();
        let () = rig.redis_says(&rules).await;
        let rows = async || {
            rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE adopted = 1")
                .await
        };
        let mut daemon = Process::listen(&rig, &[]);
        daemon.until_logged("subscribed to expired events").await;
        create(&rig.client().await.into(), "Slow@m@first", 0).await;
        rig.until_state("Slow@m@first", State::Running).await;
        // An audit may find some of them before they expire, but not those of all rounds.
        let mut adopted = 0;
        for n in 0..COUNT {
            rig.arm(&format!("Slow@m@{n}"), 1_000).await;
            adopted = rows().await;
        }
        assert!(adopted < COUNT);
        let expired = async || {
            let left: Vec<String> = rig.redis_says(&["KEYS", "Slow@m@*"]).await;
            left.is_empty()
        };
        until("the keys have expired", expired).await;
        // What is lost with the process is what it had no time for.
        let waited = match signal {
            Signal::TERM => adopted + 1,
            _ => COUNT,
        };
        until("they have rows", async || rows().await >= waited).await;
        if signal == Signal::TERM {
            daemon.signal(signal);
            daemon.until_ended().await;
        } else {
            daemon.kill();
        }
        let others = rig.config_with("[[routes]]\nmatch = '^Slow@'\nlog = {}");
        let _daemon = Daemon::start(&others, Handlers::new());
        rig.until_done(COUNT as usize + 1).await;
    }
}

#[tokio::test]
async fn a_stopping_daemon_adopts_the_keys_that_it_has_just_observed() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let read = async || {
        let info: String = rig.redis_says(&["INFO", "commandstats"]).await;
        info.contains("cmdstat_getrange")
    };
    rig.arm("Job@record@1", 60_000).await;
    until("the key was looked at", read).await;
    daemon.stop().await;
    assert!(rig.record("Job@record@1").await.adopted);
}

#[tokio::test]
async fn an_adopted_task_released_by_a_stopped_daemon_is_not_armed_again() {
    let rig = Rig::new("engine.drain_timeout = '1s'").await;
    let mut blocked = Handlers::new();
    blocked.on(
        ("Job", "record"),
        |task: TaskContext, _: Vec<String>| async move {
            write_down(&task).await?;
            std::future::pending().await
        },
    );
    let first = rig.daemon_with(blocked);
    first.hears_events().await;
    rig.arm("Job@record@1", 300).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    // Beyond the tolerance between a key and its row.
    let due = rig.record("Job@record@1").await.due;
    rig.until_clock(due.plus(Duration::from_secs(3))).await;
    let second = rig.listening_daemon().await;
    first.stop().await;
    rig.until_done(1).await;
    rig.arm("Job@record@2", 2_000).await;
    rig.until_done(2).await;
    assert_eq!(rig.runs_of("Job@record@1").await.len(), 2);
    assert_eq!(rig.record("Job@record@1").await.due, due);
    let read = second.metric("lapsed_adopted_total{reason=\"again\"}");
    assert_eq!(read, 0.0);
}

#[tokio::test]
async fn a_move_made_while_redis_is_down_survives_the_older_key() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    rig.arm("Job@record@1", 90_000).await;
    rig.until_adopted("Job@record@1").await;
    daemon.stop().await;
    // As a producer does it that does not reach Redis.
    rig.run_sql(
        "UPDATE tb_time_limit_task SET end_time = UNIX_TIMESTAMP(NOW(3)) + 60, adopted = 0",
    )
    .await;
    let moved = rig.record("Job@record@1").await.due;
    let daemon = rig.listening_daemon().await;
    until("the key was found and left alone", async || {
        daemon.dropped(DropReason::Known) >= 1.0
    })
    .await;
    assert_eq!(rig.record("Job@record@1").await.due, moved);
}
