//! Many keys without rows at once.

use std::collections::HashSet;

use lapsed::ledger::{Adopted, Adoption, AdoptionRequest, Claims};
use lapsed::task::{TaskKey, UnixMs};
use sqlx::{Connection, Executor, MySqlConnection};

use crate::mysql::rig::start;
use crate::support::maria::counter;
use crate::support::wait::until;

fn key(n: usize) -> TaskKey {
    TaskKey::build("Adopt", "row", [format!("{n:04}")]).unwrap()
}

fn found(key: TaskKey, due: UnixMs) -> AdoptionRequest {
    AdoptionRequest {
        key,
        due,
        heard: UnixMs(due.0 - 60_000),
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    }
}

fn written(answers: &[Adopted]) -> usize {
    let written = |answer: &&Adopted| matches!(answer, Adopted::Written(_));
    answers.iter().filter(written).count()
}

async fn rows(connection: &mut MySqlConnection) -> i64 {
    let count = "SELECT COUNT(*) FROM tb_time_limit_task WHERE adopted = 1";
    sqlx::query_scalar(count)
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn many_new_keys_are_written_in_few_statements() {
    let (_server, ledger, url) = start().await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let before = counter(&mut other, "Com_insert").await;
    let due = ledger.now().await.unwrap().0 + 60_001;
    let all: Vec<AdoptionRequest> = (0..1_000)
        .map(|n| found(key(n), UnixMs(due + n as i64)))
        .collect();
    let answers = ledger.adopt(&all).await.unwrap();
    assert_eq!(written(&answers), 1_000);
    let statements = counter(&mut other, "Com_insert").await - before;
    assert!(statements <= 40, "{statements} statements");
    // Each answer is about its key.
    let keys: Vec<TaskKey> = all.iter().map(|found| found.key.clone()).collect();
    let lookups = ledger.look_up(&keys).await.unwrap();
    let mut ids = HashSet::new();
    for ((answer, lookup), found) in answers.iter().zip(lookups).zip(&all) {
        let Adopted::Written(arming) = answer else {
            panic!("{answer:?}");
        };
        let lookup = lookup.expect("a row");
        assert_eq!((arming, arming.due), (&lookup.arming, found.due));
        ids.insert(arming.row);
    }
    assert_eq!(ids.len(), 1_000);
}

#[tokio::test]
async fn a_row_that_is_there_meanwhile_is_left_alone_and_all_others_are_written() {
    let (_server, ledger, url) = start().await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let due = UnixMs(ledger.now().await.unwrap().0 + 60_001);
    other
        .execute("INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time) VALUES ('Adopt@row@0033', 0, 1, 2)")
        .await
        .unwrap();
    let all: Vec<AdoptionRequest> = (0..200).map(|n| found(key(n), due)).collect();
    let answers = ledger.adopt(&all).await.unwrap();
    assert_eq!(answers[33], Adopted::Overtaken);
    assert_eq!(written(&answers), 199);
    assert_eq!(rows(&mut other).await, 199);
}

#[tokio::test]
async fn a_program_that_writes_such_rows_in_a_transaction_is_not_disturbed() {
    let (_server, ledger, url) = start().await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let due = UnixMs(ledger.now().await.unwrap().0 + 60_001);
    let insert =
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time) VALUES (?, 0, 1, 2)";
    let mut program = other.begin().await.unwrap();
    let first = sqlx::query(insert).bind("Adopt@row@0100");
    first.execute(&mut *program).await.unwrap();
    let all: Vec<AdoptionRequest> = (0..200).map(|n| found(key(n), due)).collect();
    let server = sqlx::MySqlPool::connect(&url).await.unwrap();
    let waits = counter(&server, "Innodb_row_lock_waits").await;
    // Its row is waited for; while that lasts the program writes another one, ahead of it in every order.
    let (answers, second) = tokio::join!(ledger.adopt(&all), async {
        until("its row is waited for", async || {
            counter(&server, "Innodb_row_lock_waits").await > waits
        })
        .await;
        let second = sqlx::query(insert).bind("Adopt@row@0000a");
        second.execute(&mut *program).await
    });
    second.expect("no deadlock at the program's expense");
    program.commit().await.unwrap();
    let answers = answers.unwrap();
    assert_eq!(answers[100], Adopted::Locked);
    let again: Vec<AdoptionRequest> = all
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| matches!(answer, Adopted::Locked | Adopted::Untried))
        .map(|(found, _)| found.clone())
        .collect();
    assert_eq!(written(&answers) + again.len(), 200);
    let answers = ledger.adopt(&again).await.unwrap();
    assert_eq!(written(&answers), again.len() - 1);
    assert_eq!(rows(&mut other).await, 199);
}

#[tokio::test]
async fn a_gap_that_a_program_locks_holds_up_no_key_outside_of_it() {
    let (_server, ledger, url) = start().await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let due = UnixMs(ledger.now().await.unwrap().0 + 60_001);
    let request = |name: &str| found(TaskKey::parse(name).unwrap(), due);
    let borders = [request("Gap@row@b"), request("Gap@row@c")];
    assert_eq!(written(&ledger.adopt(&borders).await.unwrap()), 2);
    // A missing row that is read for an update locks the gap in which it would be.
    let mut program = other.begin().await.unwrap();
    sqlx::query("SELECT id FROM tb_time_limit_task WHERE `key` = 'Gap@row@b5' FOR UPDATE")
        .execute(&mut *program)
        .await
        .unwrap();
    let names = (0..10).map(|n| format!("Gap@row@b{n}"));
    let names = names.chain((0..200).map(|n| format!("Gap@row@d{n}")));
    let mut left: Vec<AdoptionRequest> = names.map(|name| request(&name)).collect();
    let mut free = 0;
    // Each call finds some keys that wait for the program. The others are written in the next ones.
    while !left.is_empty() {
        let answers = ledger.adopt(&left).await.unwrap();
        free += written(&answers);
        let pairs = left.into_iter().zip(answers);
        left = pairs
            .filter(|(request, answer)| {
                let is_in_gap = request.key.as_str().contains("@b");
                assert!(*answer != Adopted::Locked || is_in_gap, "{}", request.key);
                *answer == Adopted::Untried
            })
            .map(|(request, _)| request)
            .collect();
    }
    assert_eq!(free, 200);
    program.rollback().await.unwrap();
}

#[tokio::test]
async fn a_key_that_the_table_cannot_hold_is_refused_and_all_others_are_written() {
    let (_server, ledger, url) = start().await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let due = UnixMs(ledger.now().await.unwrap().0 + 60_001);
    other
        .execute("ALTER TABLE tb_time_limit_task MODIFY `key` VARCHAR(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL")
        .await
        .unwrap();
    let mut all: Vec<AdoptionRequest> = (0..100).map(|n| found(key(n), due)).collect();
    let key = TaskKey::build("Adopt", "row", ["\u{1F600}"]).unwrap();
    all.insert(50, found(key, due));
    let answers = ledger.adopt(&all).await.unwrap();
    assert!(
        matches!(answers[50], Adopted::Unfit(_)),
        "{:?}",
        answers[50]
    );
    assert_eq!(written(&answers), 100);
    assert_eq!(rows(&mut other).await, 100);
}
