//! A transaction of a handler on the ledger's file.

use std::fmt;
use std::ops::Deref;

use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use lapsed_core::ledger::LedgerError;

/// Commits the transaction of a connection.
type Commit = Box<dyn FnOnce(&Connection) -> Result<(), LedgerError> + Send>;

/// A transaction on the ledger's file, for the statements of a handler. Rolled back if it is dropped.
///
/// It has a connection of its own, to which it dereferences. Statements run on the calling thread: keep them short, as
/// every other transaction on the file waits. Do not call the ledger in another way before its end, since that would wait
/// for itself: create tasks with [`create_in`](crate::SqliteLedger::create_in).
pub struct SqliteTransaction {
    connection: Connection,
    commit: Commit,
    _turn: OwnedMutexGuard<()>,
}

impl SqliteTransaction {
    pub(super) fn new(connection: Connection, commit: Commit, turn: OwnedMutexGuard<()>) -> Self {
        Self {
            connection,
            commit,
            _turn: turn,
        }
    }

    /// Commits the statements, without completing the task.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing is written then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the commit may or may not happen.
    pub async fn commit(self) -> Result<(), LedgerError> {
        blocking(move || self.end()).await
    }

    pub(super) fn end(self) -> Result<(), LedgerError> {
        (self.commit)(&self.connection)
    }
}

impl Deref for SqliteTransaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").finish_non_exhaustive()
    }
}

/// Runs `act` on a thread that may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    spawn_blocking(act).await.unwrap_or_else(|panicked| {
        Err(LedgerError::Unavailable {
            message: format!("the thread of a transaction has ended: {panicked}"),
            source: None,
        })
    })
}
