//! Producers of a sorted set go on unchanged: their entries are adopted, moved, cancelled, run once and removed.

use lapsed::engine::DropReason;
use lapsed::timer::Source;
use std::sync::Arc;

use lapsed::{HandlerError, Handlers, TaskContext};
use tokio::sync::Notify;

use super::queue::{MAPPED, Queue, SET, SWEPT, due_of, seconds, until_kept, with_events};
use crate::support::handlers::write_down;
use crate::support::rig::Rig;
use crate::support::wait::until;

#[tokio::test]
async fn entries_of_an_unchanged_producer_run_once_and_are_removed() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    queue.add("overdue", now - 5).await;
    queue.add("soon", now + 2).await;
    queue.add("in_ms", (now + 2) * 1000 + 250).await;
    queue.add("fraction", format!("{}.5", now + 2)).await;
    queue.add("Job@effect@own", now + 1).await;
    rig.until_done(5).await;
    rig.each_ran_once(4).await;
    rig.each_effect_once(1).await;
    queue.until_empty().await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
    let soon = rig.record("Job@record@soon").await;
    assert_eq!((soon.due, soon.adopted), (due_of(now + 2), true));
    assert_eq!(
        rig.record("Job@record@in_ms").await.due.0,
        (now + 2) * 1000 + 250
    );
}

#[tokio::test]
async fn entries_are_found_without_events() {
    let rig = Rig::new(MAPPED).await;
    let words = ["CONFIG", "SET", "notify-keyspace-events", ""];
    let () = rig.redis_says(&words).await;
    let _daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    for number in 0..20 {
        queue.add(&number.to_string(), now + number % 3).await;
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    queue.until_empty().await;
    let flags: Vec<String> = rig
        .redis_says(&["CONFIG", "GET", "notify-keyspace-events"])
        .await;
    assert_eq!(flags[1], "", "the configuration is left as it is");
}

#[tokio::test]
async fn an_acknowledged_entry_is_not_seen_by_old_consumers() {
    let rig = with_events(MAPPED).await;
    let _daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let due = seconds(&rig, 3600).await;
    queue.add("42", due).await;
    queue.until_acknowledged("42").await;
    let micros = due_of(due).0 * 1000;
    assert_eq!(queue.score("42").await, Some(micros as f64));
    let later_ms = (due + 60) * 1000;
    assert!(queue.seen_by_consumers(later_ms).await.is_empty());
}

#[tokio::test]
async fn zadd_again_moves_the_task() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    for (member, first, second) in [("sooner", 3600, 3), ("later", 3, 5)] {
        queue.add(member, now + first).await;
        queue.until_acknowledged(member).await;
        queue.add(member, now + second).await;
    }
    rig.until_done(2).await;
    rig.each_ran_once(2).await;
    queue.until_empty().await;
    for (member, second) in [("sooner", 3), ("later", 5)] {
        let run = &rig.runs_of(&format!("Job@record@{member}")).await[0];
        assert_eq!(run.due_ms, due_of(now + second).0);
    }
    daemon
        .until_counted_adopted("moved", |count| count == 2.0)
        .await;
}

#[tokio::test]
async fn a_score_of_zero_or_less_means_at_once() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let before = rig.now_ms().await;
    for (member, score) in [("zero", "0"), ("negative", "-7.5"), ("least", "-inf")] {
        queue.add(member, score).await;
    }
    rig.until_done(3).await;
    rig.each_ran_once(3).await;
    for run in rig.runs().await {
        assert!(run.due_ms + 1_000 >= before, "{run:?} from {before}");
    }
    queue.until_empty().await;
    // The same member once more is another request.
    queue.add("zero", "0").await;
    until("it has run again", async || {
        rig.runs_of("Job@record@zero").await.len() == 2
    })
    .await;
    drop(daemon);
}

