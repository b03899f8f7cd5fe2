//! The file of a ledger: opens connections, and notices when the file is replaced.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::{BUSY_TIMEOUT, error, read_only, refused};
use super::schema;
use lapsed_core::ledger::LedgerError;
use lapsed_core::task::TableName;

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
    /// Without symbolic links: SQLite resolves them, and so its other files are beside the file itself.
    pub path: PathBuf,
    pub table: TableName,
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Device and inode of a file; `None` if there is none.
pub(super) type Inode = Option<(u64, u64)>;

/// Maximum number of symbolic links that lead to a file, as in the kernel.
const LINKS_MAX: usize = 40;

/// The files that a path names at some time: the database, its write-ahead log, and the index of the log, which all
/// connections share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub database: Inode,
    log: Inode,
    index: Inode,
}

impl FileIdentity {
    /// True if every file is there.
    pub fn is_whole(&self) -> bool {
        self.database.is_some() && self.log.is_some() && self.index.is_some()
    }

    /// The error of a connection that opened these files, if it has lost commits because `now` are the present ones.
    pub fn loss(&self, now: &Self, file: &DatabaseFile) -> LedgerError {
        if self.database != now.database {
            return file.replaced();
        }
        refused(format!(
            "the write-ahead log of `{}` was deleted while it was open, and another program has begun a new one: \
             what was committed last, and was in the deleted log alone, is lost",
            file.path.display()
        ))
    }

    /// True if the log or its index of a connection that opened these files was deleted, and `now` are the present ones.
    /// False if another process has an index of its own already: it does not know of the commits of this connection.
    pub fn has_lost_log(&self, now: &Self) -> bool {
        self.database == now.database && (now.index.is_none() || now.index == self.index)
    }
}

impl DatabaseFile {
    /// The file that `path` leads to. It need not exist yet.
    pub fn new(path: PathBuf, table: TableName) -> Self {
        Self {
            path: resolve(path),
            table,
        }
    }

    /// Refuses a file that has several names: SQLite would keep a log beside each of them, and what is in one log is
    /// unknown to the programs that use the other.
    pub fn refuse_links(&self) -> Result<(), LedgerError> {
        let names = fs::metadata(&self.path).map_or(1, |file| file.nlink());
        if names > 1 {
            return Err(refused(format!(
                "`{}` has {names} names (hard links), expected one: SQLite keeps a log for each name",
                self.path.display()
            )));
        }
        Ok(())
    }

    /// Opens a connection to a ledger that has been migrated. Never creates the file.
    pub fn open(&self, access: Access) -> Result<Connection, LedgerError> {
        let connection = self.open_any(access)?;
        schema::check(&connection, &self.table)
            .map_err(|source| self.error(source))?
            .map_err(|problem| refused(problem.describe(&self.path, &self.table)))?;
        // SQLite opens a file that it may not write all the same, and begins transactions on it.
        let is_readonly = connection.is_readonly("main");
        if access == Access::Write && is_readonly.map_err(|source| self.error(source))? {
            return Err(refused(read_only(&self.path)));
        }
        Ok(connection)
    }

