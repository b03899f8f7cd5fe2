//! Several daemons on one table.

use lapsed::engine::DropReason;
use std::sync::Arc;

use lapsed::{Due, Task, UnixMs};
use tokio::sync::Notify;

use crate::support::rig::Rig;
use crate::support::tasks::create;
use crate::support::wait::until;

#[tokio::test]
async fn two_daemons_run_each_task_once_between_them() {
    let rig = Rig::new("").await;
    let daemons = [rig.listening_daemon().await, rig.listening_daemon().await];
    let client = rig.client().await;
    for number in 0..300 {
        create(&client, &format!("Job@record@{number}"), number * 10).await;
    }
    rig.until_done(300).await;
    rig.each_ran_once(300).await;
    let won = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"won\"}"));
    assert_eq!(won.sum::<f64>(), 300.0);
}

#[tokio::test]
async fn tasks_of_a_stopped_daemon_run_on_another() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let mut handlers = crate::support::handlers::handlers();
    handlers.on(("Job", "hang"), |task: lapsed::TaskContext| async move {
        crate::support::handlers::write_down(&task).await?;
        match task.attempt() {
            1 => std::future::pending().await,
            _ => Ok(()),
        }
    });
    let first = rig.daemon_with(handlers.clone());
    first.create("Job@hang", 0).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    let second = rig.daemon_with(handlers);
    first.kill();
    rig.until_done(1).await;
    let record = rig.record("Job@hang").await;
    assert_eq!((record.attempt, record.crashes), (2, 1));
    let runs = rig.runs().await;
    assert_eq!(runs.len(), 2);
    // The first run was written down some time after its claim, which is not before its due time.
    let waited_ms = runs[1].at_ms - runs[0].due_ms;
    assert!(waited_ms >= 1_000, "the lease was not held: {waited_ms} ms");
    drop(second);
}

#[tokio::test]
async fn a_run_that_is_longer_than_its_lease_keeps_it() {
    let rig = Rig::new("engine.lease = '3s'").await;
    let mut handlers = crate::support::handlers::handlers();
    let gate = Arc::new(Notify::new());
    let go = Arc::clone(&gate);
    handlers.on(("Job", "long"), move |task: lapsed::TaskContext| {
        let go = Arc::clone(&go);
        async move {
            crate::support::handlers::write_down(&task).await?;
            go.notified().await;
            Ok(())
        }
    });
    let daemons = [rig.daemon_with(handlers.clone()), rig.daemon_with(handlers)];
    let made = daemons[0].create("Job@long", 0).await;
    until("it runs", async || rig.runs().await.len() == 1).await;
    // Longer than a lease.
    rig.until_clock(UnixMs(made.due().0 + 6_000)).await;
    gate.notify_one();
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.record("Job@long").await.crashes, 0);
}

#[tokio::test]
async fn a_backlog_does_not_keep_fresh_tasks_waiting() {
    let rig = Rig::new("engine.concurrency = 4").await;
    let client = rig.client().await;
    let mut handlers = crate::support::handlers::handlers();
    handlers.on(("Job", "backlog"), |_: Vec<String>| async move {
        std::future::pending().await
    });
    let overdue = Due::at(UnixMs(rig.now_ms().await - 60_000)).unwrap();
    let backlog = (0..20).map(|number| (Task::new("Job", "backlog", [number]).unwrap(), overdue));
    client.create_many(backlog.collect()).await.unwrap();
    let daemon = rig.daemon_with(handlers);
    until("it works on the backlog", async || {
        daemon.status.running() >= 3
    })
    .await;
    for number in 0..10 {
        create(&client, &format!("Job@record@{number}"), number * 100).await;
    }
    // The backlog never ends: whatever waited for it would wait for ever.
    rig.until_done(10).await;
    rig.each_ran_once(10).await;
}

#[tokio::test]
async fn a_daemon_leaves_alone_what_it_cannot_run() {
    let rig = Rig::new("").await;
    let idle = rig.daemon_with(lapsed::Handlers::new());
    let made = idle.create("Job@record@1", 100).await;
    until("the idle one has passed it by", async || {
        idle.dropped(DropReason::Unroutable) >= 2.0
    })
    .await;
    let record = rig.record("Job@record@1").await;
    assert_eq!((record.attempt, record.daemon.as_str()), (0, ""));
    let able = rig.daemon();
    rig.until_done(1).await;
    rig.each_ran_once(1).await;
    assert_eq!(rig.runs().await[0].task, made.id());
    drop((idle, able));
}
