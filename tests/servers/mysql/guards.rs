//! Rows that are no longer what a statement takes them for.

use lapsed::ledger::mysql::queries::{self, Queries};
use lapsed::ledger::{Admin, Claims, ListFilter, Producer, Settled, Settlement};
use lapsed::task::{OccurrenceEnd, State, TaskKey, UnixMs, Verdict};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

use crate::mysql::proxy::{Act, Proxy};
use crate::mysql::rig::{claimant, connect, overdue, start};
use crate::support::wait::until;

#[tokio::test]
async fn a_pending_row_cannot_be_deleted() {
    let (_server, ledger, url) = start().await;
    let rows = overdue(&ledger, 4).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    connection
        .execute("UPDATE tb_time_limit_task SET finished_at = 1, reason = 'exhausted'")
        .await
        .unwrap();
    let ids: Vec<u64> = rows.iter().map(|arming| arming.row).collect();
    assert_eq!(ledger.discard_rows(&ids).await.unwrap(), 0);
    assert_eq!(ledger.redrive_rows(&ids).await.unwrap(), 0);
    // As if they had been done when they were looked for, and created anew since.
    let delete = Queries::new(ledger.table()).with_rows(queries::PRUNE_ROWS, ids.len());
    let delete = ids
        .iter()
        .fold(sqlx::query(AssertSqlSafe(delete)), |delete, id| {
            delete.bind(*id)
        });
    let deleted = delete.bind(1).bind(0).execute(&mut connection).await;
    assert_eq!(deleted.unwrap().rows_affected(), 0);
    let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM tb_time_limit_task");
    assert_eq!(count.fetch_one(&mut connection).await.unwrap(), 4);
}

#[tokio::test]
async fn a_row_that_has_another_tag_by_now_is_not_cancelled() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2).await;
    let mut connection = ledger.connection().await.unwrap();
    let tagged = Queries::new(ledger.table()).with_rows(queries::CANCEL_TAGGED, 1);
    let update = sqlx::query(AssertSqlSafe(tagged)).bind(vec![7u8; 16]);
    let update = update.bind(1).bind("other");
    let result = update.execute(&mut connection).await.unwrap();
    assert_eq!(result.rows_affected(), 0);
}

#[tokio::test]
async fn a_row_whose_tag_changes_after_it_was_read_is_not_cancelled() {
    let (_server, ledger, url) = start().await;
    let rows = overdue(&ledger, 2).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let tag = "UPDATE tb_time_limit_task SET tag = 'batch'";
    other.execute(tag).await.unwrap();
    let proxy = Proxy::before(&url, |sql| match sql.contains("SET sts = 1") {
        true => Act::Hold,
        false => Act::Pass,
    })
    .await;
    let through = connect(&proxy.url(&url));
    // Of nothing but a tag, the rows would not be read before.
    let filter = ListFilter {
        class: Some("Lock".to_owned()),
        ..ListFilter::tag("batch")
    };
    let change_meanwhile = async {
        until("the cancellation is sent", async || proxy.held() == 1).await;
        let change = "UPDATE tb_time_limit_task SET tag = 'other' WHERE id = ?";
        let change = sqlx::query(change).bind(rows[0].row);
        change.execute(&mut other).await.unwrap();
        proxy.let_go();
    };
    let (page, ()) = tokio::join!(through.cancel_page(&filter, false), change_meanwhile);
    let page = page.unwrap();
    let key = |n: i64| TaskKey::build("Lock", "row", [n.to_string()]).unwrap();
    assert_eq!(page.cancelled, [key(1)]);
    assert_eq!((page.running.len(), page.locked), (0, 0));
    let untouched = ledger.find(&key(0)).await.unwrap().unwrap();
    assert_eq!(untouched.state, State::Pending);
}

#[tokio::test]
async fn counters_at_their_end_keep_no_batch_from_being_claimed_or_released() {
    let (_server, ledger, _) = start().await;
    let armings = overdue(&ledger, 3).await;
    let mut connection = ledger.connection().await.unwrap();
    for (row, attempt, crashes) in [(armings[0].row, 65_535, 0), (armings[1].row, 1, 255)] {
        let full = "UPDATE tb_time_limit_task SET attempt = ?, crashes = ?, run_end = end_time, lease_until = 1 WHERE id = ?";
        sqlx::query(full)
            .bind(attempt)
            .bind(crashes)
            .bind(row)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    let counters: Vec<(u16, u8)> = claims
        .iter()
        .map(|claim| (claim.attempt.number, claim.attempt.crashes))
        .collect();
    assert_eq!(counters, [(65_535, 1), (2, 255), (1, 0)]);
}

#[tokio::test]
async fn a_series_that_is_claimed_again_before_it_is_looked_at_has_gone_on() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 2).await;
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    // Nobody is faster than this: whatever goes on is claimed.
    for statement in [
        "DELETE FROM tb_time_limit_task ORDER BY id LIMIT 1",
        "CREATE TRIGGER at_once BEFORE UPDATE ON tb_time_limit_task FOR EACH ROW SET \
           NEW.owner = IF(NEW.end_time > OLD.end_time, REPEAT('x', 16), NEW.owner), \
           NEW.lease_until = IF(NEW.end_time > OLD.end_time, UNIX_TIMESTAMP() + 30, NEW.lease_until)",
    ] {
        other.execute(statement).await.unwrap();
    }
    let go_on = Verdict::NextOccurrence {
        next: UnixMs(claims[1].lease.arming.due.0 + 1),
        end: OccurrenceEnd::Succeeded,
        result: None,
    };
    let settlements = [(&claims[0], Verdict::Complete), (&claims[1], go_on)];
    let settlements = settlements.map(|(claim, verdict)| Settlement {
        lease: claim.lease,
        verdict,
    });
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Fenced, Settled::Applied]
    );
}
