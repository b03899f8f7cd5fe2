//! Runs that end while the ledger refuses or is away are settled when it is back.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// A daemon with `Job@gated@..`, which writes down that it runs and then waits to be let go; and how to let them go.
fn gated(rig: &Rig) -> (Daemon, std::sync::Arc<tokio::sync::Semaphore>) {
    let mut handlers = handlers();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let go = std::sync::Arc::clone(&gate);
    handlers.on(
        ("Job", "gated"),
        move |task: lapsed::TaskContext, _: Vec<String>| {
            let go = std::sync::Arc::clone(&go);
            async move {
                crate::support::handlers::write_down(&task).await?;
                go.acquire().await.unwrap().forget();
                Ok(())
            }
        },
    );
    (rig.daemon_with(handlers), gate)
}

/// Twenty tasks end while the ledger refuses, and are settled when it does not.
async fn refuses_for_a_while(rig: &Rig, refuse: &str, allow: &str) {
    let (daemon, gate) = gated(rig);
    daemon.hears_events().await;
    for number in 0..20 {
        daemon.create(&format!("Job@gated@{number}"), 0).await;
    }
    until("all run", async || rig.runs().await.len() == 20).await;
    rig.run_sql(refuse).await;
    gate.add_permits(20);
    until("the daemon has noticed", async || {
        !daemon.status.ledger_answers()
    })
    .await;
    let trouble = daemon.status.ledger_trouble().unwrap();
    assert!(
        trouble.ends_with("the ledger refuses it, see the log"),
        "{trouble}"
    );
    // Longer than a lease.
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.run_sql(allow).await;
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    let counted = "SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt > 1 OR crashes > 0";
    assert_eq!(rig.number(counted).await, 0);
    until("the daemon is ready again", async || {
        daemon.status.ledger_answers()
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn runs_that_end_while_the_table_is_renamed_are_settled_and_not_run_again() {
    let rig = Rig::new("engine.lease = '3s'").await;
    refuses_for_a_while(
        &rig,
        "RENAME TABLE tb_time_limit_task TO away",
        "RENAME TABLE away TO tb_time_limit_task",
    )
    .await;
}

#[tokio::test]
async fn runs_that_end_while_no_statement_can_be_prepared_are_settled_and_not_run_again() {
    let rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let (daemon, gate) = gated(&rig);
    daemon.hears_events().await;
    for number in 0..20 {
        daemon.create(&format!("Job@gated@{number}"), 0).await;
    }
    until("all run", async || rig.runs().await.len() == 20).await;
    let count = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1";
    assert_eq!(rig.number(count).await, 0);
    rig.run_sql("SET GLOBAL max_prepared_stmt_count = 0").await;
    // Whatever was prepared is gone with its connection.
    let others = sqlx::raw_sql("SHOW PROCESSLIST").fetch_all(&rig.sql);
    for other in others.await.unwrap() {
        let of: Option<String> = other.get_unchecked("db");
        let command: String = other.get_unchecked("Command");
        if of.as_deref() == Some("lapsed") && command == "Sleep" {
            let id: i64 = other.get_unchecked("Id");
            let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")))
                .execute(&rig.sql)
                .await;
        }
    }
    gate.add_permits(20);
    until("the daemon has noticed", async || {
        !daemon.status.ledger_answers()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.run_sql("SET GLOBAL max_prepared_stmt_count = 16382")
        .await;
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
    daemon.stop().await;
}

#[tokio::test]
async fn outages_count_no_crash_against_tasks_whose_daemon_lives() {
    let mut rig = Setup::new("engine.lease = '3s'").own_maria().start().await;
    let (first, gate) = gated(&rig);
    let (second, other_gate) = gated(&rig);
    for number in 0..20 {
        first.create(&format!("Job@gated@{number}"), 0).await;
    }
    let crashed = "SELECT COUNT(*) FROM tb_time_limit_task WHERE crashes > 0";
    for outage in 1..=3 {
        until("all run", async || {
            first.status.running() + second.status.running() == 20
        })
        .await;
        rig.maria().kill();
        // Time itself is under test: longer than a lease.
        tokio::time::sleep(Duration::from_secs(5)).await;
        rig.maria().restart().await.unwrap();
        until("they run again", async || {
            rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE lease_until > UNIX_TIMESTAMP(NOW(3))")
                .await
                == 20
        })
        .await;
        assert_eq!(rig.number(crashed).await, 0, "after outage {outage}");
    }
    gate.add_permits(1_000);
    other_gate.add_permits(1_000);
    rig.until_done(20).await;
    first.stop().await;
    second.stop().await;
}
