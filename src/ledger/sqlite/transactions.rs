//! Transactions of handlers and producers on the ledger's file.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;

use super::file::{Access, DatabaseFile};
use super::rows::{one, save};
use super::session::{Session, id};
use super::{SqliteLedger, cancel, producer};
use crate::ledger::file_transactions::blocking;
use crate::ledger::{
    CancelAnswer, Created, Ending, FileTransactions, Lease, LedgerError, NewTask, SqliteTransaction,
};
use crate::task::{Outcome, TaskKey};

/// Begins a transaction. Its commit is an error if the file has been replaced meanwhile.
fn begin(file: DatabaseFile, turn: OwnedMutexGuard<()>) -> Result<SqliteTransaction, LedgerError> {
    let (connection, identity) = file.open_identified(Access::Write)?;
    connection
        .execute_batch("BEGIN IMMEDIATE")
        .map_err(|source| file.error(source))?;
    let commit = move |connection: &Connection| {
        let committed = connection.execute_batch("COMMIT");
        committed.map_err(|source| file.error(source))?;
        // The writer sees to a log that was deleted.
        match file.identity().database == identity.database {
            true => Ok(()),
            false => Err(file.replaced()),
        }
    };
    Ok(SqliteTransaction::new(connection, Box::new(commit), turn))
}

#[async_trait]
impl FileTransactions for SqliteLedger {
    async fn begin(&self) -> Result<SqliteTransaction, LedgerError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let file = self.file.clone();
        blocking(move || begin(file, turn)).await
    }

    async fn settle_in(
        &self,
        tx: SqliteTransaction,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
    ) -> Result<Option<Outcome>, LedgerError> {
        let (queries, clock) = (Arc::clone(&self.queries), self.clock.clone());
        let file = self.file.clone();
        blocking(move || {
            let session = Session {
                connection: &tx,
                queries: &queries,
                now: clock.now(),
            };
            let settled = settle(&session, lease, ending, result);
            match settled.map_err(|source| file.error(source))? {
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
