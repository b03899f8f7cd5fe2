//! The thread that writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::message::{Look, Message, WAITING_MAX};
use crate::checkpoints::{self, Checkpoints};
use crate::error::is_disk_full;
use crate::file::{Access, DatabaseFile, FileIdentity, keep_from_copying};
use crate::job::Job;
use crate::queries::Queries;
use crate::readers::IdleReaders;
use crate::store::SqliteStore;
use lapsed_core::clock::LedgerClock;
use lapsed_core::ledger::LedgerError;

/// A transaction takes no further jobs after this time, so that those in it are answered.
const TRANSACTION_MAX: Duration = Duration::from_millis(20);

pub(super) struct WriterThread {
    pub(super) file: DatabaseFile,
    pub(super) queries: Arc<Queries>,
    pub(super) clock: LedgerClock,
    pub(super) turn: Arc<Mutex<()>>,
    pub(super) readers: IdleReaders,
    pub(super) checkpoints: Checkpoints,
    /// `None` before the first job and after an error.
    pub(super) open: Option<Open>,
    /// Grows when a look finds that another connection has committed, or may have.
    pub(super) external_commits: u64,
}

pub(super) struct Open {
    connection: Connection,
    identity: FileIdentity,
    /// SQLite's number for commits of other connections, as of the last look. Comparable on one connection only.
    data_version: Option<i64>,
}

/// What waits for the end of a transaction.
#[derive(Default)]
struct Deferred {
    /// In order of arrival.
    long: VecDeque<Box<dyn Job>>,
    looks: Vec<Look>,
    close: Option<oneshot::Sender<()>>,
}

impl Deferred {
    /// Keeps a message for later, unless it is a job about few rows.
    fn keep(&mut self, message: Message) -> Option<Box<dyn Job>> {
        match message {
            Message::Job(job) => return Some(job),
            Message::Long(job) => self.long.push_back(job),
            Message::Look(look) => self.looks.push(look),
            Message::Close(closed) => self.close = Some(closed),
        }
        None
    }

    /// Returns the next job about few rows, of those that arrived before a request to close.
    fn next(&mut self, messages: &mut mpsc::Receiver<Message>) -> Option<Box<dyn Job>> {
        while self.close.is_none() && self.long.len() < WAITING_MAX {
            if let Some(job) = self.keep(messages.try_recv().ok()?) {
                return Some(job);
            }
        }
        None
    }
}

