//! The lock of a file: one daemon at a time.
//!
//! It is a lock of the kernel on a file beside the database, so it ends with the process, however that ends. It does not
//! concern other programs, which read and write the database as they like.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use super::error::refused;
use super::file::DatabaseFile;
use crate::ledger::LedgerError;

/// A held lock. Released when dropped, and when the process ends.
#[derive(Debug)]
pub(super) struct DaemonLock {
    _file: File,
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
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.take(32).read_to_string(&mut holder);
                return Err(refused(format!(
                    "a daemon runs on `{}` already (process {}): one file has one daemon; several share a ledger in MySQL",
                    database.path.display(),
                    holder.trim()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let note = format!("{}\n", std::process::id());
        let noted = file.set_len(0).and_then(|()| file.rewind());
        noted
            .and_then(|()| file.write_all(note.as_bytes()))
            .map_err(unusable)?;
        Ok(Self { _file: file })
    }
}
