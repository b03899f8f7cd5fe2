//! Checkpoints: copies committed pages from the write-ahead log to the database, beside the commits.
//!
//! SQLite by itself does this in the commit with which the log exceeds a size, and that commit then waits for two more
//! syncs and for pages all over the file. Here a thread copies them. Commits go on meanwhile, so the thread does not reach
//! the end of the log; the writer copies the rest between two commits, a few pages, and the log starts over.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use super::file::{Access, DatabaseFile};
use lapsed_core::ledger::LedgerError;

/// The thread copies when this many pages wait.
const COPY_AT: u64 = 1_000;

/// The same on a disk that has less room than the log may take. The writer copies them itself: what commits add meanwhile
/// would fill the disk, and then there is no room to copy either.
const COPY_AT_ON_FULL: u64 = 64;

/// The log is to start over when it has this many pages.
const RESTART_AT: u64 = 4_096;

/// Maximum number of pages that the writer copies for that.
const REST_MAX: u64 = 256;

/// Pause of the thread after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// Decides when to copy. Belongs to the writer.
#[derive(Debug)]
pub(super) struct Checkpoints {
    file: DatabaseFile,
    copier: Option<Copier>,
    /// No thread is started before: the system started none.
    start_at: Option<Instant>,
    /// The thread has been asked since the writer last copied the rest.
    has_asked: bool,
}

/// The state of the log.
#[derive(Debug, Clone, Copy)]
struct Log {
    pages: u64,
    copied: u64,
}

/// The thread, which ends when this is dropped.
#[derive(Debug)]
struct Copier {
    /// `None` while it is dropped.
    ask: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub fn new(file: DatabaseFile) -> Self {
        Self {
            file,
            copier: None,
            start_at: None,
            has_asked: false,
        }
    }

    /// Looks at the log after a commit of the writer's connection. Copies at most [`REST_MAX`] pages itself, unless the disk is
    /// nearly full.
    pub fn after_commit(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let log = checkpoint(connection, "NOOP")?;
        let waiting = log.pages.saturating_sub(log.copied);
        if waiting >= COPY_AT_ON_FULL && self.file.is_disk_nearly_full() {
            checkpoint(connection, "PASSIVE")?;
        } else if waiting >= COPY_AT {
            self.ask(thread::Builder::new());
        } else if self.has_asked && log.pages >= RESTART_AT && waiting <= REST_MAX {
            // Once only: a reader may keep the log from starting over.
            self.has_asked = false;
            checkpoint(connection, "PASSIVE")?;
        }
        Ok(())
    }

    /// Asks the thread to copy, and starts it if there is none. Without a thread, a commit copies when the log is at its
    /// maximum.
    fn ask(&mut self, thread: thread::Builder) {
        if self.copier.is_none() && self.start_at.is_none_or(|at| at <= Instant::now()) {
            match Copier::start(self.file.clone(), thread) {
                Ok(copier) => self.copier = Some(copier),
                Err(error) => {
                    self.start_at = Some(Instant::now() + PAUSE);
                    tracing::warn!(%error, "cannot start the thread that copies the write-ahead log; trying again");
                }
            }
        }
        if let Some(copier) = &self.copier {
            copier.ask();
            self.has_asked = true;
        }
    }

    /// Ends the thread and closes its connection.
    pub fn close(&mut self) {
        self.copier = None;
    }
}

impl Copier {
    fn start(file: DatabaseFile, thread: thread::Builder) -> io::Result<Self> {
        // One request stands for all that arrive before the thread takes it.
        let (ask, asked) = sync_channel(1);
        let thread = thread.name("lapsed-checkpoint".to_owned());
        let thread = thread.spawn(move || copy_when_asked(&file, &asked))?;
        Ok(Self {
            ask: Some(ask),
            thread: Some(thread),
        })
    }