impl WriterThread {
    pub(super) fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut deferred = Deferred::default();
        loop {
            let message = match deferred.long.is_empty() {
                true => match messages.blocking_recv() {
                    Some(message) => Some(message),
                    None => return,
                },
                false => messages.try_recv().ok(),
            };
            let first = message.and_then(|message| deferred.keep(message));
            // It may be behind long ones.
            let first = first.or_else(|| deferred.next(&mut messages));
            if let Some(first) = first {
                self.transaction(first, || deferred.next(&mut messages));
            }
            while let Some(first) = deferred.long.pop_front() {
                self.transaction(first, || deferred.long.pop_front());
                if deferred.close.is_none() {
                    break;
                }
            }
            // In both cases, the caller may have gone.
            for look in deferred.looks.drain(..) {
                let _ = look.send(self.look());
            }
            if let Some(closed) = deferred.close.take() {
                self.checkpoints.close();
                self.open = None;
                let _ = closed.send(());
            }
        }
    }

    /// Runs `first` and those that `next` returns meanwhile, and answers them.
    fn transaction(&mut self, first: Box<dyn Job>, next: impl FnMut() -> Option<Box<dyn Job>>) {
        let mut jobs = vec![first];
        let turn = Arc::clone(&self.turn);
        let turn = turn.blocking_lock();
        let started = Instant::now();
        let mut result = self.run_all(&mut jobs, next, started);
        match &result {
            Ok(()) => result = self.check_files(),
            Err(error) => {
                if let Some(open) = self.open.as_ref().filter(|_| is_disk_full(error)) {
                    checkpoints::make_room(&open.connection);
                }
                // Another connection may not have the error.
                self.open = None;
            }
        }
        drop(turn);
        for job in jobs {
            job.answer(result.clone());
        }
        if let Some(open) = &self.open
            && let Err(error) = self.checkpoints.after_commit(&open.connection)
        {
            tracing::debug!(%error, "could not read the state of the write-ahead log");
        }
    }

    fn look(&mut self) -> Result<u64, LedgerError> {
        let looked = self.count_external_commits();
        if looked.is_err() {
            self.open = None;
        }
        looked
    }

    fn count_external_commits(&mut self) -> Result<u64, LedgerError> {
        // It has been logged, and says nothing about the files that are there now.
        let _ = self.check_files();
        let file = self.file.clone();
        let open = self.open()?;
        let asked = open.connection.prepare_cached("PRAGMA data_version");
        let version: i64 = asked
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|source| file.error(source))?;
        if open.data_version.replace(version) != Some(version) {
            self.external_commits += 1;
        }
        Ok(self.external_commits)
    }

    /// Runs `jobs` and adds to them what `next` returns. If this fails, nothing of any job stands.
    fn run_all(
        &mut self,
        jobs: &mut Vec<Box<dyn Job>>,
        next: impl FnMut() -> Option<Box<dyn Job>>,
        started: Instant,
    ) -> Result<(), LedgerError> {
        if let Err(error) = self.begin() {
            // It is the same for all that wait, some of them for as long as this took.
            let more = std::iter::from_fn(next).take(WAITING_MAX);
            jobs.extend(more);
            return Err(error);
        }
        self.run_started(jobs, next, started)
    }

    /// Begins a transaction. Waits while another process writes.
    fn begin(&mut self) -> Result<(), LedgerError> {
        let file = self.file.clone();
        let connection = &self.open()?.connection;
        let started = connection.prepare_cached("BEGIN IMMEDIATE");
        let started = started.and_then(|mut statement| statement.execute([]));
        started.map(|_| ()).map_err(|source| file.error(source))
    }

    fn run_started(
        &mut self,
        jobs: &mut Vec<Box<dyn Job>>,
        mut next: impl FnMut() -> Option<Box<dyn Job>>,
        started: Instant,
    ) -> Result<(), LedgerError> {
        let (file, queries) = (self.file.clone(), Arc::clone(&self.queries));
        let clock = self.clock.clone();
        let connection = &self.open()?.connection;
        let run = |text: &str| -> Result<(), LedgerError> {
            let statement = connection.prepare_cached(text);
            let done = statement.and_then(|mut statement| statement.execute([]));
            done.map(|_| ()).map_err(|source| file.error(source))
        };
        let mut at = 0;
        while at < jobs.len() {
            // Of this job: one that arrived during the transaction is not stamped with a time before its call.
            let now = clock.now();
            run("SAVEPOINT job")?;
            let done = jobs[at].run(&mut SqliteStore::new(&file, connection, &queries, now));
            // Some errors end the transaction, and with it what other jobs have written.
            if connection.is_autocommit() {
                return done.and(Err(rolled_back()));
            }
            if done.is_err() {
                run("ROLLBACK TO job")?;
            }
            run("RELEASE job")?;
            at += 1;
            if started.elapsed() < TRANSACTION_MAX {
                jobs.extend(next());
            }
        }
        run("COMMIT")
    }

    /// Notices that the files of the connection were deleted or replaced, and closes it.
    ///
    /// # Errors
    /// The latest commit may be lost.
    fn check_files(&mut self) -> Result<(), LedgerError> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let now = self.file.identity();
        if open.identity == now && now.is_whole() {
            return Ok(());
        }
        let kept = match open.identity.has_lost_log(&now) {
            // The connection still has what was deleted. It stays open if it cannot be copied now.
            true => Ok(checkpoints::copy_all(&open.connection, &self.file)?),
            false => {
                keep_from_copying(&open.connection);
                Err(open.identity.loss(&now, &self.file))
            }
        };
        self.checkpoints.close();
        self.open = None;
        // The connections of a process share an index until the last of them is closed.
        self.readers.close(&now);
        match &kept {
            Ok(()) => tracing::warn!(
                "`-wal` or `-shm` of the ledger's file was deleted: what it held is now in the file; leave these to SQLite"
            ),
            Err(error) => tracing::error!(%error, "tasks were lost"),
        }
        kept
    }

    fn open(&mut self) -> Result<&mut Open, LedgerError> {
        if self.open.is_none() {
            self.file.refuse_links()?;
            let (connection, identity) = self.file.open_identified(Access::Write)?;
            self.open = Some(Open {
                connection,
                identity,
                data_version: None,
            });
        }
        Ok(self.open.as_mut().expect("just opened"))
    }
}

fn rolled_back() -> LedgerError {
    LedgerError::Unavailable {
        message: "the transaction was rolled back".to_owned(),
        source: None,
    }
}
