//! The file of a ledger: opens connections, and notices when the file is replaced.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::error::{BUSY_TIMEOUT, error, refused};
use super::schema;
use crate::ledger::LedgerError;
use crate::task::TableName;

/// The first version without the WAL-reset bug, which loses commits.
const VERSION_MIN: i32 = 3_051_003;

/// Maximum number of prepared statements of a connection.
const STATEMENTS: usize = 64;

/// Pages in the memory of a connection that writes, in KiB.
const WRITER_CACHE_KIB: i64 = 16_384;

/// The write-ahead log is cut to this size when it starts over.
const JOURNAL_BYTES_MAX: i64 = 64 << 20;

/// A commit copies the log to the database itself when the log has this many pages: the copying beside it is behind, or
/// nothing copies. See [`checkpoints`](super::checkpoints).
const JOURNAL_PAGES_MAX: i64 = 12_288;

/// A database file and the table in it.
#[derive(Debug, Clone)]
pub(super) struct DatabaseFile {
    pub path: PathBuf,
    pub table: TableName,
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity(u64, u64);

impl DatabaseFile {
    /// Opens a connection to a ledger that has been migrated. Never creates the file.
    pub fn open(&self, access: Access) -> Result<Connection, LedgerError> {
        let connection = self.open_any(access)?;
        schema::check(&connection, &self.table)
            .map_err(|source| self.error(source))?
            .map_err(|problem| refused(problem.describe(&self.path, &self.table)))?;
        Ok(connection)
    }

    /// Opens a connection to a database that may lack the table.
    pub fn open_any(&self, access: Access) -> Result<Connection, LedgerError> {
        check_version(rusqlite::version_number())?;
        if !self.path.exists() {
            return Err(refused(format!(
                "there is no file `{}`: run `lapsed migrate` to create it",
                self.path.display()
            )));
        }
        // No `SQLITE_OPEN_URI`: a path may begin with `file:`.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags);
        let connection = connection.map_err(|source| self.error(source))?;
        set_up(&connection, access).map_err(|source| self.error(source))?;
        if access == Access::Write {
            self.use_wal(&connection)?;
        }
        Ok(connection)
    }

    /// Makes sure that readers do not block the writer. The mode stays in the file.
    fn use_wal(&self, connection: &Connection) -> Result<(), LedgerError> {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode.map_err(|source| self.error(source))?.as_str() {
            "wal" => Ok(()),
            mode => Err(refused(format!(
                "`{}` has journal mode `{mode}`, expected `wal`, which needs a local file system",
                self.path.display()
            ))),
        }
    }

    /// Returns the identity of the file that the path names now; `None` if there is none.
    pub fn identity(&self) -> Option<FileIdentity> {
        let found = fs::metadata(&self.path).ok()?;
        Some(FileIdentity(found.dev(), found.ino()))
    }

    /// Returns the error for a file that is no longer the one that was opened. Commits to it would be lost.
    pub fn replaced(&self) -> LedgerError {
        refused(format!(
            "`{}` was deleted or replaced while it was open",
            self.path.display()
        ))
    }

    pub fn error(&self, source: rusqlite::Error) -> LedgerError {
        error(&self.path, source)
    }

    /// Returns the directory of the file.
    pub fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        }
    }
}

/// Refuses a version of SQLite that may lose commits.
fn check_version(version: i32) -> Result<(), LedgerError> {
    if version < VERSION_MIN {
        return Err(refused(format!(
            "SQLite {} may lose commits, expected 3.51.3 or later",
            rusqlite::version()
        )));
    }
    Ok(())
}

fn set_up(connection: &Connection, access: Access) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    match access {
        Access::Read => connection.pragma_update(None, "query_only", true),
        Access::Write => {
            // What is answered survives a power failure.
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
            connection.pragma_update(None, "wal_autocheckpoint", JOURNAL_PAGES_MAX)?;
            connection.pragma_update(None, "journal_size_limit", JOURNAL_BYTES_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_wal_reset_bug_are_refused() {
        assert!(check_version(3_051_002).is_err());
        check_version(3_051_003).unwrap();
        check_version(rusqlite::version_number()).unwrap();
    }
}
