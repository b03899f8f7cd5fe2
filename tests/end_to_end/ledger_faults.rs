//! The ledger fails, hangs or is locked; in the end every task is settled, and each effect is there once.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::rig::{Daemon, Rig, Setup, until};

/// Tasks that take effect in their own transactions, some of them during what the test does next.
async fn create_effects(daemon: &Daemon, count: i64) {
    for number in 0..count {
        let name = format!("Job@effect@{number}");
        daemon.create(&name, number * 40).await;
    }
}

async fn settled(rig: &Rig) -> i64 {
    let done = sqlx::query_scalar("SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1");
    done.fetch_one(&rig.sql).await.unwrap_or(-1)
}

#[tokio::test]
async fn a_ledger_that_is_killed_twice_has_every_effect_once() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    for share in [20, 60] {
        until(format!("{share} are done"), async || {
            settled(&rig).await >= share
        })
        .await;
        rig.maria().kill();
        rig.maria().restart().await.unwrap();
    }
    until("all are done", async || settled(&rig).await == 100).await;
    rig.each_effect_once(100).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_ledger_that_restarts_in_good_order_has_every_effect_once() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    until("20 are done", async || settled(&rig).await >= 20).await;
    rig.maria().shutdown().await.unwrap();
    until("the daemon has noticed", async || {
        !daemon.status.ledger_answers()
    })
    .await;
    rig.maria().restart().await.unwrap();
    until("all are done", async || settled(&rig).await == 100).await;
    until("the daemon has noticed", async || {
        daemon.status.ledger_answers()
    })
    .await;
    rig.each_effect_once(100).await;
}

#[tokio::test]
async fn a_ledger_that_hangs_for_eight_seconds_has_every_effect_once() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let daemon = rig.daemon();
    create_effects(&daemon, 100).await;
    until("20 are done", async || settled(&rig).await >= 20).await;
    rig.maria().stop_process().unwrap();
    // Time itself is under test: longer than a lease, and than a statement may take.
    tokio::time::sleep(Duration::from_secs(8)).await;
    rig.maria().continue_process().unwrap();
    until("all are done", async || settled(&rig).await == 100).await;
    rig.each_effect_once(100).await;
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn a_row_that_somebody_locks_delays_no_other() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon();
    let made = daemon.create("Job@record@0", 2_000).await;
    for number in 1..50 {
        let name = format!("Job@record@{number}");
        daemon.create(&name, 2_000).await;
    }
    let url = rig.config().ledger.url.expose().to_owned();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = 'Job@record@0' FOR UPDATE";
    sqlx::query(AssertSqlSafe(lock.to_owned()))
        .execute(&mut *tx)
        .await
        .unwrap();

    rig.until_done(49).await;
    let free_at = rig.now_ms().await;
    // Long enough for several claims to meet the lock.
    rig.until_clock(lapsed::task::UnixMs(made.due().0 + 6_000))
        .await;
    assert_eq!(rig.with_status(1).await, 49);
    tx.rollback().await.unwrap();
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    // One statement waits for the lock for a second before it is known.
    assert!(free_at - made.due().0 < 4_000, "the others waited");
}

#[tokio::test]
async fn a_row_that_is_locked_while_it_runs_is_settled_later_and_delays_no_other() {
    let rig = Rig::new("").await;
    let mut handlers = crate::rig::handlers();
    let (entered, mut running) = tokio::sync::mpsc::unbounded_channel();
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let gate = std::sync::Arc::clone(&go);
    handlers.on("Job", "gated", move |_, ()| {
        let (entered, gate) = (entered.clone(), std::sync::Arc::clone(&gate));
        async move {
            entered.send(()).unwrap();
            gate.notified().await;
            Ok(())
        }
    });
    let daemon = rig.daemon_with(handlers);
    daemon.create("Job@gated", 0).await;
    running.recv().await.unwrap();
    let mut tx = rig.sql.begin().await.unwrap();
    sqlx::query("SELECT id FROM tb_time_limit_task WHERE `key` = 'Job@gated' FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    go.notify_one();
    for number in 0..30 {
        daemon
            .create(&format!("Job@record@{number}"), number * 100)
            .await;
    }
    rig.until_done(30).await;
    rig.each_ran_once(30).await;
    for run in rig.runs().await {
        assert!(run.at_ms - run.due_ms < 4_000, "late: {run:?}");
    }
    tx.rollback().await.unwrap();
    rig.until_done(31).await;
    assert!(running.try_recv().is_err(), "it ran once");
}
