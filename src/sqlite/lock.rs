//! The lock of a file: one daemon at a time.
//!
//! It is a lock of the kernel on a file beside the database, so it ends with the process, however that ends. It does not
//! concern other programs, which read and write the database as they like.
//!
//! The file beside it may be deleted, and another database may be put in the place of this one, so on Linux the database
//! itself is locked, too. The kernel keeps such locks (`flock`) apart from those of SQLite (`fcntl`); elsewhere, and on
//! network file systems, it may not.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::error::refused;
use super::file::{DatabaseFile, give_to_owner_of, inode, network_name};
use lapsed_core::ledger::LedgerError;

/// A held lock. Released when dropped, and when the process ends.
#[derive(Debug)]
pub(super) struct DaemonLock {
    _file: File,
    _database: Option<DatabaseLock>,
}

impl DaemonLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if another daemon holds it, or the file cannot be written.
    pub fn take(database: &DatabaseFile) -> Result<Self, LedgerError> {
        // It stays when the lock is released.
        let path = database.beside("-daemon");
        let unusable =
            |error: std::io::Error| refused(format!("cannot lock `{}`: {error}", path.display()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let mut file = options.open(&path).map_err(unusable)?;
        give_to_owner_of(&database.path, &file);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(database, &mut file)),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let locked = match DatabaseLock::take(database) {
            Ok(locked) => locked,
            Err(TryLockError::WouldBlock) => return Err(held(database, &mut file)),
            Err(TryLockError::Error(error)) => {
                let path = database.path.display();
                return Err(refused(format!("cannot lock `{path}`: {error}")));
            }
        };
        let note = format!("{}\n", std::process::id());
        let noted = file.set_len(0).and_then(|()| file.rewind());
        noted
            .and_then(|()| file.write_all(note.as_bytes()))
            .map_err(unusable)?;
        Ok(Self {
            _file: file,
            _database: locked,
        })
    }
}

/// The error for a database whose lock another daemon holds. `file` has its process id, unless it was deleted.
fn held(database: &DatabaseFile, file: &mut File) -> LedgerError {
    let mut holder = String::new();
    // Only for the message.
    let _ = file.take(32).read_to_string(&mut holder);
    let process = match holder.trim() {
        "" => String::new(),
        id => format!(" (process {id})"),
    };
    refused(format!(
        "a daemon runs on `{}` already{process}: one file has one daemon; several share a ledger in MySQL",
        database.path.display()
    ))
}

/// The databases that this process has locked, and may lock again. They are never closed: closing any descriptor of a
/// database ends the locks that SQLite holds on it in this process.
static DATABASES: Mutex<BTreeMap<(u64, u64), Database>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Database {
    file: File,
    is_locked: bool,
}

/// A lock on the database itself.
#[derive(Debug)]
struct DatabaseLock {
    inode: (u64, u64),
}

impl DatabaseLock {
    /// Takes the lock. `None` where it cannot be taken beside those of SQLite, and if there is no database.
    fn take(database: &DatabaseFile) -> Result<Option<Self>, TryLockError> {
        let Some(inode) = inode(&database.path).filter(|_| may_lock(&database.path)) else {
            return Ok(None);
        };
        let mut databases = databases();
        let known = match databases.entry(inode) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let file = File::open(&database.path).map_err(TryLockError::Error)?;
                // Another one than that of `inode` if it was replaced in between: then the lock beside it is enough.
                place.insert(Database {
                    file,
                    is_locked: false,
                })
            }
        };
        if known.is_locked {
            return Err(TryLockError::WouldBlock);
        }
        known.file.try_lock()?;
        known.is_locked = true;
        Ok(Some(Self { inode }))
    }
}

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        if let Some(database) = databases().get_mut(&self.inode) {
            // It ends with the process at the latest.
            let _ = database.file.unlock();
            database.is_locked = false;
        }
    }
}

fn databases() -> MutexGuard<'static, BTreeMap<(u64, u64), Database>> {
    DATABASES.lock().expect("nothing panics while holding it")
}

/// True if locks of the two kinds do not concern each other.
fn may_lock(path: &Path) -> bool {
    cfg!(target_os = "linux")
        && rustix::fs::statfs(path)
            .is_ok_and(|system| network_name(system.f_type.unsigned_abs()).is_none())
}
