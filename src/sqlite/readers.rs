//! Connections that only read. Each sees what was committed when it began, and delays no writer.

use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::file::{Access, DatabaseFile, FileIdentity, keep_from_copying};
use super::queries::Queries;
use super::store::SqliteStore;
use lapsed_core::clock::LedgerClock;
use lapsed_core::ledger::LedgerError;
use lapsed_core::ledger::rows::Length;

/// Maximum number of connections, and of threads that read.
const CONNECTIONS_MAX: usize = 4;

/// Those of them that may look at many rows at the same time. The others are left to looks at few.
const LONG_MAX: usize = 2;

/// A pool of connections. Opens them when they are needed.
#[derive(Debug)]
pub(super) struct Readers {
    file: DatabaseFile,
    queries: Arc<Queries>,
    clock: LedgerClock,
    slots: Arc<Semaphore>,
    long: Arc<Semaphore>,
    idle: IdleReaders,
}

/// The connections that are not in use.
#[derive(Debug, Clone, Default)]
pub(super) struct IdleReaders(Arc<Mutex<Vec<Idle>>>);

impl IdleReaders {
    /// Closes them. `now` are the present files.
    pub fn close(&self, now: &FileIdentity) {
        for reader in std::mem::take(&mut *self.connections()) {
            reader.close(now);
        }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    identity: FileIdentity,
}

impl Idle {
    fn close(self, now: &FileIdentity) {
        if self.identity != *now {
            keep_from_copying(&self.connection);
        }
    }
}

impl Readers {
    pub fn new(file: DatabaseFile, queries: Arc<Queries>, clock: LedgerClock) -> Self {
        Self {
            file,
            queries,
            clock,
            slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            long: Arc::new(Semaphore::new(LONG_MAX)),
            idle: IdleReaders::default(),
        }
    }

    /// Runs `look` in a transaction that reads. Keep it short: while it runs, the write-ahead log grows.
    ///
    /// # Errors
    /// Those of `look` and of the connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read<T: Send + 'static>(
        &self,
        length: Length,
        look: impl FnOnce(&mut SqliteStore<'_>) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let turn = match length {
            Length::Short => None,
            Length::Long => Some(Arc::clone(&self.long).acquire_owned().await),
        };
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.expect("the semaphore is never closed");
        let (file, queries) = (self.file.clone(), Arc::clone(&self.queries));
        let (clock, idle) = (self.clock.clone(), self.idle.clone());
        let looked = spawn_blocking(move || {
            // The thread has it: the caller may leave before the end of the look.
            let _turn = turn;
            let identity = file.identity();
            let kept = idle.connections().pop();
            let mut reader = match kept {
                Some(reader) if reader.identity == identity => reader,
                kept => {
                    if let Some(outdated) = kept {
                        outdated.close(&identity);
                    }
                    let (connection, identity) = file.open_identified(Access::Read)?;
                    Idle {
                        connection,
                        identity,
                    }
                }
            };
            let connection = &mut reader.connection;
            let tx = connection.transaction_with_behavior(TransactionBehavior::Deferred);
            let tx = tx.map_err(|source| file.error(source))?;
            let found = look(&mut SqliteStore::new(&file, &tx, &queries, clock.now()))?;
            drop(tx);
            idle.connections().push(reader);
            drop(slot);
            Ok(found)
        });
        looked.await.unwrap_or_else(|panicked| {
            Err(LedgerError::Unavailable {
                message: format!("the thread that reads has ended: {panicked}"),
                source: None,
            })
        })
    }

    /// The connections that are not in use.
    pub fn idle(&self) -> &IdleReaders {
        &self.idle
    }
}