#[tokio::test]
async fn the_same_entry_after_its_task_has_ended_is_a_new_request() {
    let rig = with_events(MAPPED).await;
    let _daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    for times in 1..=3 {
        queue.add("again", now).await;
        until(format!("it has run {times} times"), async || {
            rig.runs_of("Job@record@again").await.len() == times
        })
        .await;
        queue.until_empty().await;
    }
}

#[tokio::test]
async fn members_that_are_no_tasks_stay_and_do_not_stop_others() {
    let settings = "timer = 'sorted_set'\nsweep.interval = '1h'";
    let rig = with_events(settings).await;
    let daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    let long = format!("Job@record@{}", "x".repeat(300));
    let foreign = ["42", "Job@record@bad\n", &long, "Unrouted@job@1"];
    for member in foreign {
        queue.add(member, now - 60).await;
    }
    for number in 0..1_500 {
        queue.add(&format!("row{number}"), now - 50).await;
    }
    queue.add("Job@record@never", "inf").await;
    for number in 0..50 {
        queue.add(&format!("Job@record@{number}"), now).await;
    }
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    until("only foreign members are left", async || {
        Queue::of(&rig).await.members().await.len() == foreign.len() + 1_500
    })
    .await;
    for member in foreign {
        assert_eq!(queue.score(member).await, Some((now - 60) as f64));
    }
    assert_eq!(queue.score("Job@record@never").await, Some(f64::INFINITY));
    // One that was written while its score was read may be read later.
    until("all are counted", async || {
        daemon.dropped(DropReason::Foreign) >= 1_502.0
    })
    .await;
    assert_eq!(daemon.dropped(DropReason::Foreign), 1_502.0);
    assert_eq!(daemon.dropped(DropReason::TooLong), 1.0);
}

