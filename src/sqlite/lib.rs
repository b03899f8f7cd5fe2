//! The ledger in an SQLite file: durable on one machine, without a server.
//!
//! Its verbs are those of `ledger::rows`, as in the ledger in memory, each in one transaction of the one writer or of a
//! reader. Other processes may read and write the file; their transactions and those of the writer never run at the same
//! time.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backup;
mod checkpoints;
mod error;
mod facts;
mod file;
mod job;
mod lock;
mod migration;
mod queries;
mod readers;
mod rows;
mod schema;
mod side_tables;
mod store;
mod transaction;
mod transactions;
mod writer;

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

pub use self::backup::Backup;
pub use self::facts::FileFacts;
use self::file::DatabaseFile;
use self::lock::DaemonLock;
pub use self::migration::Migrated;
use self::queries::Queries;
use self::readers::Readers;
pub use self::schema::NEWER;
use self::store::SqliteStore;
pub use self::transaction::SqliteTransaction;
use self::writer::Writer;
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{ConfigError, LedgerConfig};
use lapsed_core::ledger::rows::store::{RowStore as _, Store};
use lapsed_core::ledger::rows::{Length, RowLedger};
use lapsed_core::ledger::{Ledger, LedgerError, Reservation};
use lapsed_core::task::{DELAY_MAX, TableName, UnixMs};

/// The ledger in an SQLite file. Opens the file when first used.
///
/// Its clock is the wall clock of this machine.
#[derive(Debug)]
pub struct SqliteLedger {
    file: DatabaseFile,
    clock: LedgerClock,
    queries: Arc<Queries>,
    writer: Writer,
    readers: Readers,
    /// Held by the transaction that writes. Transactions of this process wait for it in order of arrival, and only for other
    /// processes by trying again.
    turn: Arc<Mutex<()>>,
    /// Number of changes that make tasks due without a signal to the timer.
    unsignalled: AtomicU64,
}

impl SqliteLedger {
    /// Creates a ledger that opens its file when first used.
    ///
    /// # Errors
    /// [`ConfigError`] for a URL that names no file, and for an invalid table name.
    pub fn new(config: &LedgerConfig) -> Result<Self, ConfigError> {
        let path = config.sqlite_file().ok_or_else(|| {
            ConfigError::one(
                "ledger.url",
                "expected `sqlite:///path/to/file.db`".to_owned(),
            )
        })?;
        let table = TableName::new(&config.table)
            .map_err(|error| ConfigError::one("ledger.table", error.to_string()))?;
        let clock = LedgerClock::wall();
        let queries = Arc::new(Queries::new(&table));
        let file = DatabaseFile::new(path, table);
        let turn = Arc::new(Mutex::new(()));
        let readers = Readers::new(file.clone(), Arc::clone(&queries), clock.clone());
        Ok(Self {
            writer: Writer::new(
                file.clone(),
                Arc::clone(&queries),
                clock.clone(),
                Arc::clone(&turn),
                readers.idle().clone(),
            ),
            readers,
            queries,
            turn,
            file,
            clock,
            unsignalled: AtomicU64::new(0),
        })
    }

    /// Creates the file and its tables, as `lapsed migrate` does. With `dry_run`, only says what it would do.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] says what is in the way.
    pub async fn migrate(&self, dry_run: bool) -> Result<Migrated, LedgerError> {
        let file = self.file.clone();
        let migrated = spawn_blocking(move || migration::migrate(&file, dry_run)).await;
        migrated.expect("a migration does not panic")
    }

