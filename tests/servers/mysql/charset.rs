//! Keys that the table's character set cannot hold.

use lapsed::ledger::migrate::{self, Options};
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{
    Admin, Adopted, Adoption, AdoptionRequest, CancelAnswer, Claims, IfPending, LedgerError,
    NewTask, Producer, RescheduleAnswer,
};
use lapsed::task::{TaskKey, UnixMs};
use lapsed_sandbox::PrivateMaria;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

use crate::mysql::rig::{connect, start};
use crate::support::wait::until;

const EMOJI: &str = "Order@close@😀";

fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

fn found(text: &str) -> AdoptionRequest {
    AdoptionRequest {
        key: key(text),
        due: UnixMs(9_000_000_000_000),
        heard: UnixMs(1),
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    }
}

/// A ledger whose key column has another character set.
async fn with_charset(charset: &str) -> (PrivateMaria, MysqlLedger, String) {
    let (server, ledger, url) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    let change = format!(
        "ALTER TABLE tb_time_limit_task MODIFY COLUMN `key` VARCHAR(255) CHARACTER SET {charset} COLLATE {charset}_bin NOT NULL"
    );
    connection.execute(AssertSqlSafe(change)).await.unwrap();
    (server, ledger, url)
}

#[tokio::test]
async fn a_key_that_does_not_fit_touches_no_other() {
    // What of `gbk` fits only the server knows.
    for charset in ["utf8", "latin1", "gbk"] {
        let (_server, ledger, _) = with_charset(charset).await;
        let due = UnixMs(9_000_000_000_000);
        let task = NewTask::new(key("Order@close@1"), due);
        ledger.create(&[task]).await.unwrap();
        let keys = ["Order@close@1", EMOJI, "Order@close@2"].map(key);

        let lookups = ledger.look_up(&keys).await.unwrap();
        let there: Vec<bool> = lookups.iter().map(Option::is_some).collect();
        assert_eq!(there, [true, false, false], "{charset}");

        let adopted = ledger.adopt(&[found(EMOJI), found("Order@close@2")]).await;
        let adopted = adopted.unwrap();
        let unfit = matches!(&adopted[0], Adopted::Unfit(why) if why.contains("migrate --utf8mb4"));
        assert_eq!(unfit, charset != "gbk", "{charset}: {adopted:?}");
        assert!(!matches!(adopted[0], Adopted::Written(_)));
        assert!(matches!(adopted[1], Adopted::Written(_)), "{charset}");

        let refused = ledger
            .create(&[
                NewTask::new(key("Order@close@3"), due),
                NewTask::new(key(EMOJI), due),
            ])
            .await;
        let refused = refused.unwrap_err();
        assert!(refused.is_about_data(), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("`lapsed migrate --utf8mb4`"), "{text}");
        assert!(charset == "gbk" || text.contains(EMOJI), "{text}");
    }
}

#[tokio::test]
async fn questions_about_a_key_that_the_table_cannot_hold_are_answered() {
    let (_server, ledger, _) = with_charset("utf8").await;
    let due = UnixMs(9_000_000_000_000);
    ledger
        .create(&[NewTask::new(key("Order@close@1"), due)])
        .await
        .unwrap();
    let keys = [EMOJI, "Order@close@1"].map(key);
    assert_eq!(
        ledger.cancel(&keys).await.unwrap(),
        [CancelAnswer::Unknown, CancelAnswer::Cancelled]
    );
    let moved = ledger.reschedule(&keys[0], due).await.unwrap();
    assert_eq!(moved, RescheduleAnswer::Unknown);
    assert!(ledger.find(&keys[0]).await.unwrap().is_none());
    assert!(ledger.read_row(&keys[0]).await.unwrap().is_none());

    let mut connection = ledger.connection().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let task = NewTask::new(keys[0].clone(), due);
    let refused = ledger.create_in(&mut tx, &[task]).await.unwrap_err();
    assert!(matches!(&refused, LedgerError::Invalid(why) if why.contains(EMOJI)));
    let cancelled = ledger.cancel_in(&mut tx, &keys[0]).await.unwrap();
    assert_eq!(cancelled, CancelAnswer::Unknown);
}

#[tokio::test]
async fn a_daemon_takes_such_keys_soon_after_the_column_was_converted() {
    let (_server, ledger, url) = with_charset("utf8").await;
    assert!(matches!(
        ledger.adopt(&[found(EMOJI)]).await.unwrap()[0],
        Adopted::Unfit(_)
    ));
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let options = Options::default().utf8mb4(true);
    migrate::apply(&mut connection, ledger.table(), &options, &mut |_| {})
        .await
        .unwrap();
    until("such a key is adopted", async || {
        let adopted = ledger.adopt(&[found(EMOJI)]).await.unwrap().remove(0);
        matches!(adopted, Adopted::Written(_))
    })
    .await;
    assert!(ledger.look_up(&[key(EMOJI)]).await.unwrap()[0].is_some());
}

#[tokio::test]
async fn many_sizes_of_a_batch_are_few_prepared_statements() {
    let (_server, ledger, url) = start().await;
    let one = connect(&url);
    let mut number = 0;
    for size in 1..=40 {
        let tasks = (0..size).map(|_| {
            number += 1;
            let key = TaskKey::build("Order", "close", [number.to_string()]).unwrap();
            let task = NewTask::new(key, UnixMs(9_000_000_000_000));
            NewTask {
                if_pending: IfPending::Keep,
                ..task
            }
        });
        let tasks: Vec<NewTask> = tasks.collect();
        let created = one.create(&tasks).await.unwrap();
        assert!(created.iter().all(|created| created.arming.due.0 > 0));
    }
    let mut connection = ledger.connection().await.unwrap();
    let used: (String, String) = sqlx::query_as("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let used: usize = used.1.parse().unwrap();
    assert!(used < 35, "{used} prepared statements");
}
