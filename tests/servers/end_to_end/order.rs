//! The order of what is said about a task: what is heard of its key counts if it is younger than the last word on its row,
//! and an acknowledged word is not undone by anything older.

use std::sync::Arc;
use std::time::Duration;

use lapsed::client::{Pace, Pruning};
use lapsed::ledger::{CancelAnswer, ListFilter};
use lapsed::task::State;
use lapsed::{HandlerError, Handlers, TaskContext};
use tokio::sync::Semaphore;

use crate::support::handlers::{handlers, write_down};
use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

/// Beside those of every daemon: `Job@held@..` runs until it is let go, `Job@fail@..` fails.
fn with_held_runs(go: &Arc<Semaphore>) -> Handlers {
    let mut handlers = handlers();
    let go = Arc::clone(go);
    let held = move |task: TaskContext, _: Vec<String>| {
        let go = Arc::clone(&go);
        async move {
            write_down(&task).await?;
            go.acquire().await?.forget();
            Ok(())
        }
    };
    handlers.on(("Job", "held"), held);
    let fail = |_: Vec<String>| async { Err::<(), _>(HandlerError::new("no luck")) };
    handlers.on(("Job", "fail"), fail);
    handlers
}

async fn until_due_in(rig: &Rig, name: &str, seconds: std::ops::Range<i64>) {
    let now = rig.now_ms().await;
    until(format!("`{name}` is due in {seconds:?} s"), async || {
        let ahead_ms = rig.record(name).await.due.0 - now;
        seconds.start * 1_000 <= ahead_ms && ahead_ms < seconds.end * 1_000
    })
    .await;
}

async fn delete(rig: &Rig, name: &str) {
    let () = rig.redis_says(&["DEL", name]).await;
}

/// Everything that was heard before this has been dealt with.
async fn has_caught_up(rig: &Rig, marker: &str) {
    rig.arm(marker, 60_000).await;
    rig.until_adopted(marker).await;
    delete(rig, marker).await;
    rig.until_state(marker, State::Cancelled).await;
}

#[tokio::test]
async fn a_cancellation_during_a_run_ends_what_was_armed_behind_it() {
    let rig = Rig::new("").await;
    let go = Arc::new(Semaphore::new(0));
    let daemon = rig.daemon_with(with_held_runs(&go));
    daemon.hears_events().await;
    daemon.has_audited().await; // or it arms the keys again
    let names = ["Job@held@created", "Job@held@armed", "Job@held@class"];
    for name in names {
        daemon
            .tasks
            .create(key(name), Duration::ZERO)
            .await
            .unwrap();
        rig.until_state(name, State::Running).await;
    }
    let [created, armed, class] = names;
    for name in [created, class] {
        let later = Duration::from_secs(60);
        let made = daemon.tasks.create(key(name), later).await;
        assert!(made.unwrap().older_run());
    }
    rig.arm(armed, 60_000).await;
    until_due_in(&rig, armed, 50..61).await;
    for name in [created, armed] {
        let answer = daemon.tasks.cancel(&key(name)).await.unwrap();
        assert_eq!(answer, CancelAnswer::Running);
    }
    let filter = ListFilter::class("Job");
    let report = daemon.tasks.cancel_where(&filter).await.unwrap();
    assert_eq!((report.cancelled, report.running), (0, 3));
    for name in names {
        assert_eq!(rig.pttl(name).await, -2, "{name}");
    }
    go.add_permits(3);
    for name in names {
        rig.until_state(name, State::Cancelled).await;
        assert_eq!(rig.record(name).await.attempt, 0, "{name}");
        assert_eq!(rig.runs_of(name).await.len(), 1, "{name}");
    }
    let left = rig
        .number("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0")
        .await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_key_that_was_moved_behind_a_run_can_be_deleted_and_moved_again() {
    let rig = Rig::new("").await;
    let go = Arc::new(Semaphore::new(0));
    let daemon = rig.daemon_with(with_held_runs(&go));
    daemon.hears_events().await;
    let [deleted, sooner] = ["Job@held@deleted", "Job@held@sooner"];
    for name in [deleted, sooner] {
        rig.arm(name, 300).await;
        rig.until_adopted(name).await;
        rig.until_state(name, State::Running).await;
        rig.arm(name, 60_000).await;
        until_due_in(&rig, name, 50..61).await;
    }
    delete(&rig, deleted).await;
    until("the deletion is honoured", async || {
        rig.record(deleted).await.cancel_requested
    })
    .await;
    rig.arm(sooner, 3_000).await;
    until_due_in(&rig, sooner, 0..4).await;
    go.add_permits(3);
    rig.until_state(deleted, State::Cancelled).await;
    rig.until_state(sooner, State::Done).await;
    assert_eq!(rig.runs_of(deleted).await.len(), 1);
    let runs = rig.runs_of(sooner).await;
    assert_eq!(runs.len(), 2);
    assert!(runs[1].at_ms >= runs[1].due_ms, "{runs:?}");
}

#[tokio::test]
async fn deleting_the_key_of_a_task_that_waits_for_a_retry_cancels_it() {
    let rig = Rig::new("retry = { ladder = ['60s'], jitter = 0.0 }").await;
    let daemon = rig.daemon_with(with_held_runs(&Arc::new(Semaphore::new(0))));
    daemon.hears_events().await;
    let name = "Job@fail@1";
    rig.arm(name, 300).await;
    rig.until_adopted(name).await;
    rig.until_state(name, State::Waiting).await;
    until("its key is armed for the retry", async || {
        rig.pttl(name).await > 0
    })
    .await;
    delete(&rig, name).await;
    rig.until_state(name, State::Cancelled).await;
}

#[tokio::test]
async fn a_key_armed_near_the_time_of_a_clients_task_moves_it_exactly() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    for (name, apart_ms) in [
        ("Job@record@later", 1_700i64),
        ("Job@record@sooner", -1_700),
    ] {
        let made = daemon
            .tasks
            .create(key(name), Duration::from_secs(60))
            .await
            .unwrap();
        let due = made.due().0;
        let left_ms = due - rig.now_ms().await + apart_ms;
        rig.arm(name, left_ms).await;
        until(format!("`{name}` is moved"), async || {
            (rig.record(name).await.due.0 - due) * apart_ms.signum() >= 1_000
        })
        .await;
    }
    // So near that both times have passed before the first of them could be swept.
    let name = "Job@record@soon";
    let made = daemon.tasks.create(key(name), Duration::from_secs(4));
    let due = made.await.unwrap().due().0;
    let armed_for = due + 1_500;
    rig.arm(name, armed_for - rig.now_ms().await).await;
    rig.until_done(1).await;
    let runs = rig.runs_of(name).await;
    assert_eq!(runs.len(), 1);
    assert!(
        runs[0].at_ms >= armed_for,
        "{runs:?}, armed for {armed_for}"
    );
}