    /// Sets the clock of this process forward, for `lapsed dev`. Tasks that run keep the rest of their leases, as if they had
    /// been renewed meanwhile.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] if the file cannot be written. The clock may have been set then.
    pub async fn set_clock_forward(&self, by: Duration) -> Result<UnixMs, LedgerError> {
        let prolonged = move |store: &mut SqliteStore<'_>| {
            let now = store.now();
            store.run(|session| {
                let mut prolong = session.prepare(&session.queries.prolong_leases)?;
                let by_ms = UnixMs(0).plus(by).0;
                prolong.execute([by_ms, now.0, now.plus(DELAY_MAX).0])
            })?;
            // Before the commit: no other transaction may find these leases ended.
            lapsed_core::clock::set_forward(by);
            Ok(())
        };
        self.writer.write(Length::Short, prolonged).await?;
        Ok(self.clock.now())
    }

    /// Writes a copy of the database, as of one moment, to a file that must not exist. Daemons go on meanwhile.
    ///
    /// The file appears when the copy is complete, verified, and on the disk.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] says what is in the way.
    pub async fn back_up(&self, to: PathBuf) -> Result<Backup, LedgerError> {
        let file = self.file.clone();
        let written = spawn_blocking(move || backup::back_up(&file, &to)).await;
        written.expect("a backup does not panic")
    }
}

impl RowLedger for SqliteLedger {
    async fn read<T, V>(&self, length: Length, verb: V) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
    {
        self.readers.read(length, |store| verb(store)).await
    }

    async fn write<T, V>(&self, length: Length, verb: V) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
    {
        self.writer.write(length, |store| verb(store)).await
    }

    fn identity(&self) -> Option<String> {
        let (device, inode) = self.file.identity().database?;
        Some(format!("{device} {inode} {}", self.file.table))
    }

    async fn unsignalled_changes(&self) -> Result<Option<u64>, LedgerError> {
        let commits = self.writer.external_commits().await?;
        Ok(Some(commits + self.unsignalled.load(Ordering::Relaxed)))
    }

    fn note_unsignalled(&self) {
        self.unsignalled.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        Ok(self.clock.now())
    }

