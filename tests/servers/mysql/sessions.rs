//! Statements in transactions of somebody else's session.

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{CancelAnswer, Claims, CreateResult, IfPending, NewTask, Producer};
use lapsed::task::{TaskKey, UnixMs};
use sqlx::{Connection, Executor, MySqlConnection};

use crate::mysql::rig::{connect, start};

const DUE: UnixMs = UnixMs(9_000_000_000_123);

fn task(if_pending: IfPending) -> NewTask {
    NewTask {
        if_pending,
        ..NewTask::new(TaskKey::parse("Order@throttle").unwrap(), DUE)
    }
}

/// A transaction that has read, before another session wrote the row.
async fn read_then_written<'c>(
    session: &'c mut MySqlConnection,
    ledger: &MysqlLedger,
) -> sqlx::MySqlTransaction<'c> {
    session
        .execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    let mut tx = session.begin().await.unwrap();
    tx.execute("SELECT COUNT(*) FROM tb_time_limit_task")
        .await
        .unwrap();
    let other = NewTask {
        due: UnixMs(DUE.0 + 1_000),
        ..task(IfPending::Move)
    };
    ledger.create(&[other]).await.unwrap();
    tx
}

#[tokio::test]
async fn a_transaction_that_has_read_before_creates_and_cancels_what_others_wrote_since() {
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    let known = admin.fetch_all("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'");
    // MySQL does not have it.
    let settings = match known.await.unwrap().is_empty() {
        true => &[false][..],
        false => &[false, true],
    };
    for isolated in settings.iter().copied() {
        let mut session = MySqlConnection::connect(&url).await.unwrap();
        if isolated {
            let on = "SET SESSION innodb_snapshot_isolation = ON";
            session.execute(on).await.unwrap();
        }
        for (policy, expected) in [
            (IfPending::Keep, CreateResult::Kept),
            (IfPending::Refuse, CreateResult::Refused),
            (IfPending::Move, CreateResult::Written),
        ] {
            let mut tx = read_then_written(&mut session, &ledger).await;
            let created = ledger.create_in(&mut tx, &[task(policy)]).await;
            let created = created.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
            assert_eq!(created[0].result, expected, "{policy:?}, {isolated}");
            tx.commit().await.unwrap();
        }
        let mut tx = read_then_written(&mut session, &ledger).await;
        let key = TaskKey::parse("Order@throttle").unwrap();
        let cancelled = ledger.cancel_in(&mut tx, &key).await.unwrap();
        assert_eq!(cancelled, CancelAnswer::Cancelled, "{isolated}");
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn milliseconds_are_kept_whatever_a_division_is_rounded_to() {
    let (_server, ledger, url) = start().await;
    let mut session = MySqlConnection::connect(&url).await.unwrap();
    session
        .execute("SET GLOBAL div_precision_increment = 0")
        .await
        .unwrap();
    session
        .execute("SET SESSION div_precision_increment = 0")
        .await
        .unwrap();
    let ledger_of_new_sessions = connect(&url);
    let mut tx = session.begin().await.unwrap();
    ledger
        .create_in(&mut tx, &[task(IfPending::Move)])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let other = TaskKey::parse("Order@other").unwrap();
    ledger_of_new_sessions
        .create(&[NewTask::new(other.clone(), DUE)])
        .await
        .unwrap();
    let keys = [TaskKey::parse("Order@throttle").unwrap(), other];
    for lookup in ledger.look_up(&keys).await.unwrap() {
        assert_eq!(lookup.unwrap().arming.due, DUE);
    }
}