    /// As [`open`](Self::open), with the files that were opened.
    pub fn open_identified(
        &self,
        access: Access,
    ) -> Result<(Connection, FileIdentity), LedgerError> {
        // Before it is opened: a file that is replaced in between is noticed.
        let database = inode(&self.path);
        let connection = self.open(access)?;
        // These two were created by opening.
        let identity = FileIdentity {
            database,
            ..self.identity()
        };
        Ok((connection, identity))
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

    /// Returns the files that the path names now.
    pub fn identity(&self) -> FileIdentity {
        FileIdentity {
            database: inode(&self.path),
            log: inode(&self.beside("-wal")),
            index: inode(&self.beside("-shm")),
        }
    }

    /// True if the disk has less room than the log may take.
    pub fn is_disk_nearly_full(&self) -> bool {
        let room = rustix::fs::statfs(&self.path).map(|system| {
            let block = system.f_bsize.unsigned_abs();
            system.f_bavail.saturating_mul(block)
        });
        room.is_ok_and(|room| room < JOURNAL_BYTES_MAX.unsigned_abs())
    }

    /// Returns the path of a file beside the database.
    pub fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
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

/// Keeps a connection from copying its log to the database when it is closed, and from deleting the log by its name: another
/// program may have begun a new one.
pub(super) fn keep_from_copying(connection: &Connection) {
    let set = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    if let Err(error) = set {
        tracing::debug!(%error, "could not keep a connection from copying its log");
    }
}

/// Gives a file that root has created to the owner of another one: a daemon with a user of its own is to use it.
pub(super) fn give_to_owner_of(place: &Path, file: &File) {
    if rustix::process::geteuid().is_root()
        && let Ok(place) = fs::metadata(place)
    {
        // Where root may not, the daemon says that it cannot write the file.
        let _ = fchown(file, Some(place.uid()), Some(place.gid()));
    }
}

/// Returns the path without symbolic links, as far as it exists.
fn resolve(path: PathBuf) -> PathBuf {
    let mut path = path;
    for _ in 0..LINKS_MAX {
        let place = path.parent().unwrap_or(Path::new(""));
        // A link to a file that does not exist yet.
        match fs::read_link(&path) {
            Ok(target) => path = place.join(target),
            Err(_) => break,
        }
    }
    let place = path.parent().filter(|place| *place != Path::new(""));
    let place = fs::canonicalize(place.unwrap_or(Path::new(".")));
    match (place, path.file_name()) {
        (Ok(place), Some(name)) => place.join(name),
        // Opening it says what is wrong.
        _ => path,
    }
}

/// Returns the name of a network file system by its number, as `statfs(2)` lists them.
pub(super) fn network_name(number: u64) -> Option<&'static str> {
    Some(match number & 0xffff_ffff {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0102_1997 => "9P",
        0x00c3_6400 => "Ceph",
        0x5346_414f => "AFS",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        _ => return None,
    })
}

pub(super) fn inode(path: &Path) -> Inode {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
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

    fn file(path: PathBuf) -> DatabaseFile {
        DatabaseFile {
            path,
            table: TableName::new("t").unwrap(),
        }
    }

    #[test]
    fn a_network_file_system_is_named() {
        for (number, name) in [
            (0x6969, Some("NFS")),
            (0x517b, Some("SMB")),
            (0xff53_4d42, Some("CIFS")),
            (0xfe53_4d42, Some("SMB2")),
            (0x0102_1997, Some("9P")),
            (0x00c3_6400, Some("Ceph")),
            (0x5346_414f, Some("AFS")),
            (0x7461_636f, Some("OCFS2")),
            (0x0116_1970, Some("GFS2")),
            (0xef53, None), // ext4
            (0, None),
        ] {
            assert_eq!(network_name(number), name, "{number:x}");
        }
        // As the kernel of a machine with 32 bits reports it: with its sign.
        let signed = i64::from(0xff53_4d42_u32.cast_signed());
        assert_eq!(network_name(signed.cast_unsigned()), Some("CIFS"));
    }

    #[test]
    fn a_log_is_lost_if_the_connection_alone_has_what_was_in_it() {
        let [one, two] = [Some((1, 1)), Some((1, 2))];
        let identity = |database, log, index| FileIdentity {
            database,
            log,
            index,
        };
        let opened = identity(one, one, one);
        for (what, now, is_whole, is_lost) in [
            ("nothing has changed", opened, true, true),
            ("both deleted", identity(one, None, None), false, true),
            ("the log deleted", identity(one, None, one), false, true),
            ("the index deleted", identity(one, one, None), false, true),
            ("another index", identity(one, two, two), true, false),
            ("another database", identity(two, one, one), true, false),
            ("no database", identity(None, one, one), false, false),
            ("another, no index", identity(two, None, None), false, false),
        ] {
            assert_eq!(now.is_whole(), is_whole, "{what}");
            assert_eq!(opened.has_lost_log(&now), is_lost, "{what}");
        }
    }

    #[test]
    fn a_path_is_used_without_its_symbolic_links() {
        let directory = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(directory.path()).unwrap().join("real");
        fs::create_dir(&real).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::os::unix::fs::symlink("moved.db", real.join("lapsed.db")).unwrap();
        let table = TableName::new("t").unwrap();
        let file = DatabaseFile::new(link.join("lapsed.db"), table);
        assert_eq!(file.path, real.join("moved.db"));
        assert_eq!(file.directory(), real);
    }

    #[test]
    fn a_name_alone_is_in_the_present_directory() {
        assert_eq!(file("lapsed.db".into()).directory(), Path::new("."));
        assert_eq!(file("/lapsed.db".into()).directory(), Path::new("/"));
    }

    #[test]
    fn connections_have_the_settings_that_the_ledger_relies_on() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path().join("lapsed.db"));
        crate::migration::migrate(&file, false).unwrap();
        for (access, settings) in [
            (
                Access::Write,
                [
                    ("query_only", 0),
                    ("trusted_schema", 0),
                    ("temp_store", 2),
                    ("synchronous", 2),
                    ("cache_size", -16_384),
                    ("wal_autocheckpoint", 12_288),
                    ("journal_size_limit", 64 << 20),
                ]
                .as_slice(),
            ),
            (
                Access::Read,
                &[("query_only", 1), ("trusted_schema", 0), ("temp_store", 2)],
            ),
        ] {
            let connection = file.open(access).unwrap();
            for (pragma, expected) in settings {
                let value = connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
                assert_eq!(value, Ok(*expected), "{access:?}, {pragma}");
            }
            let cached = connection.pragma_query_value(None, "busy_timeout", |row| row.get(0));
            assert_eq!(cached, Ok(5_000_i64), "{access:?}");
        }
    }
}