#[tokio::test]
async fn each_expiry_given_to_a_key_of_ours_counts_and_leaves_the_task_what_it_was() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let name = "Job@record@1";
    let made = daemon.tasks.create(key(name), Duration::from_secs(90));
    made.await.unwrap();
    for (left_ms, wanted) in [("60000", 50..61), ("20000", 10..21), ("40000", 30..41)] {
        let () = rig.redis_says(&["PEXPIRE", name, left_ms]).await;
        until_due_in(&rig, name, wanted).await;
        assert!(!rig.record(name).await.adopted);
    }
    delete(&rig, name).await;
    has_caught_up(&rig, "Job@record@marker").await;
    assert_eq!(
        rig.state(name).await,
        State::Pending,
        "it has a row of its own"
    );
}

#[tokio::test]
async fn a_key_armed_after_a_cancellation_or_the_end_begins_anew_however_near() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let made = "Job@record@made";
    let armed = "Job@record@armed";
    let due_in = Duration::from_secs(60);
    daemon.tasks.create(key(made), due_in).await.unwrap();
    rig.arm(armed, 60_000).await;
    rig.until_adopted(armed).await;
    for name in [made, armed] {
        let due = rig.record(name).await.due.0;
        let answer = daemon.tasks.cancel(&key(name)).await.unwrap();
        assert_eq!(answer, CancelAnswer::Cancelled);
        rig.arm(name, due - rig.now_ms().await).await;
        rig.until_state(name, State::Pending).await;
    }
    let done = "Job@record@done";
    rig.arm(done, 300).await;
    rig.until_adopted(done).await;
    rig.until_state(done, State::Done).await;
    rig.arm(done, 1_000).await;
    until("it ran again", async || rig.runs_of(done).await.len() == 2).await;
}

#[tokio::test]
async fn a_key_that_is_there_again_after_redis_died_does_not_undo_a_cancellation() {
    let options = lapsed_sandbox::PrivateRedis::options()
        .set("appendonly", "yes")
        .set("appendfsync", "always");
    let mut rig = crate::support::setup::Setup::new("")
        .redis(options)
        .start()
        .await;
    let daemon = rig.listening_daemon().await;
    let name = "Job@record@1";
    rig.arm(name, 60_000).await;
    rig.until_adopted(name).await;
    // Moved, and dead before that is written down.
    rig.arm(name, 4_000).await;
    rig.redis.kill();
    let answer = daemon.tasks.cancel(&key(name)).await.unwrap();
    assert_eq!(answer, CancelAnswer::Cancelled);
    rig.redis.start_again().await.unwrap();
    daemon.hears_events().await;
    let left_ms = rig.pttl(name).await;
    assert!(left_ms > 0, "its key is there again: {left_ms}");
    has_caught_up(&rig, "Job@record@marker").await;
    until("its key has expired", async || rig.pttl(name).await == -2).await;
    has_caught_up(&rig, "Job@record@marker").await;
    assert_eq!(rig.state(name).await, State::Cancelled);
    assert_eq!(rig.runs_of(name).await, []);
}

