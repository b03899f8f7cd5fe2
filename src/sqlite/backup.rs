//! Backups: a copy of the database as of one moment, while it is used.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::error::refused;
use super::file::{Access, DatabaseFile};
use super::schema;
use lapsed_core::ledger::LedgerError;

/// A backup that was written and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Its size in bytes.
    pub bytes: u64,
    /// Number of rows in the table of tasks.
    pub rows: u64,
}

/// Writes a backup to `to`, which must not exist. The name appears when the backup is complete, verified and on the disk.
pub(super) fn back_up(file: &DatabaseFile, to: &Path) -> Result<Backup, LedgerError> {
    let cannot = |error: &Error| refused(format!("cannot write `{}`: {error}", to.display()));
    if to.symlink_metadata().is_ok() {
        let path = to.display();
        return Err(refused(format!(
            "`{path}` exists already: no backup replaces a file"
        )));
    }
    let part = Part::create(to).map_err(|error| cannot(&error))?;
    // An older version may have written it: a backup comes before the migration.
    let source = file.open_any(Access::Read)?;
    if let Err(problem) =
        schema::check_format(&source, &file.table).map_err(|source| file.error(source))?
    {
        return Err(refused(problem.describe(&file.path, &file.table)));
    }
    // `VACUUM INTO` reads this database, and counts as a statement that writes.
    source
        .pragma_update(None, "query_only", false)
        .map_err(|error| file.error(error))?;
    let text = part.path.to_str().ok_or_else(|| {
        refused(format!(
            "`{}` is not UTF-8, which SQLite expects",
            to.display()
        ))
    })?;
    source
        .execute("VACUUM INTO ?1", [text])
        .map_err(|error| file.error(error))?;
    let rows = verify(file, &part.path)?;
    let written = File::open(&part.path).and_then(|copy| {
        copy.sync_all()?;
        copy.metadata()
    });
    let bytes = written.map_err(|error| cannot(&error))?.len();
    // Unlike a rename, a link does not replace a file that was created meanwhile.
    fs::hard_link(&part.path, to).map_err(|error| cannot(&error))?;
    drop(part);
    let directory = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| cannot(&error))?;
    Ok(Backup { bytes, rows })
}

/// Checks that the copy is sound and has the table. Returns its number of rows.
fn verify(file: &DatabaseFile, copy: &Path) -> Result<u64, LedgerError> {
    let failed = |error: rusqlite::Error| {
        refused(format!(
            "the backup of `{}` is not sound: {error}",
            file.path.display()
        ))
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(copy, flags).map_err(failed)?;
    let checked = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    let checked = checked.map_err(failed)?;
    if checked != "ok" {
        return Err(refused(format!(
            "the backup of `{}` is not sound: {checked}",
            file.path.display()
        )));
    }
    if let Err(problem) = schema::check_format(&copy, &file.table).map_err(failed)? {
        return Err(refused(problem.describe(&file.path, &file.table)));
    }
    let count = format!("SELECT COUNT(*) FROM \"{}\"", file.table);
    let count: i64 = copy
        .query_row(&count, [], |row| row.get(0))
        .map_err(failed)?;
    Ok(count.cast_unsigned())
}

/// The file that a backup is written to. Deleted when dropped.
struct Part {
    path: PathBuf,
}

impl Part {
    /// Creates the file, readable by its owner only.
    fn create(to: &Path) -> Result<Self, Error> {
        let mut name = to.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".part-{:08x}", rand::random::<u32>()));
        let path = to.with_file_name(name);
        // `VACUUM INTO` takes a name that begins with `file:` as a URI.
        let path = match path.is_absolute() {
            true => path,
            false => Path::new(".").join(path),
        };
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Nothing depends on its absence.
        let _ = fs::remove_file(&self.path);
    }
}
