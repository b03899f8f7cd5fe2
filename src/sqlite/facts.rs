//! Facts about a file and its file system, for the doctor.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rusqlite::InterruptHandle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::SqliteLedger;
use super::error::refused;
use super::file::{Access, DatabaseFile, network_name};
use lapsed_core::ledger::LedgerError;

/// What there is to know about the file of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFacts {
    /// Version of SQLite.
    pub version: &'static str,
    /// `journal_mode` of the file.
    pub journal_mode: String,
    /// `synchronous` of a connection that writes; 2 is `FULL`.
    pub synchronous: i64,
    /// Permission bits of the file.
    pub mode: u32,
    /// Permission bits of its directory.
    pub directory_mode: u32,
    /// Size of the database, in bytes.
    pub bytes: u64,
    /// Unused part of it, in bytes.
    pub bytes_unused: u64,
    /// Size of the write-ahead log, in bytes.
    pub wal_bytes: u64,
    /// Space on the file system for this user, in bytes.
    pub space_bytes: u64,
    /// The name of the network file system that holds the file, if it is one.
    pub network: Option<&'static str>,
}

impl SqliteLedger {
    /// Reads the facts. Checks the tables and their format, too, as every connection does.
    ///
    /// # Errors
    /// [`LedgerError`]: the file cannot be opened, or is not a ledger of this version.
    pub async fn facts(&self) -> Result<FileFacts, LedgerError> {
        let file = self.file.clone();
        let read = spawn_blocking(move || facts(&file)).await;
        read.expect("reading facts does not panic")
    }

    /// Checks the pages of the database, until it is dropped. `None`: they are sound. Otherwise the first problem.
    ///
    /// # Errors
    /// [`LedgerError`]: the file cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: the check ends.
    pub async fn quick_check(&self) -> Result<Option<String>, LedgerError> {
        let file = self.file.clone();
        let (handle, interrupt) = oneshot::channel();
        let checked = spawn_blocking(move || quick_check(&file, handle));
        let _stop = match interrupt.await {
            Ok(handle) => Some(StopOnDrop(handle)),
            // The file could not be opened, as the result says.
            Err(_) => None,
        };
        checked.await.expect("a check does not panic")
    }
}

/// Ends the statement of a connection when dropped.
struct StopOnDrop(InterruptHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

fn facts(file: &DatabaseFile) -> Result<FileFacts, LedgerError> {
    let connection = file.open(Access::Write)?;
    let number = |pragma: &str| {
        let value = connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        value.map_err(|source| file.error(source))
    };
    let unreadable = |error: std::io::Error| {
        refused(format!(
            "cannot read the state of `{}`: {error}",
            file.path.display()
        ))
    };
    let metadata = fs::metadata(&file.path).map_err(unreadable)?;
    let directory = fs::metadata(file.directory()).map_err(unreadable)?;
    let system = rustix::fs::statfs(&file.path).map_err(|error| unreadable(error.into()))?;
    let page = number("page_size")?.unsigned_abs();
    Ok(FileFacts {
        version: rusqlite::version(),
        journal_mode: connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .map_err(|source| file.error(source))?,
        synchronous: number("synchronous")?,
        mode: metadata.mode() & 0o777,
        directory_mode: directory.mode() & 0o777,
        bytes: number("page_count")?.unsigned_abs() * page,
        bytes_unused: number("freelist_count")?.unsigned_abs() * page,
        wal_bytes: fs::metadata(file.beside("-wal")).map_or(0, |wal| wal.len()),
        space_bytes: system
            .f_bavail
            .saturating_mul(system.f_bsize.unsigned_abs()),
        network: network_name(system.f_type.unsigned_abs()),
    })
}

fn quick_check(
    file: &DatabaseFile,
    handle: oneshot::Sender<InterruptHandle>,
) -> Result<Option<String>, LedgerError> {
    let connection = file.open(Access::Read)?;
    // The caller may have gone.
    let _ = handle.send(connection.get_interrupt_handle());
    let checked = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    let checked = checked.map_err(|source| file.error(source))?;
    Ok((checked != "ok").then_some(checked))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use lapsed_core::config::Config;
    use lapsed_core::ledger::Ledger;

    #[tokio::test]
    async fn facts_are_those_of_the_file_and_a_check_finds_a_page_that_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let mode = fs::Permissions::from_mode(0o750);
        fs::set_permissions(directory.path(), mode).unwrap();
        let path = directory.path().join("lapsed.db");
        let url = format!("sqlite://{}", path.display());
        let config = Config::from_toml(&format!("[ledger]\nurl = '{url}'")).unwrap();
        let ledger = SqliteLedger::new(&config.ledger).unwrap();
        ledger.migrate(false).await.unwrap();
        let other = rusqlite::Connection::open(&path).unwrap();
        other
            .execute_batch(
                "CREATE TABLE padding AS SELECT zeroblob(100000) AS page;
                 CREATE TABLE after (id INTEGER PRIMARY KEY, page BLOB);
                 DROP TABLE padding;
                 PRAGMA wal_checkpoint(TRUNCATE);",
            )
            .unwrap();

        let facts = ledger.facts().await.unwrap();
        let number = |pragma: &str| -> u64 {
            let value = other.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
            value.unwrap().unsigned_abs()
        };
        let page = number("page_size");
        let unused = number("freelist_count");
        assert!(unused > 20, "{unused}");
        assert_eq!((facts.mode, facts.directory_mode), (0o600, 0o750));
        assert_eq!(facts.bytes, fs::metadata(&path).unwrap().len());
        assert_eq!(facts.bytes_unused, unused * page);
        assert_eq!((facts.journal_mode.as_str(), facts.synchronous), ("wal", 2));

        assert_eq!(ledger.quick_check().await.unwrap(), None);
        let root: u64 = other
            .query_row(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'after'",
                [],
                |row| row.get::<_, i64>(0),
            )
            .unwrap()
            .unsigned_abs();
        drop(other);
        Ledger::close(&ledger).await;
        let mut bytes = fs::read(&path).unwrap();
        let from = usize::try_from((root - 1) * page).unwrap();
        bytes[from..from + 100].fill(0xff);
        fs::write(&path, bytes).unwrap();
        let problem = ledger.quick_check().await.unwrap().unwrap();
        assert!(problem.contains(&format!("page {root}")), "{problem}");
    }
}
