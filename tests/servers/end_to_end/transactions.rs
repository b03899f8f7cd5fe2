//! Effects and completion in one transaction: exactly once, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::task::State;
use lapsed::{Due, HandlerError, Handlers, MysqlTask, TaskContext};
use tokio::sync::{Notify, mpsc};

use crate::support::handlers::{take_effect, write_down};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// `Job@run` by this closure.
pub fn one<R>(run: impl Fn(TaskContext) -> R + Send + Sync + 'static) -> Handlers
where
    R: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let mut handlers = Handlers::new();
    handlers.on(("Job", "run"), move |task: TaskContext| run(task));
    handlers
}

async fn effect_and_complete(task: &TaskContext) -> Result<(), HandlerError> {
    let mut tx = task.begin().await?;
    take_effect(task, &mut tx).await?;
    task.complete_in(tx).await
}

#[tokio::test]
async fn an_error_after_the_commit_changes_nothing() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon_with(one(async |task| {
        effect_and_complete(&task).await?;
        Err(HandlerError::new("too late"))
    }));
    daemon.create("Job@run", 0).await;
    rig.until_done(1).await;
    // Drained: whatever the error came to has been written.
    daemon.stop().await;
    let record = rig.record("Job@run").await;
    assert_eq!((record.state, record.attempt), (State::Done, 1));
    assert_eq!(record.last_error, None);
    rig.each_effect_once(1).await;
}

#[tokio::test]
async fn a_panic_after_the_commit_changes_nothing() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon_with(one(async |task| {
        effect_and_complete(&task).await?;
        panic!("too late")
    }));
    daemon.create("Job@run", 0).await;
    rig.until_done(1).await;
    daemon.stop().await;
    assert_eq!(rig.record("Job@run").await.state, State::Done);
    rig.each_effect_once(1).await;
}

#[tokio::test]
async fn an_error_before_the_commit_leaves_no_effect_and_is_tried_again() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon_with(one(async |task| {
        let mut tx = task.begin().await?;
        take_effect(&task, &mut tx).await?;
        match task.attempt() {
            1 => Err(HandlerError::new("first")),
            2 => panic!("second"),
            _ => task.complete_in(tx).await,
        }
    }));
    daemon.create("Job@run", 0).await;
    rig.until_done(1).await;
    assert_eq!(rig.record("Job@run").await.attempt, 3);
    rig.each_effect_once(1).await;
}

