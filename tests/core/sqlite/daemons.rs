//! One file has one daemon.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use lapsed::Config;
use lapsed::config::LedgerConfig;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{Claims as _, Ledger as _, LedgerError, NewTask, Producer as _, Scans as _};
use lapsed::task::{TaskKey, UnixMs};

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

/// A ledger on this path, as another process has.
fn ledger_at(path: &Path) -> SqliteLedger {
    let config = LedgerConfig {
        url: format!("sqlite://{}", path.display()).into(),
        ..Config::default().ledger
    };
    SqliteLedger::new(&config).unwrap()
}

#[tokio::test]
async fn a_daemon_keeps_a_second_one_from_its_file_by_every_name() {
    let (place, first) = Place::migrated().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let by_link = elsewhere.path().join("linked.db");
    symlink(place.file(), &by_link).unwrap();
    let by_directory = elsewhere.path().join("directory");
    symlink(place.directory.path(), &by_directory).unwrap();
    let hard = place.path("hard.db");
    std::fs::hard_link(place.file(), &hard).unwrap();

    let held = first.reserve().await.unwrap();
    let paths = [&by_link, &by_directory.join("lapsed.db"), &hard];
    for path in paths {
        assert!(ledger_at(path).reserve().await.is_err(), "{path:?}");
    }
    // Without the file that shows the lock, too.
    std::fs::remove_file(place.path("lapsed.db-daemon")).unwrap();
    let refused = ledger_at(&place.file()).reserve().await;
    let text = refused.map(drop).unwrap_err().to_string();
    assert!(text.contains("a daemon runs on"), "{text}");
    drop(held);
    let _held = ledger_at(&by_link).reserve().await.unwrap();
}

#[tokio::test]
async fn a_file_behind_a_symbolic_link_is_used_as_the_file_itself() {
    let (place, ledger) = Place::migrated().await;
    let link = place.path("link.db");
    symlink("lapsed.db", &link).unwrap();
    let linked = ledger_at(&link);
    let name = |name| NewTask::new(TaskKey::build("Link", "run", [name]).unwrap(), UnixMs(0));
    linked.create(&[name("1")]).await.unwrap();
    ledger.create(&[name("2")]).await.unwrap();
    // It is not taken for a file whose log was deleted: a look finds one change, and no further one.
    let seen = linked.unsignalled_changes().await.unwrap();
    assert_eq!(linked.unsignalled_changes().await.unwrap(), seen);
    let found = linked.look_up(&[name("2").key]).await.unwrap();
    assert!(found[0].is_some());
    assert!(!place.path("link.db-daemon").exists());

    // A link to a file that does not exist yet.
    let early = place.path("early.db");
    symlink(place.path("late.db"), &early).unwrap();
    let ledger = ledger_at(&early);
    ledger.migrate(false).await.unwrap();
    ledger.check().await.unwrap();
    assert!(place.path("late.db-wal").exists());
}

#[tokio::test]
async fn a_file_with_two_names_is_not_written() {
    let (place, ledger) = Place::migrated().await;
    ledger.close().await;
    let other = place.path("other.db");
    std::fs::hard_link(place.file(), &other).unwrap();
    for path in [&place.file(), &other] {
        let refused = ledger_at(path).check().await.unwrap_err().to_string();
        assert!(refused.contains("has 2 names (hard links)"), "{refused}");
    }
    std::fs::remove_file(&other).unwrap();
    ledger.check().await.unwrap();
}

/// A directory of a service manager belongs to the user of the daemon, and `lapsed migrate` may be run by root.
#[tokio::test]
async fn files_that_root_creates_belong_to_the_owner_of_the_directory() {
    let place = Place::new();
    let owner = match rustix::process::geteuid().is_root() {
        true => 54_321,
        false => rustix::process::geteuid().as_raw(),
    };
    chown(place.directory.path(), Some(owner), None).unwrap();
    let ledger = place.ledger();
    ledger.migrate(false).await.unwrap();
    let _held = ledger.reserve().await.unwrap();
    ledger.check().await.unwrap();
    for ending in ["", "-wal", "-shm", "-daemon"] {
        let file = place.path(&format!("lapsed.db{ending}"));
        assert_eq!(file.metadata().unwrap().uid(), owner, "{ending}");
    }
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
