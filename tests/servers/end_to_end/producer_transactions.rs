//! Tasks that are created and cancelled in the transactions of programs.

use std::time::Duration;

use lapsed::client::NotArmed;
use lapsed::ledger::CancelAnswer;
use lapsed::task::State;
use lapsed::{Due, HandlerError, MysqlTask, Task, TaskContext};

use crate::end_to_end::transactions::gated;
use crate::support::handlers::take_effect;
use crate::support::rig::Rig;
use crate::support::tasks::key;

#[tokio::test]
async fn a_task_created_in_a_rolled_back_transaction_does_not_exist() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let client = rig.client().await;
    let task = Task::from(key("Job@record@1"));
    let delay = Duration::from_millis(300);
    let mut tx = rig.sql.begin().await.unwrap();
    let unarmed = client.create_in(&mut tx, task, delay).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(rig.pttl("Job@record@1").await, -2);
    // A daemon would adopt a key without a row.
    let receipt = unarmed.arm().await;
    assert_eq!(receipt.not_armed(), Some(NotArmed::NotCommitted));
    assert_eq!(rig.pttl("Job@record@1").await, -2);
    daemon.has_audited().await;
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        0
    );
    assert_eq!(rig.runs().await, []);
}

#[tokio::test]
async fn a_task_created_in_a_transaction_and_never_armed_runs_soon_after_it_is_due() {
    let rig = Rig::new("").await;
    let _daemon = rig.listening_daemon().await;
    let client = rig.client().await;
    let mut tx = rig.sql.begin().await.unwrap();
    for (number, delay) in [0, 200, 1_000, 3_000].into_iter().enumerate() {
        let task = Task::from(key(&format!("Job@record@{number}")));
        let delay = Duration::from_millis(delay);
        let _never_armed = client.create_in(&mut tx, task, delay).await.unwrap();
    }
    tx.commit().await.unwrap();
    rig.until_done(4).await;
    rig.each_ran_once(4).await;
}

#[tokio::test]
async fn a_task_can_complete_and_create_the_next_one_together() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    let mut handlers = crate::support::handlers::handlers();
    handlers.on(("Job", "chain"), move |task: TaskContext, step: u32| {
        let client = client.clone();
        async move {
            let mut tx = task.begin().await?;
            take_effect(&task, &mut tx).await?;
            let next = Task::new("Job", "chain", [step + 1])?;
            let next = match step {
                ..5 => Some(client.create_in(&mut tx, next, Due::NOW).await?),
                _ => None,
            };
            // The first try of each step dies before its commit, and takes the next one with it.
            if task.attempt() == 1 {
                return Err(HandlerError::new("first"));
            }
            task.complete_in(tx).await?;
            if let Some(next) = next {
                next.arm().await;
            }
            Ok(())
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.create("Job@chain@1", 0).await;
    rig.until_done(5).await;
    rig.each_effect_once(5).await;
}

#[tokio::test]
async fn a_task_cancelled_in_a_transaction_is_cancelled_if_it_commits() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let client = rig.client().await;
    daemon.has_audited().await; // or it arms the key again
    for name in ["Job@record@kept", "Job@record@off"] {
        daemon.create(name, 1_500).await;
    }
    let mut tx = rig.sql.begin().await.unwrap();
    let kept = key("Job@record@kept");
    let kept = client.cancel_in(&mut tx, &kept).await.unwrap();
    assert_eq!(kept.answer(), CancelAnswer::Cancelled);
    tx.rollback().await.unwrap();
    assert!(
        rig.pttl("Job@record@kept").await > 0,
        "armed until disarmed"
    );

    let mut tx = rig.sql.begin().await.unwrap();
    let off = key("Job@record@off");
    let off = client.cancel_in(&mut tx, &off).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(off.disarm().await, CancelAnswer::Cancelled);
    assert_eq!(rig.pttl("Job@record@off").await, -2);

    rig.until_done(1).await;
    rig.until_clock(rig.record("Job@record@off").await.due)
        .await;
    assert_eq!(rig.state("Job@record@off").await, State::Cancelled);
    rig.each_ran_once(1).await;
    let unknown = key("Job@record@unknown");
    let mut tx = rig.sql.begin().await.unwrap();
    let unknown = client.cancel_in(&mut tx, &unknown).await.unwrap();
    assert_eq!(unknown.answer(), CancelAnswer::Unknown);
}

#[tokio::test]
async fn cancelling_in_a_transaction_reports_that_the_task_runs() {
    let rig = Rig::new("").await;
    let mut gated = gated();
    let daemon = rig.daemon_with(gated.handlers);
    let client = rig.client().await;
    daemon.create("Job@run", 0).await;
    gated.entered.recv().await.unwrap();
    let mut tx = rig.sql.begin().await.unwrap();
    let off = client.cancel_in(&mut tx, &key("Job@run")).await.unwrap();
    assert_eq!(off.answer(), CancelAnswer::Running);
    tx.rollback().await.unwrap();
    gated.go.notify_one();
    rig.until_done(1).await;
    rig.each_effect_once(1).await;
}

#[tokio::test]
async fn a_task_does_not_start_while_a_transaction_cancels_it() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    let client = rig.client().await;
    let due = daemon.create("Job@record@1", 700).await.due();
    let mut tx = rig.sql.begin().await.unwrap();
    let off = client
        .cancel_in(&mut tx, &key("Job@record@1"))
        .await
        .unwrap();
    // Long enough for claims to meet the lock.
    rig.until_clock(lapsed::UnixMs(due.0 + 2_500)).await;
    assert_eq!(rig.runs().await, []);
    tx.commit().await.unwrap();
    off.disarm().await;
    daemon.stop().await;
    assert_eq!(rig.runs().await, []);
    assert_eq!(rig.state("Job@record@1").await, State::Cancelled);
}
