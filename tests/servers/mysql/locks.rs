//! Rows that other sessions have locked hold up no others.

use std::time::Duration;

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{
    Admin, Adoption, Claim, Claimant, Claims, LedgerError, NewTask, Producer, Renewal,
    RescheduleAnswer, RunNowAnswer, Settled, Settlement,
};
use lapsed::task::{UnixMs, Verdict};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use tokio::time::Instant;

use crate::mysql::rig::{claimant, connect, lock, overdue, start};
use crate::support::maria::counter;
use crate::support::wait::until;

/// Each of these runs has succeeded.
fn completions<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Vec<Settlement> {
    let completed = claims.into_iter().map(|claim| Settlement {
        lease: claim.lease,
        verdict: Verdict::Complete,
    });
    completed.collect()
}

#[tokio::test]
async fn a_row_that_another_session_has_locked_holds_up_no_redrive() {
    let (_server, ledger, url) = start().await;
    let rows = overdue(&ledger, 20).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    connection
        .execute("UPDATE tb_time_limit_task SET status = 2")
        .await
        .unwrap();
    let ids: Vec<u64> = rows.iter().map(|arming| arming.row).collect();
    let holding = lock(&mut connection, ids[7]).await;
    assert_eq!(ledger.redrive_rows(&ids).await.unwrap(), 19);
    assert_eq!(ledger.discard_rows(&ids).await.unwrap(), 0);
    holding.rollback().await.unwrap();
    assert_eq!(ledger.discard_rows(&ids).await.unwrap(), 1);
}

#[tokio::test]
async fn a_locked_row_delays_no_other() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 64).await;
    let locked = armings[17];
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, locked.row).await;
    let mut watch = MySqlConnection::connect(&url).await.unwrap();

    let before = counter(&mut watch, "Innodb_row_lock_waits").await;
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    assert_eq!(claims.len(), 63);
    assert_eq!(
        counter(&mut watch, "Innodb_row_lock_waits").await - before,
        1
    );
    // From now on it asks first: no more waits.
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    assert!(
        ledger
            .renew(&leases, Duration::from_secs(30))
            .await
            .unwrap()
            .iter()
            .all(|renewal| *renewal == Renewal::Held)
    );
    assert!(
        ledger
            .claim(&[locked], &claimant())
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        counter(&mut watch, "Innodb_row_lock_waits").await - before,
        1
    );

    holding.rollback().await.unwrap();
    let claimed = ledger.claim(&[locked], &claimant()).await.unwrap();
    assert_eq!(claimed.len(), 1);

    let holding = lock(&mut other, locked.row).await;
    let settlements = completions(claims.iter().chain(&claimed));
    let settled = ledger.settle(&settlements).await.unwrap();
    assert!(
        settled[..63]
            .iter()
            .all(|settled| *settled == Settled::Applied),
        "{settled:?}"
    );
    assert_eq!(settled[63], Settled::Locked);
    holding.rollback().await.unwrap();
    assert_eq!(
        ledger.settle(&settlements[63..]).await.unwrap(),
        [Settled::Applied]
    );
}

#[tokio::test]
async fn a_row_that_is_gone_is_not_taken_for_locked() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 3).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let claims = ledger.claim(&armings[..2], &claimant()).await.unwrap();
    let holding = lock(&mut other, armings[2].row).await;
    assert!(
        ledger
            .claim(&armings[2..], &claimant())
            .await
            .unwrap()
            .is_empty(),
        "from here on it asks first which rows are locked"
    );
    holding.rollback().await.unwrap();
    sqlx::query("DELETE FROM tb_time_limit_task WHERE id = ?")
        .bind(armings[0].row)
        .execute(&mut other)
        .await
        .unwrap();
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    let renewals = ledger.renew(&leases, Duration::from_secs(30)).await;
    assert_eq!(renewals.unwrap(), [Renewal::Lost, Renewal::Held]);
    assert_eq!(
        ledger.settle(&completions(&claims)).await.unwrap(),
        [Settled::Fenced, Settled::Applied]
    );
}

#[tokio::test]
async fn a_superseded_row_that_is_locked_delays_no_other_settlement() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 2).await;
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    let moved = NewTask::new(claims[0].key.clone(), UnixMs(armings[0].due.0 + 5_000));
    ledger.create(&[moved]).await.unwrap();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, armings[0].row).await;
    let settlements = completions(&claims);
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Locked, Settled::Applied]
    );
    holding.rollback().await.unwrap();
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Superseded, Settled::Applied]
    );
}

