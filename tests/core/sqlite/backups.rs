//! Backups of a file that is in use.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapsed::config::LedgerConfig;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{Admin as _, Ledger as _, LedgerError, NewTask, Producer as _};
use lapsed::{TaskKey, UnixMs};

use crate::sqlite::Place;
use crate::support::wait::until;

fn task(number: u64) -> NewTask {
    let key = TaskKey::build("Order", "close", [number.to_string()]).unwrap();
    NewTask::new(key, UnixMs(lapsed::clock::wall().0 + 3_600_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_what_was_acknowledged_before_it_while_others_write() {
    let (place, ledger) = Place::migrated().await;
    let (written, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let writer = tokio::spawn({
        let (ledger, written, stop) =
            (Arc::clone(&ledger), Arc::clone(&written), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let next = written.load(Ordering::Relaxed);
                ledger.create(&[task(next), task(next + 1)]).await.unwrap();
                written.store(next + 2, Ordering::Relaxed);
            }
        }
    });
    until("some tasks are written", async || {
        written.load(Ordering::Relaxed) > 200
    })
    .await;
    let before = written.load(Ordering::Relaxed);
    let to = place.path("backup.db");
    let backup = ledger.back_up(to.clone()).await.unwrap();
    until("the writer goes on", async || {
        written.load(Ordering::Relaxed) > backup.rows + 10
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(backup.rows >= before && backup.rows % 2 == 0, "{backup:?}");
    let metadata = std::fs::metadata(&to).unwrap();
    assert_eq!(metadata.len(), backup.bytes);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    // It is a ledger.
    let config = LedgerConfig {
        url: format!("sqlite://{}", to.display()).into(),
        ..place.config()
    };
    let copy = SqliteLedger::new(&config).unwrap();
    copy.check().await.unwrap();
    assert_eq!(copy.stats().await.unwrap().pending, backup.rows);
    copy.close().await;
}

#[tokio::test]
async fn a_backup_replaces_no_file_and_leaves_none_behind() {
    let (place, ledger) = Place::migrated().await;
    ledger.check().await.unwrap();
    let names = || {
        let mut names: Vec<String> = std::fs::read_dir(place.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let before = names();
    for to in [place.file(), place.path("missing/backup.db")] {
        let refused = ledger.back_up(to).await.unwrap_err();
        assert!(matches!(refused, LedgerError::Refused { .. }), "{refused}");
    }
    assert_eq!(names(), before);
    ledger.back_up(place.path("a.db")).await.unwrap();
    let mut expected = before;
    expected.insert(0, "a.db".to_owned());
    assert_eq!(names(), expected);
    assert!(ledger.back_up(place.path("a.db")).await.is_err());
    assert_eq!(names(), expected);
}
