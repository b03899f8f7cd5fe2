//! Creates the file and the tables, and adds what an earlier version did not have.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;

use rusqlite::{Connection, TransactionBehavior};

use super::error::refused;
use super::file::{Access, DatabaseFile, give_to_owner_of};
use super::schema::{Problem, check_format, format, missing, statements};
use lapsed_core::ledger::LedgerError;
use lapsed_core::task::TableName;

/// `LAPS`, in the header of a file that has no tables but these. An application's own file keeps its header.
const APPLICATION_ID: i64 = 0x4c41_5053;

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The statements that were run, or would be. Empty if the tables are up to date.
    pub statements: Vec<String>,
}

/// Creates the file and the tables, if they are missing. Readable by their owner only.
pub(super) fn migrate(file: &DatabaseFile, dry_run: bool) -> Result<Migrated, LedgerError> {
    if dry_run && !file.path.exists() {
        check_directory(file)?;
        return Ok(Migrated {
            statements: statements(&file.table),
        });
    }
    if !dry_run {
        create_file(file)?;
        file.refuse_links()?;
    }
    let access = match dry_run {
        true => Access::Read,
        false => Access::Write,
    };
    let mut connection = file.open_any(access)?;
    match check_format(&connection, &file.table).map_err(|source| file.error(source))? {
        Ok(()) | Err(Problem::NoTable) => {}
        Err(problem) => return Err(refused(problem.describe(&file.path, &file.table))),
    }
    let migrated = match dry_run {
        true => missing(&connection, &file.table),
        false => create_tables(&mut connection, &file.table),
    };
    Ok(Migrated {
        statements: migrated.map_err(|source| file.error(source))?,
    })
}

/// Creates what is missing. Returns the statements that it ran.
fn create_tables(connection: &mut Connection, table: &TableName) -> rusqlite::Result<Vec<String>> {
    if missing(connection, table)?.is_empty() {
        return Ok(Vec::new());
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have created them meanwhile.
    let statements = missing(&tx, table)?;
    if format(&tx, table)?.is_none() {
        let tables: i64 =
            tx.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables == 0 {
            tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
    }
    for statement in &statements {
        tx.execute(statement, [])?;
    }
    tx.commit()?;
    Ok(statements)
}

fn create_file(file: &DatabaseFile) -> Result<(), LedgerError> {
    let mut options = OpenOptions::new();
    // SQLite gives its other files the mode of this one.
    let created = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&file.path);
    match created {
        Ok(created) => {
            give_to_owner_of(file.directory(), &created);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            check_directory(file)?;
            let path = file.path.display();
            Err(refused(format!("cannot create `{path}`: {error}")))
        }
    }
}

fn check_directory(file: &DatabaseFile) -> Result<(), LedgerError> {
    let directory = file.directory();
    if directory.is_dir() {
        return Ok(());
    }
    Err(refused(format!(
        "there is no directory `{}`: create it, writable for the user of the daemon",
        directory.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_without_other_tables_is_marked_as_one_of_lapsed() {
        let directory = tempfile::tempdir().unwrap();
        for (name, before, expected) in [
            ("own.db", "", APPLICATION_ID),
            ("shop.db", "CREATE TABLE orders (id INTEGER)", 0),
        ] {
            let file = DatabaseFile {
                path: directory.path().join(name),
                table: TableName::new("t").unwrap(),
            };
            let connection = Connection::open(&file.path).unwrap();
            connection.execute_batch(before).unwrap();
            migrate(&file, false).unwrap();
            let id = connection.pragma_query_value(None, "application_id", |row| row.get(0));
            assert_eq!(id, Ok(expected), "{name}");
        }
    }
}
