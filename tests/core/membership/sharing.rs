//! Who runs which task.

use std::time::Duration;

use lapsed::ledger::{Ledger, NewTask, Producer};
use lapsed::membership::{REFRESH, Readiness};
use lapsed::{TaskKey, UnixMs};
use tokio::time::sleep;

use crate::membership::rig::Ground;

#[tokio::test(start_paused = true)]
async fn engines_that_know_each_other_make_no_failed_claims() {
    let ground = Ground::new();
    let daemons = [ground.daemon(), ground.daemon(), ground.daemon()];
    for daemon in &daemons {
        daemon.until_members(3).await;
    }
    ground.create("", 300, Duration::from_secs(5)).await;
    ground.until_done(300).await;
    let claims = |result| {
        let name = format!("lapsed_claims_total{{result=\"{result}\"}}");
        daemons.each_ref().map(|daemon| daemon.metric(&name))
    };
    assert_eq!(claims("won").iter().sum::<u64>(), 300);
    assert!(
        claims("won").iter().all(|won| *won > 60),
        "{:?}",
        claims("won")
    );
    assert_eq!(claims("missed"), [0; 3]);
    assert!(ground.late().iter().all(|late| *late < 10));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_silent_owner_start_within_two_seconds() {
    let ground = Ground::new();
    ground.keep_shown(Readiness::Ready, "Job@run");
    let daemon = ground.daemon();
    daemon.until_members(2).await;
    ground.create("", 500, Duration::from_secs(5)).await;
    ground.until_done(500).await;
    let (own, others): (Vec<u64>, Vec<u64>) =
        ground.late().into_iter().partition(|late| *late < 500);
    assert!(
        own.len() > 200 && others.len() > 200,
        "{} {}",
        own.len(),
        others.len()
    );
    assert!(own.iter().all(|late| *late < 10), "{own:?}");
    assert!(
        others.iter().all(|late| (1_000..1_800).contains(late)),
        "{others:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_stopping_or_incapable_member_owns_no_task() {
    for (readiness, handler) in [
        (Readiness::Full, "Job@run"),
        (Readiness::Away, "Job@run"),
        (Readiness::Ready, "Job@other"),
    ] {
        let ground = Ground::new();
        ground.keep_shown(readiness, handler);
        let daemon = ground.daemon();
        daemon.until_members(2).await;
        ground.create("", 100, Duration::from_secs(5)).await;
        ground.until_done(100).await;
        let late = ground.late();
        assert!(
            late.iter().all(|late| *late < 10),
            "{readiness:?} {handler}: {late:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_removed() {
    let ground = Ground::new();
    let daemon = ground.daemon();
    sleep(2 * REFRESH).await;
    ground.show(7, Readiness::Ready, "Job@run").await;
    daemon.until_members(2).await;
    daemon.until_members(1).await;
    ground.create("", 100, Duration::from_secs(5)).await;
    ground.until_done(100).await;
    assert!(ground.late().iter().all(|late| *late < 10));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_transfers_its_share_without_a_late_task() {
    let ground = Ground::new();
    let (first, second) = (ground.daemon(), ground.daemon());
    first.until_members(2).await;
    second.until_members(2).await;
    ground.create("", 500, Duration::from_secs(5)).await;
    sleep(Duration::from_secs(6)).await;
    first.stop().await;
    ground.until_done(500).await;
    let late = ground.late();
    assert_eq!(late.len(), 500);
    assert!(late.iter().all(|late| *late < 10), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_worked_on_by_all_and_each_begins_with_its_own() {
    let ground = Ground::new();
    ground.keep_shown(Readiness::Ready, "Job@run");
    let daemon = ground.daemon();
    daemon.until_members(2).await;
    // Overdue by a minute: also what the silent one owns is done.
    let now = ground.ledger.clock().now();
    let tasks = (0..3_000).map(|n| {
        let key = TaskKey::build("Job", "run", [n.to_string()]).unwrap();
        NewTask::new(key, UnixMs(now.0 - 60_000))
    });
    ground
        .ledger
        .create(&tasks.collect::<Vec<_>>())
        .await
        .unwrap();
    ground.until_done(3_000).await;
    assert!(ground.ledger.clock().now().since(now) < Duration::from_secs(10));
    drop(daemon);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_full_now_and_then_has_no_row_read_twice() {
    const TASKS: i64 = 400;
    let ground = Ground::new();
    let daemon = ground.daemon();
    ground.show(7, Readiness::Ready, "Job@run").await;
    daemon.until_members(2).await;
    // All in sight, and none due before the end.
    ground.create("", TASKS, Duration::from_secs(9)).await;
    let before = ground.ledger.rows_read_ahead();
    for flip in 0..7 {
        let readiness = match flip % 3 {
            0 => Readiness::Full,
            1 => Readiness::Ready,
            _ => Readiness::Away,
        };
        ground.show(7, readiness, "Job@run").await;
        sleep(REFRESH).await;
    }
    let read = ground.ledger.rows_read_ahead() - before;
    // Those of the other one were read when they became ours.
    assert!(read > 250, "{read}");
    assert!(read <= TASKS as u64, "{read} rows were read");
    ground.until_done(TASKS as u64).await;
    let late = ground.late();
    assert!(late.iter().all(|late| *late < 10), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn each_row_is_read_ahead_by_its_owner_alone() {
    const TASKS: i64 = 800;
    let ground = Ground::new();
    let daemons: Vec<_> = (0..8).map(|_| ground.daemon()).collect();
    for daemon in &daemons {
        daemon.until_members(8).await;
    }
    // What was read by those who owned all at first is behind by then.
    sleep(Duration::from_secs(15)).await;
    ground.create("", TASKS, Duration::from_secs(5)).await;
    let before = ground.ledger.rows_read_ahead();
    ground.until_done(TASKS as u64).await;
    let read = ground.ledger.rows_read_ahead() - before;
    assert_eq!(read, TASKS as u64);
    let late = ground.late();
    assert!(late.iter().all(|late| *late < 10), "{late:?}");
}
