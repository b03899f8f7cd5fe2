//! What daemons promise, on a ledger in a file. It is checked by the functions that check it on MySQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapsed::task::State;
use lapsed::{HandlerError, TaskContext};

use super::recurring::{catch_up, schedule};
use super::{cancelling, due, pausing, uniqueness};
use crate::support::daemon::Daemon;
use crate::support::file_scene::FileScene;
use crate::support::scene::Scene;
use crate::timers::engine;

#[tokio::test]
async fn each_task_runs_once_and_none_early() {
    due::each_task_runs_once_and_none_early(&FileScene::new("").await).await;
}

#[tokio::test]
async fn each_task_runs_once_without_probes() {
    let scene = FileScene::new("ledger_poll.probe = 'none'").await;
    due::each_task_runs_once_and_none_early(&scene).await;
}

#[tokio::test]
async fn a_task_that_is_moved_runs_once_at_its_new_time() {
    due::a_moved_task_runs_once_at_its_new_time(&FileScene::new("").await).await;
}

#[tokio::test]
async fn a_request_that_is_repeated_runs_the_task_once() {
    due::a_repeated_request_runs_the_task_once(&FileScene::new("").await).await;
}

#[tokio::test]
async fn a_task_cancelled_at_its_due_time_either_ran_before_the_answer_or_never() {
    let scene = FileScene::new("").await;
    cancelling::a_cancelled_task_ran_before_the_answer_or_never(&scene).await;
}

#[tokio::test]
async fn a_task_cancelled_while_it_runs_is_not_tried_again() {
    let scene = FileScene::new("").await;
    cancelling::a_failure_after_a_cancellation_is_not_tried_again(&scene).await;
}

#[tokio::test]
async fn a_killed_daemon_loses_no_task_repeats_none_and_starts_none_early() {
    engine::kill_a_daemon(&FileScene::new("").await).await;
}

#[tokio::test]
async fn throttled_and_debounced_requests_run_a_task_once() {
    uniqueness::throttled_requests_run_a_task_once(&FileScene::new("").await).await;
    uniqueness::debounced_requests_run_a_task_once(&FileScene::new("").await).await;
}

#[tokio::test]
async fn overlapping_pauses_end_independently() {
    pausing::overlapping_pauses_end_independently(&FileScene::new("").await).await;
}

#[tokio::test]
async fn missed_occurrences_follow_the_catch_up_policy_of_their_task() {
    catch_up::missed_occurrences_are_left_out(&FileScene::new("").await).await;
    catch_up::missed_occurrences_are_made_up_for_once(&FileScene::new("").await).await;
    catch_up::missed_occurrences_are_run_up_to_a_number(&FileScene::new("").await).await;
}

#[tokio::test]
async fn a_recurring_task_with_a_count_ends_done() {
    schedule::a_recurring_task_with_a_count_ends_done(&FileScene::new("").await).await;
}

/// Its producers write rows.
#[tokio::test]
async fn rows_of_programs_run_once() {
    const ROWS: i64 = 40;
    let scene = FileScene::new("").await;
    let daemon = scene.ready_daemon().await;
    let now = scene.now_ms().await;
    // Each in a transaction of its own, some of them late, at once, and in two seconds.
    for number in 0..ROWS {
        let due = now - 200 + number * 60;
        scene
            .execute(&format!(
                "INSERT INTO tb_time_limit_task (key, start_time, end_time) VALUES ('Job@record@{number}', {now}, {due})"
            ))
            .await;
    }
    scene.until_done(ROWS as usize).await;
    scene.each_ran_once(ROWS as usize).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_task_that_fails_is_tried_again_and_is_dead_after_its_last_attempt() {
    let scene = FileScene::new("retry.max_attempts = 3").await;
    let attempts = Arc::<AtomicU32>::default();
    let mut handlers = scene.handlers();
    let counted = Arc::clone(&attempts);
    handlers.on(
        ("Job", "fails"),
        move |task: TaskContext, until_attempt: u16| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match task.attempt() < until_attempt {
                    true => Err(HandlerError::new("not yet")),
                    false => Ok(()),
                }
            }
        },
    );
    let daemon = Daemon::start(&scene.config(), handlers);
    daemon.create("Job@fails@2", 0).await;
    scene.until_state("Job@fails@2", State::Done).await;
    daemon.create("Job@fails@9", 0).await;
    scene.until_state("Job@fails@9", State::Dead).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 2 + 3);
    let dead = scene.record("Job@fails@9").await;
    assert_eq!(dead.attempt, 3, "{dead:?}");
    daemon.stop().await;
}
