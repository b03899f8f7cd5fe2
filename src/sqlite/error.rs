//! Errors of SQLite as errors of the ledger, with what to do about them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;

use lapsed_core::ledger::LedgerError;

/// How long a statement waits while another process writes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Converts an error of a statement on the database in `path`.
pub(super) fn error(path: &Path, error: rusqlite::Error) -> LedgerError {
    let file = path.display();
    let text = match &error {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
        other => other.to_string(),
    };
    let code = error.sqlite_error_code();
    let source = Some(Arc::new(error) as _);
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LedgerError::Unavailable {
            message: format!(
                "another process has kept `{file}` locked for {} s",
                BUSY_TIMEOUT.as_secs()
            ),
            source,
        },
        Some(ErrorCode::SystemIoFailure) => LedgerError::Unavailable {
            message: format!("cannot read or write `{file}`: {text}"),
            source,
        },
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            LedgerError::Unfit {
                message: text,
                source,
            }
        }
        code => LedgerError::Refused {
            message: match code {
                Some(ErrorCode::DiskFull) => format!("no space left for `{file}`"),
                Some(ErrorCode::ReadOnly) => read_only(path),
                // SQLite needs to write to the directory even to read.
                Some(ErrorCode::CannotOpen) if read_only_place(path).is_some() => read_only(path),
                Some(ErrorCode::NotADatabase) => format!("`{file}` is not an SQLite database"),
                Some(ErrorCode::DatabaseCorrupt) => {
                    format!("`{file}` is damaged ({text}): restore a backup")
                }
                Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                    format!("cannot open `{file}`: {text}")
                }
                _ if text.starts_with("no such table") => {
                    format!("`{file}` has {text}; run `lapsed migrate`")
                }
                _ => format!("`{file}`: {text}"),
            },
            source,
        },
    }
}

/// True if the file system had no space for a statement.
pub(super) fn is_disk_full(error: &LedgerError) -> bool {
    let LedgerError::Refused {
        source: Some(source),
        ..
    } = error
    else {
        return false;
    };
    let source = source.downcast_ref::<rusqlite::Error>();
    source.and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::DiskFull)
}

/// The message for a database in `path` that this user may not write.
pub(super) fn read_only(path: &Path) -> String {
    match read_only_place(path) {
        Some(place) => format!("`{}` is read-only for this user", place.display()),
        None => format!("`{}` is read-only", path.display()),
    }
}

/// Returns what this user may not write: the file, a file beside it, or its directory.
fn read_only_place(path: &Path) -> Option<PathBuf> {
    let beside = |ending: &str| {
        let mut path = path.as_os_str().to_owned();
        path.push(ending);
        PathBuf::from(path)
    };
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    // SQLite gives the others the mode of the file, and leaves them.
    let others = [beside("-wal"), beside("-shm")].into_iter();
    let mut places = [path, directory.unwrap_or(Path::new("."))]
        .into_iter()
        .map(Path::to_owned)
        .chain(others.filter(|other| other.exists()));
    places.find(|place| rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_err())
}

pub(super) fn refused(message: String) -> LedgerError {
    LedgerError::Refused {
        message,
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        let text = match code {
            ffi::SQLITE_ERROR => "no such table: t",
            ffi::SQLITE_INTERNAL => "as SQLite says",
            _ => "its text",
        };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(text.to_owned()))
    }

    #[test]
    fn errors_say_what_is_wrong_with_the_file_and_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lapsed.db");
        std::fs::write(&path, "").unwrap();
        let file = format!("`{}`", path.display());
        for (code, message) in [
            (
                ffi::SQLITE_BUSY,
                format!("another process has kept {file} locked for 5 s"),
            ),
            (
                ffi::SQLITE_IOERR,
                format!("cannot read or write {file}: its text"),
            ),
            (ffi::SQLITE_TOOBIG, "its text".to_owned()),
            (ffi::SQLITE_FULL, format!("no space left for {file}")),
            (ffi::SQLITE_READONLY, format!("{file} is read-only")),
            (
                ffi::SQLITE_CANTOPEN,
                format!("cannot open {file}: its text"),
            ),
            (ffi::SQLITE_PERM, format!("cannot open {file}: its text")),
            (
                ffi::SQLITE_NOTADB,
                format!("{file} is not an SQLite database"),
            ),
            (
                ffi::SQLITE_CORRUPT,
                format!("{file} is damaged (its text): restore a backup"),
            ),
            (
                ffi::SQLITE_ERROR,
                format!("{file} has no such table: t; run `lapsed migrate`"),
            ),
            (ffi::SQLITE_INTERNAL, format!("{file}: as SQLite says")),
        ] {
            let error = error(&path, failure(code));
            assert!(error.to_string().ends_with(&message), "{error}");
            assert_eq!(is_disk_full(&error), code == ffi::SQLITE_FULL, "{error}");
        }
        assert!(!is_disk_full(&refused("no space left".to_owned())));
    }
}