#[tokio::test]
async fn a_statement_that_the_server_cuts_short_is_no_refusal() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 1).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let version: String = sqlx::query_scalar("SELECT CAST(VERSION() AS CHAR)")
        .fetch_one(&mut other)
        .await
        .unwrap();
    let is_maria = version.contains("MariaDB");
    if is_maria {
        let limit = "SET GLOBAL max_statement_time = 0.2";
        other.execute(limit).await.unwrap();
    }
    let limited = connect(&url);
    let mut killer = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, armings[0].row).await;
    let (claimant, cut_short) = (claimant(), async {
        // A limit of MySQL holds for queries alone.
        if !is_maria {
            kill_the_update(&mut killer).await;
        }
    });
    let (claimed, ()) = tokio::join!(limited.claim(&armings, &claimant), cut_short);
    let error = claimed.unwrap_err();
    assert!(error.is_transient(), "{error}");
    holding.rollback().await.unwrap();
}

/// Cuts short the `UPDATE` that waits for a lock, as soon as there is one.
async fn kill_the_update(connection: &mut MySqlConnection) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        // Not `information_schema`: there MySQL refuses statements whose values are no text.
        let all = sqlx::query("SHOW PROCESSLIST").fetch_all(&mut *connection);
        let updating = all.await.unwrap().into_iter().find(|row| {
            let state = row.try_get_unchecked::<Option<String>, _>("State");
            state.unwrap().as_deref() == Some("updating")
        });
        if let Some(row) = updating {
            let id: u64 = row.try_get_unchecked("Id").unwrap();
            let kill = AssertSqlSafe(format!("KILL QUERY {id}"));
            connection.execute(kill).await.unwrap();
            return;
        }
        assert!(Instant::now() < deadline, "no statement waits for the lock");
    }
}

#[tokio::test]
async fn undeleting_a_locked_row_waits_for_no_lock() {
    let (_server, ledger, url) = start().await;
    let rows = overdue(&ledger, 2).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    connection
        .execute("UPDATE tb_time_limit_task SET sts = 1")
        .await
        .unwrap();
    let mut watch = MySqlConnection::connect(&url).await.unwrap();
    let before = counter(&mut watch, "Innodb_row_lock_waits").await;
    let holding = lock(&mut connection, rows[0].row).await;
    let locked = ledger.undelete(rows[0]).await;
    assert!(
        matches!(locked, Err(LedgerError::Locked { .. })),
        "{locked:?}"
    );
    assert!(ledger.undelete(rows[1]).await.unwrap());
    let after = counter(&mut watch, "Innodb_row_lock_waits").await;
    assert_eq!(after - before, 0);
    holding.rollback().await.unwrap();
    assert!(ledger.undelete(rows[0]).await.unwrap());
    assert!(!ledger.undelete(rows[0]).await.unwrap());
}

#[tokio::test]
async fn a_task_whose_run_ends_while_it_is_moved_is_moved() {
    let answer = change_while_the_run_ends(async |ledger, claim| {
        let due = claim.lease.arming.due.plus(Duration::from_secs(600));
        ledger.reschedule(&claim.key, due).await
    })
    .await;
    assert!(matches!(answer, RescheduleAnswer::Moved(_)), "{answer:?}");
}

#[tokio::test]
async fn a_task_whose_run_ends_while_it_is_to_run_now_runs_now() {
    let answer =
        change_while_the_run_ends(async |ledger, claim| ledger.run_now(&claim.key).await).await;
    assert!(matches!(answer, RunNowAnswer::Due(_)), "{answer:?}");
}

/// Changes a task that is running, and whose lease ends while the change waits for the lock of its row. A statement has the
/// time of its begin, so the task is running for the first statement of the change.
async fn change_while_the_run_ends<T>(
    change: impl AsyncFnOnce(&MysqlLedger, &Claim) -> Result<T, LedgerError>,
) -> T {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 1).await;
    let brief = Claimant {
        lease: Duration::from_secs(1),
        ..claimant()
    };
    let claims = ledger.claim(&armings, &brief).await.unwrap();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, armings[0].row).await;
    let watch = sqlx::MySqlPool::connect(&url).await.unwrap();
    let run_ends = async {
        until("the change waits for the row", async || {
            counter(&watch, "Innodb_row_lock_current_waits").await == 1
        })
        .await;
        let ended =
            "SELECT COUNT(*) FROM tb_time_limit_task WHERE lease_until < UNIX_TIMESTAMP(NOW(3))";
        until("the run has ended", async || {
            sqlx::query_scalar::<_, i64>(ended)
                .fetch_one(&watch)
                .await
                .unwrap()
                == 1
        })
        .await;
        holding.rollback().await.unwrap();
    };
    tokio::join!(change(&ledger, &claims[0]), run_ends)
        .0
        .unwrap()
}
