//! Files that cannot be used, and faults while one is in use.

use std::fs;
use std::time::Duration;

use lapsed::ledger::{CancelAnswer, Claims as _, Ledger, LedgerError, NewTask, Producer};
use lapsed::task::{TaskKey, UnixMs};

use super::Place;

pub fn task(name: &str) -> NewTask {
    let key = TaskKey::build("Fault", "run", [name]).unwrap();
    NewTask::new(key, UnixMs(4_000_000_000_000))
}

async fn refusal(ledger: &impl Ledger) -> String {
    match ledger.check().await.unwrap_err() {
        LedgerError::Refused { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_obstacle_at_the_path_is_named_with_a_remedy() {
    let place = Place::new();
    let (ledger, file) = (place.ledger(), place.file().display().to_string());
    assert_eq!(
        refusal(&*ledger).await,
        format!("there is no file `{file}`: run `lapsed migrate` to create it")
    );
    fs::write(&file, "").unwrap();
    assert_eq!(
        refusal(&*ledger).await,
        format!("`{file}` has no table `tb_time_limit_task`: run `lapsed migrate`")
    );
    fs::write(&file, vec![b'x'; 8_192]).unwrap();
    assert_eq!(
        refusal(&*ledger).await,
        format!("`{file}` is not an SQLite database")
    );
    let migrated = ledger.migrate(false).await.unwrap_err();
    assert!(migrated.to_string().ends_with("is not an SQLite database"));
    fs::remove_dir_all(place.directory.path()).unwrap();
    let migrated = ledger.migrate(false).await.unwrap_err().to_string();
    let directory = place.directory.path().display();
    assert!(
        migrated.contains(&format!("there is no directory `{directory}`")),
        "{migrated}"
    );
}

#[tokio::test]
async fn a_file_of_a_newer_format_is_left_alone() {
    let (place, ledger) = Place::migrated().await;
    let newer = "UPDATE tb_time_limit_task_format SET version = 2";
    place.application().execute(newer, []).unwrap();
    let file = place.file().display().to_string();
    let expected =
        format!("`{file}` has format 2, expected 1: it was written by a newer version of lapsed");
    assert_eq!(refusal(&*ledger).await, expected);
    let migrated = ledger.migrate(false).await.unwrap_err().to_string();
    assert!(migrated.ends_with(&expected), "{migrated}");
}

#[tokio::test]
async fn a_file_that_is_deleted_in_use_takes_no_further_task() {
    let (place, ledger) = Place::migrated().await;
    ledger.create(&[task("before")]).await.unwrap();
    fs::remove_file(place.file()).unwrap();
    let lost = ledger.create(&[task("after")]).await.unwrap_err();
    assert!(
        lost.to_string()
            .ends_with("was deleted or replaced while it was open")
    );
    let missing = ledger.create(&[task("later")]).await.unwrap_err();
    assert!(
        missing.to_string().contains("there is no file"),
        "{missing}"
    );
    // Another file takes its place.
    ledger.migrate(false).await.unwrap();
    ledger.create(&[task("again")]).await.unwrap();
    assert_eq!(ledger.look_up(&[task("before").key]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_file_that_another_process_keeps_locked_can_be_used_afterwards() {
    let (place, ledger) = Place::migrated().await;
    let application = place.application();
    application.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = ledger.create(&[task("1")]).await.unwrap_err();
    assert!(locked.is_transient());
    assert!(locked.to_string().ends_with("locked for 5 s"), "{locked}");
    // Readers do not wait.
    assert_eq!(ledger.look_up(&[task("1").key]).await.unwrap(), [None]);
    application.execute_batch("COMMIT").unwrap();
    ledger.create(&[task("1")]).await.unwrap();
}

#[tokio::test]
async fn jobs_that_wait_together_for_a_locked_file_are_answered_together() {
    let (place, ledger) = Place::migrated().await;
    ledger.create(&[task("0")]).await.unwrap();
    let application = place.application();
    application.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = tokio::time::Instant::now();
    let keys: Vec<TaskKey> = (0..12).map(|n| task(&n.to_string()).key).collect();
    let cancels = keys
        .iter()
        .map(|key| ledger.cancel(std::slice::from_ref(key)));
    for answer in futures_util::future::join_all(cancels).await {
        assert!(answer.unwrap_err().is_transient());
    }
    // One wait is 5 s. The first may begin before the others have arrived.
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    application.execute_batch("COMMIT").unwrap();
    let cancelled = ledger.cancel(&keys[..1]).await.unwrap();
    assert_eq!(cancelled, [CancelAnswer::Cancelled]);
}

/// Many requests share a transaction. Those that fail take nothing of the others with them.
#[tokio::test]
async fn a_task_that_the_file_refuses_is_refused_alone() {
    let (place, ledger) = Place::migrated().await;
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON tb_time_limit_task \
                   WHEN NEW.key LIKE '%bad%' BEGIN SELECT RAISE(ABORT, 'not this one'); END";
    place.application().execute_batch(trigger).unwrap();
    let names: Vec<String> = (0..40)
        .map(|n| format!("{}{n}", if n % 4 == 0 { "bad" } else { "good" }))
        .collect();
    // The first task of each request is fine: it goes with the one that is refused.
    let requests = names.iter().map(|name| {
        let ledger = &ledger;
        async move {
            ledger
                .create(&[task(&format!("first-{name}")), task(name)])
                .await
        }
    });
    for (name, created) in names
        .iter()
        .zip(futures_util::future::join_all(requests).await)
    {
        match created {
            Ok(_) => assert!(name.starts_with("good"), "{name}"),
            Err(LedgerError::Unfit { message, .. }) => {
                assert!(name.starts_with("bad"), "{name}");
                assert_eq!(message, "not this one");
            }
            Err(other) => panic!("{name}: {other:?}"),
        }
        for key in [task(&format!("first-{name}")).key, task(name).key] {
            let found = ledger.look_up(&[key]).await.unwrap();
            assert_eq!(found[0].is_some(), name.starts_with("good"), "{name}");
        }
    }
}

/// Some errors end the transaction, and with it what others in it have written.
#[tokio::test]
async fn a_transaction_that_ends_early_acknowledges_nothing() {
    let (place, ledger) = Place::migrated().await;
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON tb_time_limit_task \
                   WHEN NEW.key LIKE '%bad%' BEGIN SELECT RAISE(ROLLBACK, 'none of these'); END";
    place.application().execute_batch(trigger).unwrap();
    let names: Vec<String> = (0..40)
        .map(|n| format!("{}{n}", if n == 20 { "bad" } else { "good" }))
        .collect();
    let requests = names.iter().map(|name| {
        let ledger = &ledger;
        async move { ledger.create(&[task(name)]).await }
    });
    for (name, created) in names
        .iter()
        .zip(futures_util::future::join_all(requests).await)
    {
        let found = ledger.look_up(&[task(name).key]).await.unwrap();
        assert_eq!(found[0].is_some(), created.is_ok(), "{name}: {created:?}");
        assert!(created.is_err() || !name.starts_with("bad"));
    }
    ledger.create(&[task("good-again")]).await.unwrap();
}