#[tokio::test]
async fn an_entry_written_while_its_task_runs_runs_it_again() {
    let rig = with_events("timer = 'sorted_set'\nsweep.interval = '1h'").await;
    let gate = Arc::new(Notify::new());
    let go = Arc::clone(&gate);
    let mut handlers = Handlers::new();
    handlers.on(("Job", "slow"), move |task: TaskContext| {
        let go = Arc::clone(&go);
        async move {
            write_down(&task).await?;
            go.notified().await;
            Ok(())
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    queue.add("Job@slow", now).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    queue.add("Job@slow", now + 3).await;
    queue.until_acknowledged("Job@slow").await;
    gate.notify_one();
    until("it runs again", async || rig.runs().await.len() == 2).await;
    gate.notify_one();
    rig.until_done(1).await;
    queue.until_empty().await;
    assert_eq!(rig.runs().await[1].due_ms, due_of(now + 3).0);
}

#[tokio::test]
async fn a_retry_moves_the_entry() {
    let rig = with_events("timer = 'sorted_set'\nretry.ladder = ['1s']").await;
    let mut handlers = Handlers::new();
    handlers.on(("Job", "fails"), |task: TaskContext| async move {
        match task.attempt() {
            1 => Err(HandlerError::new("not yet")),
            _ => write_down(&task).await,
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.hears_events().await;
    let mut queue = Queue::of(&rig).await;
    let now = seconds(&rig, 0).await;
    queue.add("Job@fails", now).await;
    until("it waits for its retry", async || {
        let score = Queue::of(&rig).await.score("Job@fails").await;
        score.is_some_and(|score| score > (due_of(now).0 * 1000) as f64)
    })
    .await;
    rig.until_done(1).await;
    queue.until_empty().await;
    assert_eq!(rig.runs().await[0].attempt, 2);
}

#[tokio::test]
async fn tasks_of_lapsed_are_entries_as_well() {
    let rig = with_events(MAPPED).await;
    let daemon = rig.listening_daemon().await;
    daemon.has_swept().await;
    let mut queue = Queue::of(&rig).await;
    for (name, delay_ms) in [
        ("far", 3_600_000),
        ("soon", 1_500),
        ("now", 0),
        ("short", 40),
    ] {
        daemon.create(&format!("Job@record@{name}"), delay_ms).await;
    }
    rig.until_done(3).await;
    rig.each_ran_once(3).await;
    assert_eq!(daemon.signals(Source::Sweep), 0.0);
    until("one entry is left", async || {
        Queue::of(&rig).await.members().await == ["far"]
    })
    .await;
    let due = rig.record("Job@record@far").await.due.0;
    assert_eq!(queue.score("far").await, Some((due * 1000) as f64));
}

#[tokio::test]
async fn members_of_any_bytes_and_any_length_run_with_the_member_as_their_payload() {
    let rig = with_events(SWEPT).await;
    let _daemon = rig.listening_daemon().await;
    until_kept(&rig).await;
    let long = format!(r#"{{"order":"{}"}}"#, "9".repeat(400));
    let members: [&[u8]; 12] = [
        b"two words",
        b" both ends ",
        b"\x00",
        b"a@",
        b"@",
        "9".repeat(60_000).leak().as_bytes(),
        long.as_bytes(),
        b"{\n  \"order\": 1\n}",
        b"\xff\x00binary",
        b"-1abc",
        br#"{"mail":"a@b.c"}"#,
        b"~not-a-digest",
    ];
    let mut connection = rig.redis_connection().await;
    let (soon, far) = (seconds(&rig, 15).await, seconds(&rig, 25).await);
    for member in members {
        let mut add = redis::cmd("ZADD");
        add.arg(SET).arg(soon).arg(member);
        let _: i64 = add.query_async(&mut connection).await.unwrap();
    }
    let mut queue = Queue::of(&rig).await;
    // No key, and a key of a class without a route.
    let stay = ["", &"9".repeat(100_000), "user@example.com"];
    for member in stay {
        queue.add(member, soon).await;
    }
    queue.add("-removed", far).await;
    until("all are adopted", async || rig.with_status(0).await == 13).await;
    queue.until_acknowledged("-removed").await;
    assert!(queue.remove("-removed").await);
    until("all have ended", async || rig.with_status(0).await == 0).await;
    assert_eq!(
        (rig.with_status(1).await, rig.with_status(3).await),
        (12, 1)
    );
    rig.each_ran_once(members.len()).await;
    let payload =
        "SELECT COUNT(*) FROM tb_time_limit_task WHERE payload LIKE '%a@b.c%' AND status = 1";
    assert_eq!(rig.number(payload).await, 1);
    until("only what is no task is left", async || {
        Queue::of(&rig).await.members().await.len() == stay.len()
    })
    .await;
    for member in stay {
        assert_eq!(queue.score(member).await, Some(soon as f64));
    }
}

#[tokio::test]
async fn any_number_of_members_that_are_no_tasks_holds_up_no_other() {
    const FOREIGN: i64 = 300_000;
    let rig = Rig::new("timer = 'sorted_set'\nsweep.interval = '1h'").await;
    let mut connection = rig.redis_connection().await;
    let past = seconds(&rig, -100_000).await;
    for from in (0..FOREIGN).step_by(10_000) {
        let mut add = redis::cmd("ZADD");
        add.arg(SET);
        for number in from..from + 10_000 {
            // Some of the same score, some each with their own.
            add.arg(past + (number / 3).min(60_000))
                .arg(format!("no task {number}"));
        }
        let _: i64 = add.query_async(&mut connection).await.unwrap();
    }
    let _daemon = rig.listening_daemon().await;
    let mut queue = Queue::of(&rig).await;
    for wave in 0..3 {
        let due = rig.now_ms().await + 300;
        for number in 0..20 {
            queue.add(&format!("Job@record@{wave}-{number}"), due).await;
        }
        rig.until_done(20 * (wave + 1)).await;
    }
    rig.each_ran_once(60).await;
    let left: i64 = rig.redis_says(&["ZCOUNT", SET, "-inf", "(inf"]).await;
    assert_eq!(left, FOREIGN);
}