#[tokio::test]
async fn keys_of_an_older_dump_revive_no_finished_task() {
    let mut rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let [done, deleted, moved] = ["Job@record@done", "Job@record@deleted", "Job@record@moved"];
    for name in [done, deleted, moved] {
        rig.arm(name, 60_000).await;
        rig.until_adopted(name).await;
    }
    let () = rig.redis_says(&["SAVE"]).await;
    rig.arm(done, 300).await;
    rig.until_state(done, State::Done).await;
    delete(&rig, deleted).await;
    rig.until_state(deleted, State::Cancelled).await;
    rig.arm(moved, 90_000).await;
    until_due_in(&rig, moved, 80..91).await;
    daemon.stop().await;
    rig.redis.kill();
    rig.redis.start_again().await.unwrap();
    for name in [done, deleted, moved] {
        assert!(rig.pttl(name).await > 0, "{name} is there again");
    }
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await;
    has_caught_up(&rig, "Job@record@marker").await;
    assert_eq!(rig.state(done).await, State::Done);
    assert_eq!(rig.state(deleted).await, State::Cancelled);
    until_due_in(&rig, moved, 70..91).await;
    // What is armed from now on counts.
    rig.arm(done, 300).await;
    until("it ran again", async || rig.runs_of(done).await.len() == 2).await;
}

#[tokio::test]
async fn a_key_armed_over_a_finished_task_while_no_daemon_ran_counts_unless_redis_restarted() {
    for restarts in [false, true] {
        let options = lapsed_sandbox::PrivateRedis::options()
            .set("appendonly", "yes")
            .set("appendfsync", "always");
        let mut rig = crate::support::setup::Setup::new("")
            .redis(options)
            .start()
            .await;
        until("redis has run for some seconds", async || {
            rig.redis_uptime_s().await >= 3
        })
        .await;
        let name = "Job@record@1";
        let daemon = rig.listening_daemon().await;
        rig.arm(name, 300).await;
        rig.until_adopted(name).await;
        rig.until_state(name, State::Done).await;
        daemon.stop().await;
        rig.arm(name, 60_000).await;
        if restarts {
            rig.redis.kill();
            rig.redis.start_again().await.unwrap();
        }
        let daemon = rig.listening_daemon().await;
        daemon.has_audited().await;
        assert!(rig.pttl(name).await > 0);
        match restarts {
            false => rig.until_state(name, State::Pending).await,
            true => {
                has_caught_up(&rig, "Job@record@marker").await;
                assert_eq!(rig.state(name).await, State::Done);
            }
        }
    }
}

#[tokio::test]
async fn a_row_is_pruned_only_after_its_key_is_deleted() {
    let rig = Rig::new("retention.done = '60s'").await;
    let daemon = rig.listening_daemon().await;
    let [with_key, without] = ["Job@record@with", "Job@record@without"];
    for name in [with_key, without] {
        daemon.create(name, 0).await;
        rig.until_state(name, State::Done).await;
    }
    // What a reschedule to sooner leaves behind that did not reach redis.
    let value = format!("lapsed:{}", rig.now_ms().await + 40_000);
    let () = rig
        .redis_says(&["SET", with_key, &value, "PX", "40000"])
        .await;
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = end_time - 600, run_end = end_time, finished_at = finished_at - 600")
        .await;
    let rows = async || rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await;
    until("one of them is forgotten", async || rows().await == 1).await;
    assert_eq!(rig.state(with_key).await, State::Done);
    // Sooner or later redis says that it has expired.
    let () = rig.redis_says(&["PEXPIRE", with_key, "10"]).await;
    until("the other is, too", async || rows().await == 0).await;
    has_caught_up(&rig, "Job@record@marker").await;
    assert_eq!(rig.runs_of(with_key).await.len(), 1);
}

#[tokio::test]
async fn no_row_is_pruned_while_redis_cannot_be_asked_for_keys() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.create("Job@record@1", 0).await;
    rig.until_done(1).await;
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = end_time - 600, run_end = end_time, finished_at = finished_at - 600")
        .await;
    let pruning = Pruning {
        state: State::Done,
        older_than: Some(Duration::from_secs(60)),
        keep: None,
        archive: false,
        dry_run: false,
    };
    let client = rig.client().await;
    rig.redis.stop_process().unwrap();
    let refused = client.prune(pruning, Pace::default()).await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .starts_with("finished tasks are kept")
    );
    rig.redis.continue_process().unwrap();
    until("it is forgotten", async || {
        client.prune(pruning, Pace::default()).await.ok() == Some(1)
    })
    .await;
}
