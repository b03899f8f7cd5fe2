//! The one thread that writes: it takes the jobs that have arrived meanwhile, runs them in one transaction, and answers
//! after the commit.
//!
//! Jobs about many rows are [long](Length::Long), and have transactions of their own, in turns with those of other
//! jobs. So a job about one task waits for one such transaction at most, however many long jobs there are.
//!
//! A commit costs a write to the disk, whatever it contains. While one is under way, other jobs arrive, and the next commit
//! has all of them: throughput grows with load, and a single job waits for one commit only.
//!
//! Its connection makes all commits of this ledger but those of handlers, so it can tell those of others from its own.

mod message;
mod writer_thread;

use std::sync::{self, Arc};
use std::thread;

use tokio::sync::{Mutex, mpsc, oneshot};

use self::message::{Message, WAITING_MAX};
use self::writer_thread::WriterThread;
use super::checkpoints::Checkpoints;
use super::file::DatabaseFile;
use super::job::{Write, ended};
use super::queries::Queries;
use super::readers::IdleReaders;
use super::store::SqliteStore;
use lapsed_core::clock::LedgerClock;
use lapsed_core::ledger::LedgerError;
use lapsed_core::ledger::rows::Length;

/// The handle of the thread. The thread starts with the first job. If it panics, the next job starts another: what was
/// committed is in the file, and the rest is rolled back.
#[derive(Debug)]
pub(super) struct Writer {
    file: DatabaseFile,
    queries: Arc<Queries>,
    clock: LedgerClock,
    turn: Arc<Mutex<()>>,
    readers: IdleReaders,
    thread: sync::Mutex<Option<mpsc::Sender<Message>>>,
}

impl Writer {
    pub fn new(
        file: DatabaseFile,
        queries: Arc<Queries>,
        clock: LedgerClock,
        turn: Arc<Mutex<()>>,
        readers: IdleReaders,
    ) -> Self {
        Self {
            file,
            queries,
            clock,
            turn,
            readers,
            thread: sync::Mutex::default(),
        }
    }

    /// Runs `verb` in a transaction, and returns its result after the commit. If `verb` fails, its changes are undone, and
    /// the other jobs of the transaction stand.
    ///
    /// # Errors
    /// Those of `verb` and of the transaction. After [`LedgerError::Unavailable`] the changes may have taken effect.
    ///
    /// # Cancel safety
    /// If the future is dropped, `verb` may or may not run.
    pub async fn write<T: Send + 'static>(
        &self,
        length: Length,
        verb: impl FnOnce(&mut SqliteStore<'_>) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Write::new(verb, caller));
        let message = match length {
            Length::Short => Message::Job(job),
            Length::Long => Message::Long(job),
        };
        let thread = self.thread()?;
        thread.send(message).await.map_err(|_| ended())?;
        answered(&thread, answer).await
    }

    /// Returns a number that changes when another connection has committed. Writes and locks nothing.
    ///
    /// It may also change when none has.
    ///
    /// # Errors
    /// The file cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn external_commits(&self) -> Result<u64, LedgerError> {
        let (look, answer) = oneshot::channel();
        let thread = self.thread()?;
        let sent = thread.send(Message::Look(look)).await;
        sent.map_err(|_| ended())?;
        answered(&thread, answer).await
    }

    /// Closes the connection once all jobs so far have been answered. A later job opens another.
    pub async fn close(&self) {
        let Some(thread) = self.handle().clone() else {
            return;
        };
        let (closed, wait) = oneshot::channel();
        if thread.send(Message::Close(closed)).await.is_ok() {
            let _ = wait.await;
        }
    }

    /// Returns the thread that runs. Starts one if there is none.
    ///
    /// # Errors
    /// The system starts no more threads for now.
    fn thread(&self) -> Result<mpsc::Sender<Message>, LedgerError> {
        let mut thread = self.handle();
        if let Some(running) = thread.as_ref().filter(|thread| !thread.is_closed()) {
            return Ok(running.clone());
        }
        if thread.is_some() {
            tracing::error!("the thread that writes the ledger's file panicked: starting another");
        }
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let writer = WriterThread {
            checkpoints: Checkpoints::new(self.file.clone()),
            file: self.file.clone(),
            queries: Arc::clone(&self.queries),
            clock: self.clock.clone(),
            turn: Arc::clone(&self.turn),
            readers: self.readers.clone(),
            open: None,
            // Unlike the number of an earlier thread.
            external_commits: u64::from(rand::random::<u32>()),
        };
        let started = thread::Builder::new().name("lapsed-writer".to_owned());
        let started = started.spawn(move || writer.run(messages));
        started.map_err(|source| LedgerError::Unavailable {
            message: "cannot start the thread that writes".to_owned(),
            source: Some(Arc::new(source)),
        })?;
        Ok(thread.insert(sender).clone())
    }

    fn handle(&self) -> sync::MutexGuard<'_, Option<mpsc::Sender<Message>>> {
        self.thread.lock().expect("nothing panics while holding it")
    }
}

/// Waits for the answer of the thread. After a panic, waits until the thread takes no more jobs: the next job then starts
/// another.
async fn answered<T>(
    thread: &mpsc::Sender<Message>,
    answer: oneshot::Receiver<Result<T, LedgerError>>,
) -> Result<T, LedgerError> {
    match answer.await {
        Ok(answer) => answer,
        Err(_) => {
            thread.closed().await;
            Err(ended())
        }
    }
}
