//! One file has one daemon.

use std::os::unix::fs::PermissionsExt as _;

use lapsed::ledger::{Ledger as _, LedgerError};

use crate::engine::rig;
use crate::sqlite::Place;
use crate::support::wait::until;

#[tokio::test]
async fn a_second_daemon_on_a_file_is_refused_until_the_first_has_gone() {
    let (place, first) = Place::migrated().await;
    let second = place.ledger();
    let held = first.reserve().await.unwrap();
    let Err(refused @ LedgerError::Refused { .. }) = second.reserve().await else {
        panic!("a second daemon got the file");
    };
    let expected = format!("(process {})", std::process::id());
    assert!(refused.to_string().contains(&expected), "{refused}");
    // Other programs are not concerned.
    second.check().await.unwrap();
    drop(held);
    let _held = second.reserve().await.unwrap();
    assert!(first.reserve().await.is_err());
}

#[tokio::test]
async fn an_engine_does_not_start_on_a_file_that_another_one_has() {
    let (place, ledger) = Place::migrated().await;
    let held = ledger.reserve().await.unwrap();
    let config = lapsed::Config::default();
    let engine = |ledger| {
        let timer = std::sync::Arc::new(lapsed::timer::ledger_poll::LedgerPoll::new(
            lapsed::clock::LedgerClock::starting_at(lapsed::clock::wall()),
        ));
        let parts = rig::parts(ledger, timer, lapsed::Handlers::new(), &config);
        lapsed::Engine::with_parts(parts, &config)
    };
    let refused = engine(place.ledger()).run_until(async {}).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("a daemon runs on"), "{text}");
    drop(held);
    engine(place.ledger()).run_until(async {}).await.unwrap();
    // It has let go of the file.
    until("the file is free", async || {
        place.ledger().reserve().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn files_of_a_ledger_are_for_their_owner_only() {
    let (place, ledger) = Place::migrated().await;
    let _held = ledger.reserve().await.unwrap();
    ledger.check().await.unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(place.directory.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        names.push(entry.file_name().into_string().unwrap());
        assert_eq!(mode, 0o600, "{names:?}");
    }
    names.sort();
    let expected = [
        "lapsed.db",
        "lapsed.db-daemon",
        "lapsed.db-shm",
        "lapsed.db-wal",
    ];
    assert_eq!(names, expected);
}
