//! Servers that accept each statement and mean something else by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lapsed_doctor::{self as doctor, Severity};
use sqlx::{Connection, MySqlConnection};

use crate::doctor::rig::{Result, assert_contains, finding, ledger, ledger_only};
use crate::mysql::proxy::{Act, Proxy};

/// Adds words to each statement that begins with a text.
fn with(begins: &'static str, words: &'static str) -> impl Fn(&str) -> Act + Send + Sync {
    move |sql| match sql.starts_with(begins) {
        true => Act::With(words),
        false => Act::Pass,
    }
}

async fn assert_found(
    rule: impl Fn(&str) -> Act + Send + Sync + 'static,
    check: &str,
    severity: Severity,
    part: &str,
) -> Result {
    static CASES: AtomicU32 = AtomicU32::new(0);
    let case = CASES.fetch_add(1, Ordering::SeqCst);
    let url = ledger(&format!("trials_{case}")).await?;
    let proxy = Proxy::before(&url, rule).await;
    let report = doctor::examine(&ledger_only(&proxy.url(&url))?).await;
    assert_contains(&finding(&report, check, severity).found, part);

    let mut conn = MySqlConnection::connect(&url).await?;
    for table in ["tb_time_limit_task", "tb_time_limit_task_rates"] {
        let rows = format!("SELECT CAST(COUNT(*) AS SIGNED) FROM {table}");
        let rows = sqlx::query_as(sqlx::AssertSqlSafe(rows));
        let (rows,): (i64,) = rows.fetch_one(&mut conn).await?;
        assert_eq!(rows, 0, "of {table} are left, {check}");
    }
    conn.close().await?;
    Ok(())
}

#[tokio::test]
async fn reads_that_go_to_another_server_are_an_error() -> Result {
    let elsewhere = with("SELECT route FROM", " LIMIT 0");
    assert_found(
        elsewhere,
        "ledger.read_back",
        Severity::Error,
        "to a replica",
    )
    .await
}

#[tokio::test]
async fn another_isolation_than_the_one_that_was_set_is_reported() -> Result {
    for (words, severity, part) in [
        (
            "; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            Severity::Warning,
            "does not read what others commit",
        ),
        (
            "; SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
            Severity::Error,
            "have not committed",
        ),
        (
            "; SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            Severity::Warning,
            "waits for the rows",
        ),
    ] {
        let other = with("SET SESSION TRANSACTION ISOLATION LEVEL", words);
        assert_found(other, "ledger.isolation", severity, part).await?;
    }
    Ok(())
}

#[tokio::test]
async fn two_claims_that_both_succeed_are_an_error() -> Result {
    let again = with(
        "UPDATE `tb_time_limit_task_rates` SET full_at_ns = -1",
        " OR full_at_ns < 0",
    );
    assert_found(again, "ledger.claim", Severity::Error, "both succeed").await
}

#[tokio::test]
async fn two_claims_that_both_fail_are_reported() -> Result {
    let refuse = |sql: &str| match sql.contains("SET full_at_ns = -1") {
        true => Act::With(" AND full_at_ns > 99"),
        false => Act::Pass,
    };
    assert_found(refuse, "ledger.claim", Severity::Warning, "none succeeds").await
}

#[tokio::test]
async fn a_server_without_skip_locked_is_reported() -> Result {
    let refuse = |sql: &str| match sql.ends_with("FOR UPDATE SKIP LOCKED") {
        true => Act::Refuse(1064),
        false => Act::Pass,
    };
    assert_found(
        refuse,
        "ledger.locked_rows",
        Severity::Warning,
        "is refused",
    )
    .await
}

#[tokio::test]
async fn generated_columns_that_do_not_follow_are_an_error() -> Result {
    let nothing = with("SELECT CAST(bucket AS SIGNED)", " AND bucket < 0");
    assert_found(
        nothing,
        "ledger.generated",
        Severity::Error,
        "does not find a task",
    )
    .await?;
    let wrong = |sql: &str| match sql.starts_with("UPDATE `tb_time_limit_task` SET run_end = 0") {
        true => Act::With(" AND 1 = 0"),
        false => Act::Pass,
    };
    assert_found(
        wrong,
        "ledger.generated",
        Severity::Error,
        "does not find a task",
    )
    .await
}

#[tokio::test]
async fn a_server_without_transactions_is_an_error() -> Result {
    let commits = with("BEGIN", "; COMMIT");
    assert_found(commits, "ledger.generated", Severity::Error, "rolled back").await
}

#[tokio::test]
async fn a_clock_of_whole_seconds_is_an_error() -> Result {
    let whole = with(
        "SELECT CAST(UNIX_TIMESTAMP(NOW(6))",
        " DIV 1000000 * 1000000",
    );
    assert_found(whole, "ledger.clock", Severity::Error, "whole seconds").await
}

#[tokio::test]
async fn two_connections_with_two_clocks_are_an_error() -> Result {
    let first = Arc::new(AtomicBool::new(true));
    let other = move |sql: &str| {
        let is_clock = sql.starts_with("SELECT CAST(UNIX_TIMESTAMP(NOW(6))");
        match is_clock && !first.swap(false, Ordering::SeqCst) {
            true => Act::With(" + 300000"),
            false => Act::Pass,
        }
    };
    assert_found(other, "ledger.clock", Severity::Error, "different servers").await
}
