//! Documents, where much of a collection has expired.

use lapsed::UnixMs;
use lapsed::ledger::{Collection, Documents};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

use crate::mysql::rig::start;
use crate::support::maria::{counter, numbers};

/// How many rows the server has read, through any index.
async fn rows_read(admin: &mut MySqlConnection) -> i64 {
    let mut read = 0;
    for kind in ["next", "prev", "rnd", "rnd_next"] {
        read += counter(&mut *admin, &format!("Handler_read_{kind}")).await;
    }
    read
}

#[tokio::test]
async fn deleting_a_few_of_many_expired_documents_reads_only_these() {
    const EXPIRED: i64 = 20_000;
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    let insert = format!(
        "INSERT INTO tb_time_limit_task_documents (collection, name, written_at, body) \
         SELECT 'idempotency', SHA2(seq, 256), 1000 + seq, '{{}}' FROM {}",
        numbers(EXPIRED)
    );
    admin.execute(AssertSqlSafe(insert)).await.unwrap();
    let analyze = "ANALYZE TABLE tb_time_limit_task_documents";
    admin.execute(analyze).await.unwrap();

    let of = Collection::Idempotency;
    let end = UnixMs(9_999_999_999_999);
    let before = rows_read(&mut admin).await;
    assert_eq!(ledger.delete_documents(of, end, 20).await.unwrap(), 20);
    let read = rows_read(&mut admin).await - before;
    assert!(read < EXPIRED / 10, "{read} rows were read");

    // The oldest, and more than one statement names.
    let twenty = UnixMs(1_020_001);
    assert_eq!(ledger.delete_documents(of, twenty, 20).await.unwrap(), 0);
    let most = 1_500;
    assert_eq!(ledger.delete_documents(of, end, most).await.unwrap(), 1_500);
    let left = UnixMs(2_521_000);
    assert_eq!(ledger.delete_documents(of, left, most).await.unwrap(), 0);
    let next = UnixMs(2_521_001);
    assert_eq!(ledger.delete_documents(of, next, most).await.unwrap(), 1);
}
