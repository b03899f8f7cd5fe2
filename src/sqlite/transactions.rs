//! Transactions of handlers and producers on the ledger's file.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;

use super::SqliteLedger;
use super::file::{Access, DatabaseFile};
use super::store::SqliteStore;
use super::transaction::{SqliteTransaction, blocking};
use lapsed_core::ledger::rows;
use lapsed_core::ledger::{CancelAnswer, Created, Ending, Lease, LedgerError, NewTask};
use lapsed_core::task::{Outcome, TaskKey};

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

impl SqliteLedger {
    /// Begins a transaction that writes. Every other transaction that writes waits for its end, in order of arrival.
    ///
    /// # Errors
    /// [`LedgerError`]: another process keeps the file locked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn begin(&self) -> Result<SqliteTransaction, LedgerError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let file = self.file.clone();
        blocking(move || begin(file, turn)).await
    }

    /// Settles a run as the last statement of `tx`, and commits. `None`: the claim is lost, and all is rolled back.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing is written.
    pub async fn settle_in(
        &self,
        tx: SqliteTransaction,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
    ) -> Result<Option<Outcome>, LedgerError> {
        let (queries, clock) = (Arc::clone(&self.queries), self.clock.clone());
        let file = self.file.clone();
        blocking(move || {
            let mut store = SqliteStore::new(&file, &tx, &queries, clock.now());
            let settled = rows::settle_in(&mut store, lease, ending, result)?;
            drop(store);
            match settled {
                None => Ok(None),
                Some(outcome) => tx.end().map(|()| Some(outcome)),
            }
        })
        .await
    }

    /// Creates tasks in the caller's own transaction: they exist if and only if it commits.
    ///
    /// # Errors
    /// [`LedgerError`]; the transaction can then only be rolled back.
    pub fn create_in(
        &self,
        tx: &Connection,
        tasks: &[NewTask],
    ) -> Result<Vec<Created>, LedgerError> {
        self.in_transaction(tx, |store| rows::create(store, tasks))
    }

    /// Cancels a task in the caller's own transaction: it is cancelled if and only if that commits.
    ///
    /// # Errors
    /// [`LedgerError`]; the transaction can then only be rolled back.
    pub fn cancel_in(&self, tx: &Connection, key: &TaskKey) -> Result<CancelAnswer, LedgerError> {
        let keys = [key.clone()];
        let answers = self.in_transaction(tx, |store| rows::cancel(store, &keys))?;
        Ok(answers[0])
    }

    fn in_transaction<T>(
        &self,
        tx: &Connection,
        verb: impl FnOnce(&mut SqliteStore<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        if tx.is_autocommit() {
            return Err(LedgerError::Invalid(
                "the connection is in no transaction, expected one that began with `BEGIN IMMEDIATE`"
                    .to_owned(),
            ));
        }
        let now = self.clock.now();
        verb(&mut SqliteStore::new(&self.file, tx, &self.queries, now))
    }
}
