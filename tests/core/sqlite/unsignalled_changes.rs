//! How a daemon hears that another program has written to the file.

use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{Admin as _, NewTask, Producer as _, Scans as _};
use lapsed::task::{TaskKey, UnixMs};

use super::Place;

fn task(name: &str) -> NewTask {
    let key = TaskKey::build("Outside", "run", [name]).unwrap();
    NewTask::new(key, UnixMs(4_000_000_000_000))
}

async fn state(ledger: &SqliteLedger) -> u64 {
    ledger.unsignalled_changes().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_commit_of_another_connection_is_noticed_and_an_own_one_is_not() {
    let (place, ledger) = Place::migrated().await;
    let before = state(&ledger).await;
    ledger.create(&[task("own")]).await.unwrap();
    assert_eq!(state(&ledger).await, before);

    place.ledger().create(&[task("other")]).await.unwrap();
    let after_ledger = state(&ledger).await;
    assert_ne!(after_ledger, before);

    let insert = "INSERT INTO tb_time_limit_task (key, start_time, end_time) VALUES ('Outside@run@sql', 0, 0)";
    place.application().execute(insert, []).unwrap();
    let after_sql = state(&ledger).await;
    assert_ne!(after_sql, after_ledger);

    // Between its own commits, too.
    ledger.create(&[task("own-2")]).await.unwrap();
    place
        .application()
        .execute("UPDATE tb_time_limit_task SET tag = 'x'", [])
        .unwrap();
    ledger.create(&[task("own-3")]).await.unwrap();
    let after_both = state(&ledger).await;
    assert_ne!(after_both, after_sql);

    let tx = ledger.begin().await.unwrap();
    tx.execute("UPDATE tb_time_limit_task SET tag = 'y'", [])
        .unwrap();
    tx.commit().await.unwrap();
    let after_handler = state(&ledger).await;
    assert_ne!(after_handler, after_both);
    assert_eq!(state(&ledger).await, after_handler);
}

#[tokio::test]
async fn tasks_that_an_operator_makes_due_are_looked_for() {
    let (_place, ledger) = Place::migrated().await;
    ledger.create(&[task("1")]).await.unwrap();
    let before = state(&ledger).await;
    ledger.run_now(&task("1").key).await.unwrap();
    assert_ne!(state(&ledger).await, before);
}

#[tokio::test]
async fn another_file_in_place_of_the_first_is_a_change() {
    let (place, ledger) = Place::migrated().await;
    let before = state(&ledger).await;
    std::fs::remove_file(place.file()).unwrap();
    ledger.unsignalled_changes().await.unwrap_err();
    ledger.migrate(false).await.unwrap();
    assert_ne!(state(&ledger).await, before);
}
