//! Rows for many new keys in one statement.
//!
//! Such a statement holds the rows that it has inserted while it waits for another one. A program that writes rows of
//! such keys in a transaction could then be in its way and it in the program's, and the server ends such a deadlock at
//! whose expense it likes. So it is sent only when a look has found no row and nobody at work on one, and whatever goes
//! wrong with it, its keys are written each by itself, where nothing waits for more than one row.

use std::collections::HashMap;

use super::connection::{Conn, statement};
use super::error::error;
use super::{BATCH_MAX, MysqlLedger, queries};
use crate::ledger::{AdoptionRequest, LedgerError};
use crate::task::{Arming, TaskKey};

/// Fewer are written each by itself.
const TOGETHER_LEAST: usize = 8;

impl MysqlLedger {
    /// Writes those that are new, many at a time. Answers what it has written: the others are to be written each by itself.
    pub(super) async fn adopt_together(
        &self,
        keys: &[AdoptionRequest],
    ) -> Result<HashMap<TaskKey, Arming>, LedgerError> {
        let mut new: Vec<&AdoptionRequest> =
            keys.iter().filter(|found| found.over.is_none()).collect();
        // All who write several write them in this order.
        new.sort_by(|one, other| one.key.as_str().cmp(other.key.as_str()));
        let mut written = HashMap::new();
        if new.len() < TOGETHER_LEAST {
            return Ok(written);
        }
        let mut conn = self.pools.acquire().await?;
        let names: Vec<&str> = new.iter().map(|found| found.key.as_str()).collect();
        let charset = self.charset_for(&mut conn, &names).await.map_err(error)?;
        new.retain(|found| charset.holds(found.key.as_str()));
        let mut rest = new.as_slice();
        while rest.len() >= TOGETHER_LEAST {
            // Powers of two: each number of rows is a statement of its own to the server.
            let size = 1 << rest.len().min(BATCH_MAX).ilog2();
            let (batch, behind) = rest.split_at(size);
            rest = behind;
            match self.insert_together(&mut conn, batch).await {
                Ok(()) => self.read_back(&mut conn, batch, &mut written).await?,
                Err(failure) if is_an_answer(&failure) => {}
                Err(failure) => return Err(error(failure)),
            }
        }
        Ok(written)
    }

    /// All of them or, on any error and where anything is in the way, none.
    async fn insert_together(
        &self,
        conn: &mut Conn,
        batch: &[&AdoptionRequest],
    ) -> sqlx::Result<()> {
        let keys: Vec<String> = batch.iter().map(|found| found.key.to_string()).collect();
        let look = statement(self.queries.with_keys(queries::ADOPT_LOOK, keys.len()));
        let look = keys.into_iter().fold(look, |look, key| look.bind(key));
        if !conn.fetch(look).await?.is_empty() {
            return Err(sqlx::Error::RowNotFound);
        }
        let insert = statement(self.queries.adopt_many(batch.len()));
        let insert = batch.iter().fold(insert, |insert, found| {
            let heard = found.heard.min(found.due);
            let insert = insert.bind(found.key.to_string());
            insert.bind(heard.0).bind(found.due.0)
        });
        conn.execute(insert).await.map(drop)
    }

    /// The rows that were written. One that is gone or moved already is left to whoever did that.
    async fn read_back(
        &self,
        conn: &mut Conn,
        batch: &[&AdoptionRequest],
        written: &mut HashMap<TaskKey, Arming>,
    ) -> Result<(), LedgerError> {
        let keys: Vec<&str> = batch.iter().map(|found| found.key.as_str()).collect();
        let lookups = self.look_up_rows(conn, &keys).await.map_err(error)?;
        for found in batch {
            let lookup = lookups.get(found.key.as_str());
            let arming = lookup.map(|row| row.lookup().arming);
            let arming = arming.filter(|arming| arming.due == found.due);
            written.extend(arming.map(|arming| (found.key.clone(), arming)));
        }
        Ok(())
    }
}

/// Whether the server answered: each row by itself may be written, or tells what is wrong.
fn is_an_answer(failure: &sqlx::Error) -> bool {
    matches!(failure, sqlx::Error::RowNotFound) || failure.as_database_error().is_some()
}
