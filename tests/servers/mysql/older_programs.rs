//! Rows that a program changes during their run, if it knows only the first six columns.

use lapsed::Config;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Adoption as _, CancelAnswer, Settled};
use lapsed::task::{Arming, State, UnixMs, Verdict};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

use crate::ledger_conformance::rig::{
    LEASE, cancel, claim, claim_due, create, key, record, settle, state,
};
use crate::support::maria;

/// A ledger on a server that assigns the columns of an `UPDATE` from left to right, and one on a server that assigns them at
/// once; and a connection of the program to each.
async fn ledgers(database: &str) -> [(MysqlLedger, MySqlConnection); 2] {
    let [in_order, at_once] = [maria::server().await, maria::standard_server().await];
    [
        on(in_order.create_database(database).await.unwrap()).await,
        on(at_once.create_database(database).await.unwrap()).await,
    ]
}

async fn on(url: String) -> (MysqlLedger, MySqlConnection) {
    let program = MySqlConnection::connect(&url).await.unwrap();
    let mut config = Config::default().ledger;
    config.url = url.into();
    let ledger = MysqlLedger::new(&config).unwrap();
    ledger.migrate().await.unwrap();
    (ledger, program)
}

async fn delete(program: &mut MySqlConnection, row: u64) {
    let sql = format!("UPDATE tb_time_limit_task SET sts = 1 WHERE id = {row}");
    program.execute(AssertSqlSafe(sql)).await.unwrap();
}

/// Creates the task again, for a minute after `now`: such a program counts in seconds, and leaves `sts` as it is.
async fn create_again(program: &mut MySqlConnection, row: u64, now: UnixMs) -> Arming {
    let start = now.0 / 1000;
    let sql = format!(
        "UPDATE tb_time_limit_task SET status = 0, start_time = {start}, end_time = {} WHERE id = {row}",
        start + 60
    );
    program.execute(AssertSqlSafe(sql)).await.unwrap();
    let due = UnixMs((start + 60) * 1000);
    Arming { row, due }
}

#[tokio::test]
async fn a_task_that_is_deleted_and_created_again_during_its_run_is_not_cancelled_by_its_end() {
    for (ledger, mut program) in ledgers("created_again").await {
        let run = claim_due(&ledger, &key("again", 1), LEASE).await;
        let row = run.lease.arming.row;
        delete(&mut program, row).await;
        let now = ledger.now().await.unwrap();
        let arming = create_again(&mut program, row, now).await;
        let settled = settle(&ledger, &run, Verdict::Complete).await;
        assert_eq!(settled, Settled::Superseded);
        assert!(
            ledger.undelete(arming).await.unwrap(),
            "{:?}",
            record(&ledger, &run.key).await
        );
        assert_eq!(state(&ledger, &run.key).await, State::Pending);
    }
}

#[tokio::test]
async fn what_lapsed_has_cancelled_behind_a_run_ends_with_that_run() {
    for (ledger, _) in ledgers("cancelled_behind").await {
        let run = claim_due(&ledger, &key("behind", 1), LEASE).await;
        let waits = create(&ledger, &run.key, 60_000).await;
        let answer = cancel(&ledger, &run.key).await;
        assert_eq!(answer, CancelAnswer::Running);
        let settled = settle(&ledger, &run, Verdict::Complete).await;
        assert_eq!(settled, Settled::Superseded);
        assert_eq!(state(&ledger, &run.key).await, State::Cancelled);
        assert!(!ledger.undelete(waits).await.unwrap());
    }
}

#[tokio::test]
async fn a_claim_that_is_given_back_ends_a_task_that_a_program_has_deleted() {
    for (ledger, mut program) in ledgers("given_back").await {
        let deleted = claim_due(&ledger, &key("deleted", 1), LEASE).await;
        delete(&mut program, deleted.lease.arming.row).await;
        let cancelled = claim_due(&ledger, &key("cancelled", 1), LEASE).await;
        cancel(&ledger, &cancelled.key).await;
        for run in [&deleted, &cancelled] {
            settle(&ledger, run, Verdict::GiveBack).await;
        }
        assert_eq!(state(&ledger, &deleted.key).await, State::Cancelled);
        let columns = sqlx::query_as("SELECT CAST(status AS SIGNED), CAST(sts AS SIGNED) FROM tb_time_limit_task WHERE id = ?")
            .bind(deleted.lease.arming.row);
        let columns: (i64, i64) = columns.fetch_one(&mut program).await.unwrap();
        assert_eq!(columns, (3, 1));
        // The answer to that cancellation was that it runs.
        assert_eq!(state(&ledger, &cancelled.key).await, State::Pending);
        let last = claim(&ledger, cancelled.lease.arming, LEASE).await.unwrap();
        assert!(record(&ledger, &last.key).await.cancel_requested);
    }
}