    fn ask(&self) {
        if let Some(ask) = &self.ask {
            // Full: it has been asked already. A thread that has panicked leaves the copying to the commits.
            let _ = ask.try_send(());
        }
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

fn copy_when_asked(file: &DatabaseFile, asked: &Receiver<()>) {
    let mut open = None;
    let mut paused_until = None;
    while asked.recv().is_ok() {
        if paused_until.is_some_and(|until| Instant::now() < until) {
            continue;
        }
        paused_until = None;
        if let Err(error) = copy(file, &mut open) {
            tracing::warn!(%error, "could not copy the write-ahead log to the database; trying again");
            open = None;
            paused_until = Some(Instant::now() + PAUSE);
        }
    }
}

fn copy(file: &DatabaseFile, open: &mut Option<Connection>) -> Result<(), LedgerError> {
    let connection = match open {
        Some(connection) => connection,
        None => open.insert(file.open(Access::Write)?),
    };
    let copied = checkpoint(connection, "PASSIVE");
    copied.map(|_| ()).map_err(|source| file.error(source))
}

/// Copies what it can to the database after a commit that found the disk full: the log starts over, and what it takes is
/// used again.
pub(super) fn make_room(connection: &Connection) {
    let rolled_back = match connection.is_autocommit() {
        true => Ok(()),
        false => connection.execute_batch("ROLLBACK"),
    };
    if let Err(error) = rolled_back.and_then(|()| checkpoint(connection, "PASSIVE")) {
        tracing::debug!(%error, "could not copy the write-ahead log on a full disk");
    }
}

/// Copies the whole log to the database. Waits for readers and for other processes that write, as every statement.
///
/// # Errors
/// Some of it could not be copied.
pub(super) fn copy_all(connection: &Connection, file: &DatabaseFile) -> Result<(), LedgerError> {
    let log = checkpoint(connection, "FULL").map_err(|source| file.error(source))?;
    match log.copied == log.pages {
        true => Ok(()),
        false => Err(LedgerError::Unavailable {
            message: format!(
                "the write-ahead log of `{}` was deleted, and is being read: it cannot be copied yet",
                file.path.display()
            ),
            source: None,
        }),
    }
}

/// Runs a checkpoint that, unless it is `FULL`, waits for nothing. `NOOP` copies nothing, and `PASSIVE` nothing if another process copies.
fn checkpoint(connection: &Connection, mode: &'static str) -> rusqlite::Result<Log> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    statement.query_row([], |row| {
        let (pages, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
        // -1 without a log.
        Ok(Log {
            pages: pages.max(0).cast_unsigned(),
            copied: copied.max(0).cast_unsigned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed_core::task::TableName;

    /// A ledger in a file, and a connection whose commits copy nothing.
    fn file_with_pages(directory: &tempfile::TempDir) -> (DatabaseFile, Connection) {
        let file = DatabaseFile {
            path: directory.path().join("lapsed.db"),
            table: TableName::new("t").unwrap(),
        };
        crate::migration::migrate(&file, false).unwrap();
        let connection = file.open(Access::Write).unwrap();
        for (pragma, value) in [("wal_autocheckpoint", 0), ("synchronous", 0)] {
            connection.pragma_update(None, pragma, value).unwrap();
        }
        connection
            .execute_batch("CREATE TABLE pages (id INTEGER PRIMARY KEY, page BLOB)")
            .unwrap();
        checkpoint(&connection, "PASSIVE").unwrap();
        (file, connection)
    }

    /// Commits until this many pages wait to be copied.
    fn write_until(connection: &Connection, waiting: u64) -> Log {
        loop {
            let log = checkpoint(connection, "NOOP").unwrap();
            let left = waiting.saturating_sub(log.pages - log.copied);
            if left == 0 {
                return log;
            }
            // A change of one row in place is a commit of one page.
            let write = match left {
                1..=40 => "REPLACE INTO pages VALUES (1, x'00')".to_owned(),
                left => {
                    let bytes = (left - 20) * 4_000;
                    format!("INSERT INTO pages (page) VALUES (zeroblob({bytes}))")
                }
            };
            connection.execute(&write, []).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_cannot_be_started_leaves_the_copying_to_commits_until_it_can() {
        let file = DatabaseFile {
            path: "unused".into(),
            table: TableName::new("t").unwrap(),
        };
        let mut checkpoints = Checkpoints::new(file);
        checkpoints.ask(thread::Builder::new().stack_size(1 << 60));
        assert!(checkpoints.copier.is_none());
        tokio::time::advance(PAUSE - Duration::from_millis(1)).await;
        checkpoints.ask(thread::Builder::new());
        assert!(checkpoints.copier.is_none() && !checkpoints.has_asked);
        tokio::time::advance(Duration::from_millis(1)).await;
        checkpoints.ask(thread::Builder::new());
        assert!(checkpoints.copier.is_some() && checkpoints.has_asked);
        checkpoints.close();
        assert!(checkpoints.copier.is_none());
    }

    #[test]
    fn the_thread_is_asked_when_many_pages_wait() {
        let directory = tempfile::tempdir().unwrap();
        let (file, connection) = file_with_pages(&directory);
        let mut checkpoints = Checkpoints::new(file);
        write_until(&connection, COPY_AT - 1);
        checkpoints.after_commit(&connection).unwrap();
        assert!(!checkpoints.has_asked);
        write_until(&connection, COPY_AT);
        checkpoints.after_commit(&connection).unwrap();
        assert!(checkpoints.has_asked && checkpoints.copier.is_some());
    }

    #[test]
    fn the_writer_copies_the_rest_of_a_long_log_once() {
        let directory = tempfile::tempdir().unwrap();
        let (file, connection) = file_with_pages(&directory);
        let mut checkpoints = Checkpoints::new(file.clone());
        checkpoints.has_asked = true;
        write_until(&connection, REST_MAX);
        checkpoints.after_commit(&connection).unwrap();
        assert!(checkpoints.has_asked, "the log is short");

        write_until(&connection, RESTART_AT);
        // As long as it reads, the log goes on where it is.
        let reader = file.open(Access::Read).unwrap();
        reader
            .execute_batch("BEGIN; SELECT COUNT(*) FROM pages")
            .unwrap();
        checkpoint(&connection, "PASSIVE").unwrap();
        let log = write_until(&connection, REST_MAX + 1);
        assert!(log.pages > RESTART_AT, "{log:?}");
        checkpoints.after_commit(&connection).unwrap();
        assert!(checkpoints.has_asked, "too many pages wait");
        reader
            .execute_batch("ROLLBACK; BEGIN; SELECT COUNT(*) FROM pages")
            .unwrap();
        checkpoint(&connection, "PASSIVE").unwrap();
        write_until(&connection, REST_MAX);
        checkpoints.after_commit(&connection).unwrap();
        assert!(!checkpoints.has_asked);
    }

    #[test]
    fn a_full_copy_leaves_nothing_in_the_log_and_a_reader_in_the_way_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let (file, connection) = file_with_pages(&directory);
        connection.busy_timeout(Duration::ZERO).unwrap();
        let reader = file.open(Access::Read).unwrap();
        reader
            .execute_batch("BEGIN; SELECT COUNT(*) FROM pages")
            .unwrap();
        write_until(&connection, 10);
        let refused = copy_all(&connection, &file).unwrap_err();
        assert!(
            refused.to_string().contains("cannot be copied yet"),
            "{refused}"
        );
        reader.execute_batch("ROLLBACK").unwrap();
        copy_all(&connection, &file).unwrap();
        let log = checkpoint(&connection, "NOOP").unwrap();
        assert_eq!(log.pages, log.copied);
    }

    #[test]
    fn room_is_made_by_copying_what_was_committed_before() {
        let directory = tempfile::tempdir().unwrap();
        let (_file, connection) = file_with_pages(&directory);
        for statement in ["SELECT 1", "BEGIN; DELETE FROM pages"] {
            write_until(&connection, 10);
            connection.execute_batch(statement).unwrap();
            make_room(&connection);
            let log = checkpoint(&connection, "NOOP").unwrap();
            assert_eq!(log.pages, log.copied, "{statement}");
            assert!(connection.is_autocommit(), "{statement}");
        }
    }

    #[test]
    fn a_log_that_grows_while_it_is_copied_starts_over() {
        let directory = tempfile::tempdir().unwrap();
        let (file, connection) = file_with_pages(&directory);
        let mut checkpoints = Checkpoints::new(file);
        let (mut largest, deadline) = (0, Instant::now() + Duration::from_secs(60));
        loop {
            connection
                .execute("INSERT INTO pages (page) VALUES (zeroblob(8000))", [])
                .unwrap();
            let log = checkpoint(&connection, "NOOP").unwrap();
            if log.pages < largest && largest >= RESTART_AT {
                break;
            }
            // It starts over with fewer pages where the thread reaches its end before the next commit.
            largest = log.pages;
            checkpoints.after_commit(&connection).unwrap();
            assert!(Instant::now() < deadline, "{log:?}");
        }
    }
}