    async fn check(&self) -> Result<(), LedgerError> {
        // Takes the lock of the file, so a file that cannot be written is noticed.
        self.writer.write(Length::Short, |_| Ok(())).await?;
        self.readers.read(Length::Short, |_| Ok(())).await
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        let probe = |store: &mut SqliteStore<'_>| {
            store.run(|session| {
                // Space is needed at the commit. A page that is changed and changed back is written then.
                for statement in [&session.queries.insert_probe, &session.queries.delete_probe] {
                    session.prepare(statement)?.execute([])?;
                }
                Ok(())
            })
        };
        self.writer.write(Length::Short, probe).await
    }

    async fn reserve(&self) -> Result<Option<Reservation>, LedgerError> {
        Ok(Some(Box::new(DaemonLock::take(&self.file)?)))
    }

    fn database(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self)
    }

    async fn close(&self) {
        self.readers.idle().close(&self.file.identity());
        self.writer.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tempfile::TempDir;
    use tokio::time::Instant;

    use super::*;
    use lapsed_core::config::Config;

    async fn migrated() -> (TempDir, SqliteLedger) {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/lapsed.db", directory.path().display());
        let config = Config::from_toml(&format!("[ledger]\nurl = '{url}'")).unwrap();
        let ledger = SqliteLedger::new(&config.ledger).unwrap();
        ledger.migrate(false).await.unwrap();
        (directory, ledger)
    }

    #[tokio::test]
    async fn a_write_about_few_rows_waits_for_one_transaction_of_long_ones() {
        let (_directory, ledger) = migrated().await;
        let order = Arc::new(StdMutex::new(Vec::new()));
        let (go, wait) = mpsc::channel();
        let wait = Arc::new(StdMutex::new(wait));
        // Each takes the time that a transaction has.
        let long = |number: u32| {
            let (order, wait) = (Arc::clone(&order), Arc::clone(&wait));
            ledger.write(Length::Long, move |_| {
                order.lock().unwrap().push(number);
                if number == 0 {
                    wait.lock().unwrap().recv().unwrap();
                }
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(25) {
                    std::hint::spin_loop();
                }
                Ok(())
            })
        };
        let few = async {
            // All long ones wait in the channel, and the first is under way.
            while order.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let order = Arc::clone(&order);
            let few = ledger.write(Length::Short, move |_| {
                order.lock().unwrap().push(100);
                Ok(())
            });
            let release = async { go.send(()).unwrap() };
            tokio::join!(biased; few, release).0
        };
        let (all, few) = tokio::join!(biased; join_all((0..5).map(long)), few);
        assert!(all.iter().all(Result::is_ok) && few.is_ok());
        assert_eq!(*order.lock().unwrap(), [0, 100, 1, 2, 3, 4]);
        ledger.close().await;
    }

    #[tokio::test]
    async fn looks_at_many_rows_leave_connections_to_others() {
        let (_directory, ledger) = migrated().await;
        let ledger = Arc::new(ledger);
        let mut held = Vec::new();
        for _ in 0..8 {
            let (go, wait) = mpsc::channel::<()>();
            let look = Arc::clone(&ledger);
            held.push(go);
            // A caller that leaves does not end the look.
            let look = tokio::spawn(async move {
                look.read(Length::Long, move |_| {
                    let _ = wait.recv();
                    Ok(())
                })
                .await
            });
            tokio::task::yield_now().await;
            look.abort();
        }
        let few = tokio::time::timeout(
            Duration::from_secs(60),
            ledger.read(Length::Short, |_| Ok(())),
        );
        few.await.expect("a connection is free").unwrap();
        drop(held);
        ledger.close().await;
    }

    #[tokio::test]
    async fn a_write_that_panics_ends_alone() {
        let (_directory, ledger) = migrated().await;
        let panics = |_: &mut dyn Store| -> Result<(), LedgerError> { panic!("as a defect would") };
        let ended = ledger.write(Length::Short, panics).await.unwrap_err();
        assert!(ended.is_transient(), "{ended}");
        ledger.check_writable().await.unwrap();
        ledger.close().await;
    }

    fn data_version(other: &rusqlite::Connection) -> i64 {
        let version = other.pragma_query_value(None, "data_version", |row| row.get(0));
        version.unwrap()
    }

    #[tokio::test]
    async fn a_check_for_space_writes_and_another_check_does_not() {
        let (directory, ledger) = migrated().await;
        let other = rusqlite::Connection::open(directory.path().join("lapsed.db")).unwrap();
        ledger.check().await.unwrap();
        let before = data_version(&other);
        ledger.check().await.unwrap();
        assert_eq!(data_version(&other), before);
        ledger.check_writable().await.unwrap();
        assert_ne!(data_version(&other), before);
        ledger.close().await;
    }

    #[tokio::test]
    async fn after_it_was_closed_a_file_is_alone() {
        let (directory, ledger) = migrated().await;
        let names = || {
            let files = std::fs::read_dir(directory.path()).unwrap();
            let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for _ in 0..2 {
            ledger.check_writable().await.unwrap();
            ledger.read(Length::Short, |_| Ok(())).await.unwrap();
            assert_eq!(names(), ["lapsed.db", "lapsed.db-shm", "lapsed.db-wal"]);
            ledger.close().await;
            assert_eq!(names(), ["lapsed.db"]);
        }
    }

    #[tokio::test]
    async fn a_reader_sees_the_file_that_is_there() {
        let (directory, ledger) = migrated().await;
        let (other_directory, other) = migrated().await;
        let path = directory.path().join("lapsed.db");
        rusqlite::Connection::open(other_directory.path().join("lapsed.db"))
            .unwrap()
            .pragma_update(None, "user_version", 7)
            .unwrap();
        other.close().await;
        let user_version = async || {
            let read = ledger.readers.read(Length::Short, |store| {
                store.run(|session| {
                    let mut version = session.prepare("PRAGMA user_version")?;
                    version.query_row([], |row| row.get::<_, i64>(0))
                })
            });
            read.await.unwrap()
        };
        assert_eq!(user_version().await, 0);
        std::fs::rename(other_directory.path().join("lapsed.db"), path).unwrap();
        assert_eq!(user_version().await, 7);
        ledger.close().await;
    }
}
