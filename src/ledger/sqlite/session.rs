//! A connection inside a transaction, with the statements of its table.

use rusqlite::{CachedStatement, Connection};

use super::queries::Queries;
use crate::task::UnixMs;

/// What a verb of the ledger acts on.
pub(super) struct Session<'a> {
    pub connection: &'a Connection,
    pub queries: &'a Queries,
    /// The ledger's time, for all that the verb decides.
    pub now: UnixMs,
}

impl<'a> Session<'a> {
    /// Returns a prepared statement. A verb prepares it once and runs it for each row.
    pub fn prepare(&self, text: &str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(text)
    }
}

/// Returns an id as SQLite stores it.
pub(super) fn id(row: u64) -> i64 {
    i64::try_from(row).unwrap_or(i64::MAX)
}
