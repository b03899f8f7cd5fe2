//! Transactions of handlers and producers on the ledger's file.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use super::file::{Access, DatabaseFile, FileIdentity};
use super::rows::{one, save};
use super::session::{Session, id};
use super::{SqliteLedger, cancel, producer};
use crate::ledger::{CancelAnswer, Created, Ending, FileTransactions, Lease, LedgerError, NewTask};
use crate::task::{Outcome, TaskKey};

/// A transaction on the ledger's file, for the statements of a handler. Rolled back if it is dropped.
///
/// It has a connection of its own, to which it dereferences. Statements run on the calling thread: keep them short, as
/// every other transaction on the file waits. Do not call the ledger in another way before its end, since that would wait
/// for itself: create tasks with [`create_in`](crate::SqliteTaskClient::create_in).
#[derive(Debug)]
pub struct SqliteTransaction {
    connection: Connection,
    file: DatabaseFile,
    identity: Option<FileIdentity>,
    _turn: OwnedMutexGuard<()>,
}

impl SqliteTransaction {
    fn begin(file: DatabaseFile, turn: OwnedMutexGuard<()>) -> Result<Self, LedgerError> {
        let identity = file.identity();
        let connection = file.open(Access::Write)?;
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(|source| file.error(source))?;
        Ok(Self {
            connection,
            file,
            identity,
            _turn: turn,
        })
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

    fn end(self) -> Result<(), LedgerError> {
        let committed = self.connection.execute_batch("COMMIT");
        committed.map_err(|source| self.file.error(source))?;
        match self.file.identity() == self.identity {
            true => Ok(()),
            false => Err(self.file.replaced()),
        }
    }
}

impl Deref for SqliteTransaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

#[async_trait]
impl FileTransactions for SqliteLedger {
    async fn begin(&self) -> Result<SqliteTransaction, LedgerError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let file = self.file.clone();
        blocking(move || SqliteTransaction::begin(file, turn)).await
    }

    async fn settle_in(
        &self,
        tx: SqliteTransaction,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
    ) -> Result<Option<Outcome>, LedgerError> {
        let (queries, clock) = (Arc::clone(&self.queries), self.clock.clone());
        blocking(move || {
            let session = Session {
                connection: &tx,
                queries: &queries,
                now: clock.now(),
            };
            let settled = settle(&session, lease, ending, result);
            match settled.map_err(|source| tx.file.error(source))? {
                None => Ok(None),
                Some(outcome) => tx.end().map(|()| Some(outcome)),
            }
        })
        .await
    }
}

fn settle(
    session: &Session<'_>,
    lease: Lease,
    ending: Ending,
    result: Option<String>,
) -> rusqlite::Result<Option<Outcome>> {
    let mut find = session.prepare(&session.queries.row_by_id)?;
    let Some(mut stored) = one(&mut find, [id(lease.arming.row)])? else {
        return Ok(None);
    };
    let outcome = stored.row.settle_in(lease, ending, result, session.now);
    if outcome.is_some() {
        save(&mut *session.prepare(&session.queries.save)?, &stored.row)?;
    }
    Ok(outcome)
}

impl SqliteLedger {
    /// Creates tasks in the caller's own transaction: they exist if and only if it commits.
    ///
    /// # Errors
    /// [`LedgerError`]; the transaction can then only be rolled back.
    pub fn create_in(
        &self,
        tx: &Connection,
        tasks: &[NewTask],
    ) -> Result<Vec<Created>, LedgerError> {
        self.in_transaction(tx, |session| producer::create(session, tasks))
    }

    /// Cancels a task in the caller's own transaction: it is cancelled if and only if that commits.
    ///
    /// # Errors
    /// [`LedgerError`]; the transaction can then only be rolled back.
    pub fn cancel_in(&self, tx: &Connection, key: &TaskKey) -> Result<CancelAnswer, LedgerError> {
        let keys = [key.clone()];
        let answers = self.in_transaction(tx, |session| cancel::cancel(session, &keys))?;
        Ok(answers[0])
    }

    fn in_transaction<T>(
        &self,
        tx: &Connection,
        verb: impl FnOnce(&Session<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, LedgerError> {
        if tx.is_autocommit() {
            return Err(LedgerError::Invalid(
                "the connection is in no transaction, expected one that began with `BEGIN IMMEDIATE`"
                    .to_owned(),
            ));
        }
        let session = Session {
            connection: tx,
            queries: &self.queries,
            now: self.clock.now(),
        };
        verb(&session).map_err(|source| self.file.error(source))
    }
}

/// Runs `act` on a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    spawn_blocking(act).await.unwrap_or_else(|panicked| {
        Err(LedgerError::Unavailable {
            message: format!("the thread of a transaction has ended: {panicked}"),
            source: None,
        })
    })
}
