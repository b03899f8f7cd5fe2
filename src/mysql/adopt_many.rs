//! Adoption of many new keys in one statement.
//!
//! Such a statement holds the rows that it has inserted while it waits for another row. A program that writes rows of the
//! same keys in a transaction could then block it and be blocked by it, and the server chooses which of them a deadlock
//! rolls back. So the statement runs only after a look has found no row and no session at work on one. If it fails, its
//! keys are written one by one, where nothing waits for more than one row.

use std::collections::HashMap;

use super::connection::{Conn, statement};
use super::decode::origin_number;
use super::error::error;
use super::{BATCH_MAX, MysqlLedger, queries};
use lapsed_core::ledger::{AdoptionRequest, LedgerError};
use lapsed_core::task::{Arming, TaskKey};

/// Fewer keys than this are written one by one.
const TOGETHER_LEAST: usize = 8;

impl MysqlLedger {
    /// Writes new keys, many in one statement. Returns those it has written; the caller writes the others one by one.
    pub(super) async fn adopt_together(
        &self,
        keys: &[AdoptionRequest],
    ) -> Result<HashMap<TaskKey, Arming>, LedgerError> {
        let mut new: Vec<&AdoptionRequest> =
            keys.iter().filter(|found| found.over.is_none()).collect();
        // Every writer of several keys writes them in this order.
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
            let fitting = conn
                .packet_max()
                .first(rest, BATCH_MAX, |found| of_request(found));
            // Powers of two, since each number of rows is a prepared statement of its own.
            let size = 1 << fitting.ilog2();
            let (batch, behind) = rest.split_at(size);
            rest = behind;
            if size < TOGETHER_LEAST {
                continue;
            }
            match self.insert_together(&mut conn, batch).await {
                Ok(()) => self.read_back(&mut conn, batch, &mut written).await?,
                Err(failure) if is_an_answer(&failure) => {}
                // The connection has broken. If these rows are the cause, each will say so by itself.
                Err(_) => return Ok(written),
            }
        }
        Ok(written)
    }

    /// Inserts all keys, or none if any of them fails.
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
            insert
                .bind(heard.0)
                .bind(found.due.0)
                .bind(found.origin().map(origin_number))
                .bind(found.payload.clone())
        });
        conn.execute(insert).await.map(drop)
    }

    /// Reads the rows that were written. Leaves out a row that is gone or moved already.
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

/// Length of the texts of a new row.
pub(super) fn of_request(found: &AdoptionRequest) -> usize {
    found.key.as_str().len() + found.payload.as_ref().map_or(0, String::len)
}

/// True if the server answered, so that each row may be written by itself or say what is wrong.
fn is_an_answer(failure: &sqlx::Error) -> bool {
    matches!(failure, sqlx::Error::RowNotFound) || failure.as_database_error().is_some()
}
