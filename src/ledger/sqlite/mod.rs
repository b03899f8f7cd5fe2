//! The ledger in an SQLite file: durable on one machine, without a server.
//!
//! What a row may become is decided by `ledger::row`, as in the ledger in memory: a verb reads a row, applies the
//! rule, and writes the row, inside one transaction of the one writer. Other processes may read and write the
//! file; their transactions and those of the writer never run at the same time.

mod admin;
mod adoption;
mod backup;
mod cancel;
mod change;
mod checkpoints;
mod claims;
mod detailed_stats;
mod documents;
mod error;
mod facts;
mod file;
mod job;
mod lock;
mod migration;
mod pauses;
mod producer;
mod queries;
mod readers;
mod retention;
mod rows;
mod scans;
mod schema;
mod search;
mod session;
mod transactions;
mod transfer;
mod walk;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
#[cfg(feature = "doctor")]
pub(crate) use self::schema::NEWER;
use self::session::Session;
use self::writer::Writer;
use super::{FileTransactions, Ledger, LedgerError, Reservation};
use crate::clock::LedgerClock;
use crate::config::{ConfigError, LedgerConfig};
use crate::task::{TableName, UnixMs};

/// Rows that are changed in one transaction where a call may be divided, of 64 KiB each. Other callers wait meanwhile.
const ROWS_MAX: usize = 128;

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
    /// Number of changes that make tasks due without telling the timer.
    untold: AtomicU64,
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
            untold: AtomicU64::new(0),
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

    /// Runs `verb` in a transaction. Returns after the commit.
    async fn write<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.writer.write(verb).await
    }

    /// As [`write`](Self::write), of a verb about many rows.
    async fn write_long<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.writer.write_long(verb).await
    }

    /// As [`write`](Self::write), of a verb that makes tasks due and whose callers do not tell the timer.
    async fn write_untold<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.untold(self.writer.write(verb).await)
    }

    /// Notes that tasks may be due whose callers do not tell the timer.
    fn untold<T>(&self, written: T) -> T {
        self.untold.fetch_add(1, Ordering::Relaxed);
        written
    }

    /// Runs `look` on a connection that only reads.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.readers.read(look).await
    }

    /// As [`read`](Self::read), of a look at many rows.
    async fn read_long<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.readers.read_long(look).await
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
        self.write(|_| Ok(())).await?;
        self.read(|_| Ok(())).await
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        self.write(|session| {
            // Space is needed at the commit. A page that is changed and changed back is written then.
            for statement in [&session.queries.insert_probe, &session.queries.delete_probe] {
                session.prepare(statement)?.execute([])?;
            }
            Ok(())
        })
        .await
    }

    async fn reserve(&self) -> Result<Option<Reservation>, LedgerError> {
        Ok(Some(Box::new(DaemonLock::take(&self.file)?)))
    }

    fn file_transactions(&self) -> Option<&dyn FileTransactions> {
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
    use crate::Config;

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
            ledger.write_long(move |_| {
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
            let few = ledger.write(move |_| {
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
                look.read_long(move |_| {
                    let _ = wait.recv();
                    Ok(())
                })
                .await
            });
            tokio::task::yield_now().await;
            look.abort();
        }
        let few = tokio::time::timeout(Duration::from_secs(60), ledger.read(|_| Ok(())));
        few.await.expect("a connection is free").unwrap();
        drop(held);
        ledger.close().await;
    }

    #[tokio::test]
    async fn a_write_that_panics_ends_alone() {
        let (_directory, ledger) = migrated().await;
        let panics = |_: &Session<'_>| -> rusqlite::Result<()> { panic!("as a defect would") };
        let ended = ledger.write(panics).await.unwrap_err();
        assert!(ended.is_transient(), "{ended}");
        ledger.check_writable().await.unwrap();
        ledger.close().await;
    }
}
