//! After an acknowledged cancel nothing starts.

use lapsed::engine::DropReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapsed::ledger::CancelAnswer;
use lapsed::task::{State, UnixMs};
use tokio::sync::Notify;

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::tasks::{create, key};
use crate::support::wait::until;

#[tokio::test]
async fn a_task_cancelled_at_its_due_time_either_ran_before_the_answer_or_never() {
    a_cancelled_task_ran_before_the_answer_or_never(&Rig::new("").await).await;
}

pub async fn a_cancelled_task_ran_before_the_answer_or_never(scene: &impl Scene) {
    let daemon = scene.ready_daemon().await;
    let client = scene.producer().await;
    let mut answers = Vec::new();
    for index in 0..100 {
        let name = format!("Job@record@{index}");
        // One after the other: on a slow machine none waits for those before it.
        let made = create(&client, &name, 80).await;
        // From a little before its time to a little after.
        let offset = [-20, -2, 0, 1, 2, 3, 5, 9][index % 8];
        scene.until_clock(UnixMs(made.due().0 + offset)).await;
        let answer = client.cancel(&key(&name)).await.unwrap();
        answers.push((name, answer, scene.now_ms().await));
    }
    until("no task is pending or running", async || {
        scene.with_status(0).await == 0
    })
    .await;
    // One more, so that whatever was on its way has come through.
    daemon.create("Job@record@last", 100).await;
    scene.until_state("Job@record@last", State::Done).await;

    let (mut cancelled, mut ran) = (0, 0);
    for (name, answer, answered_at) in answers {
        let runs = scene.runs_of(&name).await;
        match answer {
            CancelAnswer::Cancelled => {
                cancelled += 1;
                assert_eq!(runs, [], "ran although cancelled");
            }
            CancelAnswer::Running | CancelAnswer::Finished(State::Done) => {
                ran += 1;
                assert_eq!(runs.len(), 1, "{name}: {answer:?}");
                assert!(runs[0].at_ms >= runs[0].due_ms, "early: {runs:?}");
                if answer != CancelAnswer::Running {
                    assert!(runs[0].at_ms <= answered_at, "{name}: {answer:?}");
                }
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(
        cancelled > 0 && ran > 0,
        "no race: {cancelled} cancelled, {ran} ran"
    );
}

#[tokio::test]
async fn a_cancelled_task_never_runs_and_its_key_is_gone() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    daemon.has_audited().await; // or it arms the key again
    let made = daemon.create("Job@record@1", 1_000).await;
    let answer = daemon.tasks.cancel(&key("Job@record@1")).await.unwrap();
    assert_eq!(answer, CancelAnswer::Cancelled);
    assert_eq!(rig.pttl("Job@record@1").await, -2);
    rig.until_clock(made.due()).await;
    rig.publish_expired("Job@record@1").await;
    until("its event came to nothing", async || {
        daemon.dropped(DropReason::Cancelled) >= 1.0
    })
    .await;
    assert_eq!(rig.runs().await, []);

    // Asked for again, it runs.
    daemon.create("Job@record@1", 100).await;
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
}

#[tokio::test]
async fn a_task_cancelled_while_it_runs_is_not_tried_again() {
    a_failure_after_a_cancellation_is_not_tried_again(&Rig::new("").await).await;
}

pub async fn a_failure_after_a_cancellation_is_not_tried_again(scene: &impl Scene) {
    let mut handlers = scene.handlers();
    let (cancelled, starts) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let (gate, started) = (Arc::clone(&cancelled), Arc::clone(&starts));
    handlers.on(("Job", "fails"), move || {
        let gate = Arc::clone(&gate);
        started.fetch_add(1, Ordering::SeqCst);
        async move {
            gate.notified().await;
            Err::<(), _>(lapsed::HandlerError::new("no"))
        }
    });
    let daemon = Daemon::start(&scene.config(), handlers);
    daemon.create("Job@fails", 0).await;
    until("it runs", async || starts.load(Ordering::SeqCst) == 1).await;
    let answer = daemon.tasks.cancel(&key("Job@fails")).await.unwrap();
    assert_eq!(answer, CancelAnswer::Running);
    cancelled.notify_one();
    scene.until_state("Job@fails", State::Cancelled).await;
    until("its cancellation is settled", async || {
        scene.with_status(3).await == 1
    })
    .await;
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}
