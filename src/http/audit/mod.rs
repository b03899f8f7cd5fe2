//! The audit log: who changed what over HTTP.
//!
//! Entries are documents of the ledger, so every daemon shows those of all. A change of single tasks is not delayed by its
//! entry: a writer collects such changes for a moment, and those of one caller to one class and method become one entry.

mod entry;
mod writer;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub use self::entry::{AuditEntry, AuditPage};
use self::writer::{Entry, KEYS_MAX, Message, WAITING_MAX, Writer};
use super::access::Caller;
use crate::ledger::{Collection, Document, DocumentPlace, DocumentRange, Ledger, LedgerError};
use crate::task::TaskKey;

/// How long the caller of [`AuditLog::add`] waits for the entry of a change of many tasks.
const PATIENCE: Duration = Duration::from_secs(2);

/// A change that a caller made.
#[derive(Debug, Clone)]
pub struct Change {
    verb: &'static str,
    subject: String,
    tasks: u64,
    reason: String,
    /// Class and method of the task, if it is a change of a single task.
    kind: Option<String>,
    /// Keys of the tasks, at most 50, if they are named one by one.
    keys: Vec<String>,
}

impl Change {
    /// A change of a single task. `verb` is one word: `create`, `cancel`.
    pub fn of_task(verb: &'static str, key: &TaskKey) -> Self {
        Self {
            verb,
            subject: key.to_string(),
            tasks: 1,
            reason: String::new(),
            kind: Some(format!("{}@{}", key.class(), key.method())),
            keys: Vec::new(),
        }
    }

    /// A change of something else: of a pause, or of `tasks` tasks that match a filter, which `subject` names.
    pub fn of_many(verb: &'static str, subject: impl Into<String>, tasks: u64) -> Self {
        Self {
            verb,
            subject: subject.into(),
            tasks,
            reason: String::new(),
            kind: None,
            keys: Vec::new(),
        }
    }

    /// Names the tasks. The entry has the first 50 keys.
    #[must_use]
    pub fn naming(mut self, keys: impl IntoIterator<Item = String>) -> Self {
        self.keys = keys.into_iter().take(KEYS_MAX).collect();
        self
    }

    /// Adds the reason that the caller gave.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

/// The audit log. Cheap to clone.
#[derive(Clone)]
pub struct AuditLog {
    ledger: Arc<dyn Ledger>,
    keep: Duration,
    /// Starts with the first change.
    writer: Arc<OnceLock<mpsc::Sender<Message>>>,
}

impl AuditLog {
    /// Keeps entries in this ledger, for this long.
    pub fn new(ledger: Arc<dyn Ledger>, keep: Duration) -> Self {
        Self {
            ledger,
            keep,
            writer: Arc::default(),
        }
    }

    /// Adds an entry for a change that is committed. Waits until it is written, at most 2 s, unless it is a change of a single
    /// task. A failure is logged: the change stands.
    ///
    /// # Cancel safety
    /// If the future is dropped, the entry may be missing.
    pub async fn add(&self, caller: &Caller, change: Change) {
        let Change {
            verb,
            subject,
            tasks,
            reason,
            kind,
            keys,
        } = change;
        let (name, address) = (caller.name(), caller.address());
        match kind {
            Some(_) => {
                tracing::debug!(
                    caller = name,
                    address,
                    verb,
                    subject,
                    "task changed over http"
                )
            }
            None => {
                tracing::info!(
                    caller = name,
                    address,
                    verb,
                    subject,
                    tasks,
                    reason,
                    "changed over http"
                )
            }
        }
        let entry = AuditEntry {
            at: 0,
            caller: name.to_owned(),
            address: address.to_owned(),
            verb: verb.to_owned(),
            subject,
            tasks,
            reason,
            keys,
        };
        let (written, answer) = match kind {
            Some(_) => (None, None),
            None => {
                let (written, answer) = oneshot::channel();
                (Some(written), Some(answer))
            }
        };
        let entry = Entry {
            entry,
            kind,
            written,
        };
        // The writer ends with its channel only.
        let _ = self.writer().send(Message::Entry(entry)).await;
        if let Some(answer) = answer {
            // The writer logs what it cannot write.
            let _ = timeout(PATIENCE, answer).await;
        }
    }

    /// Waits until all entries are written, at most 2 s.
    pub async fn flush(&self) {
        let Some(writer) = self.writer.get() else {
            return;
        };
        let (written, answer) = oneshot::channel();
        let flushed = async {
            let _ = writer.send(Message::Flush(written)).await;
            answer.await
        };
        if timeout(PATIENCE, flushed).await.is_err() {
            tracing::error!("the latest entries of the audit log are not written");
        }
    }

    /// Reads entries, newest first.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn page(
        &self,
        before: Option<DocumentPlace>,
        limit: u32,
    ) -> Result<AuditPage, LedgerError> {
        let range = DocumentRange {
            before: before.unwrap_or(DocumentPlace::END),
            ..DocumentRange::latest(limit)
        };
        let found = self.ledger.documents(Collection::Audit, &range).await?;
        let next = found.last().filter(|_| found.len() == limit as usize);
        Ok(AuditPage {
            next: next.map(Document::place),
            // A newer version may write others.
            entries: found.iter().filter_map(AuditEntry::read).collect(),
        })
    }

    fn writer(&self) -> &mpsc::Sender<Message> {
        self.writer.get_or_init(|| {
            let (sender, messages) = mpsc::channel(WAITING_MAX);
            tokio::spawn(Writer::new(Arc::clone(&self.ledger), self.keep).run(messages));
            sender
        })
    }
}