#[tokio::test]
async fn a_run_that_outlives_its_timeout_leaves_no_effect() {
    let rig = Rig::new("engine.timeout = '300ms'").await;
    let daemon = rig.daemon_with(one(async |task| {
        let mut tx = task.begin().await?;
        take_effect(&task, &mut tx).await?;
        if task.attempt() == 1 {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        task.complete_in(tx).await
    }));
    daemon.create("Job@run", 0).await;
    rig.until_done(1).await;
    assert_eq!(rig.record("Job@run").await.attempt, 2);
    rig.each_effect_once(1).await;
}

/// A handler that takes effect, waits to be let go, and then completes; and what its completions came to.
pub struct Gated {
    pub handlers: Handlers,
    pub entered: mpsc::UnboundedReceiver<()>,
    pub go: Arc<Notify>,
    pub results: mpsc::UnboundedReceiver<bool>,
}

pub fn gated() -> Gated {
    let (entering, entered) = mpsc::unbounded_channel();
    let (telling, results) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    let handlers = one(move |task| {
        let (entering, telling, gate) = (entering.clone(), telling.clone(), Arc::clone(&gate));
        async move {
            let mut tx = task.begin().await?;
            take_effect(&task, &mut tx).await?;
            entering.send(()).unwrap();
            gate.notified().await;
            let completed = task.complete_in(tx).await;
            let fenced = completed.as_ref().is_err_and(HandlerError::is_fenced);
            telling.send(fenced).unwrap();
            completed
        }
    });
    Gated {
        handlers,
        entered,
        go,
        results,
    }
}

#[tokio::test]
async fn a_run_whose_claim_was_taken_over_is_fenced_and_leaves_no_effect() {
    let rig = Rig::new("").await;
    let mut gated = gated();
    let daemon = rig.daemon_with(gated.handlers);
    let made = daemon.create("Job@run", 0).await;
    gated.entered.recv().await.unwrap();
    rig.run_sql(
        "UPDATE tb_time_limit_task SET owner = REPEAT('x', 16), attempt = attempt + 1, \
         lease_until = UNIX_TIMESTAMP(NOW(3)) + 1.5",
    )
    .await;
    gated.go.notify_one();
    assert_eq!(gated.results.recv().await, Some(true), "fenced");
    rig.each_effect_once(0).await;
    assert_eq!(
        rig.state("Job@run").await,
        State::Running,
        "by the other one"
    );

    // The other one dies; then the task is run again.
    gated.entered.recv().await.unwrap();
    gated.go.notify_one();
    assert_eq!(gated.results.recv().await, Some(false));
    rig.until_done(1).await;
    rig.each_effect_once(1).await;
    let record = rig.record("Job@run").await;
    assert_eq!(
        (record.id, record.attempt, record.crashes),
        (made.id(), 3, 1)
    );
    let fenced = "lapsed_fenced_total";
    daemon.until_counted(fenced, |count| count >= 1.0).await;
}

#[tokio::test]
async fn a_run_of_an_older_arming_is_fenced_and_the_newer_one_runs_once() {
    let rig = Rig::new("").await;
    let mut gated = gated();
    let daemon = rig.daemon_with(gated.handlers);
    daemon.create("Job@run", 0).await;
    gated.entered.recv().await.unwrap();
    let newer = daemon.create("Job@run", 500).await;
    assert!(newer.older_run());
    gated.go.notify_one();
    assert_eq!(gated.results.recv().await, Some(true), "fenced");
    gated.entered.recv().await.unwrap();
    assert!(rig.now_ms().await >= newer.due().0, "not early");
    gated.go.notify_one();
    assert_eq!(gated.results.recv().await, Some(false));
    rig.until_done(1).await;
    rig.each_effect_once(1).await;
    assert_eq!(rig.record("Job@run").await.id, newer.id());
}

#[tokio::test]
async fn a_task_that_arms_itself_again_runs_as_often_as_it_says() {
    const RUNS: u32 = 6;
    let rig = Rig::new("").await;
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    let daemon = rig.daemon_with(one(move |task| {
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            write_down(&task).await?;
            let mut tx = task.begin().await?;
            take_effect(&task, &mut tx).await?;
            match run {
                RUNS.. => task.complete_in(tx).await,
                _ => task.again_in(tx, Due::after_ms(400)?).await,
            }
        }
    }));
    daemon.hears_events().await;
    daemon.create("Job@run", 0).await;
    until("it is armed again", async || rig.pttl("Job@run").await > 0).await;
    rig.until_done(1).await;
    let runs = rig.runs().await;
    assert_eq!(runs.len(), RUNS as usize);
    assert_eq!(
        rig.number("SELECT COUNT(DISTINCT task) FROM effects").await,
        i64::from(RUNS)
    );
    for pair in runs.windows(2) {
        assert!(pair[1].due_ms >= pair[0].at_ms + 350, "{pair:?}");
        assert!(pair[1].at_ms >= pair[1].due_ms, "early: {pair:?}");
    }
    assert!(runs.iter().all(|run| run.attempt == 1));
}

#[tokio::test]
async fn a_renewal_behind_the_first_read_keeps_no_transaction_from_completing() {
    let rig = Setup::new("engine.lease = '2s'").own_maria().start().await;
    let known = sqlx::query("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'");
    // MySQL does not have it.
    let is_known = known.fetch_optional(&rig.sql).await.unwrap().is_some();
    if is_known {
        // The default of newer servers.
        rig.run_sql("SET GLOBAL innodb_snapshot_isolation = ON")
            .await;
    }
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let daemon = rig.daemon_with(one(move |task| {
        let counted = Arc::clone(&counted);
        async move {
            let mut tx = task.begin().await?;
            if is_known {
                let isolated = sqlx::query_scalar::<_, bool>("SELECT @@innodb_snapshot_isolation");
                assert!(isolated.fetch_one(&mut *tx).await?, "as the server has it");
            }
            sqlx::query("SELECT COUNT(*) FROM tb_time_limit_task")
                .execute(&mut *tx)
                .await?;
            take_effect(&task, &mut tx).await?;
            until_renewed(&task).await?;
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => task.again_in(tx, Due::after_ms(100).unwrap()).await,
                _ => task.complete_in(tx).await,
            }
        }
    }));
    daemon.create("Job@run", 0).await;
    rig.until_done(1).await;
    assert_eq!(rig.number("SELECT COUNT(*) FROM effects").await, 2);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(rig.record("Job@run").await.attempt, 1);
    daemon.stop().await;
}

/// Waits until the daemon has renewed the lease of this run.
async fn until_renewed(task: &TaskContext) -> Result<(), HandlerError> {
    let lease = async || -> Result<i64, HandlerError> {
        let mut tx = task.begin().await?;
        let question = "SELECT CAST(lease_until * 1000 AS SIGNED) FROM tb_time_limit_task WHERE `key` = 'Job@run'";
        Ok(sqlx::query_scalar(question).fetch_one(&mut *tx).await?)
    };
    let first = lease().await?;
    while lease().await? == first {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
