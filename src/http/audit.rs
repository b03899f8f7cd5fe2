//! The audit log: who changed what over HTTP.
//!
//! Entries are documents of the ledger, so every daemon shows those of all. A change of single tasks is not delayed by its
//! entry: a writer collects such changes for a moment, and those of one caller to one class and method become one entry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::access::Caller;
use crate::ledger::{Collection, Document, DocumentPlace, DocumentRange, Ledger, LedgerError};
use crate::task::{TaskKey, UnixMs};

/// Maximum number of entries that wait to be written. Further changes wait until there is room.
const WAITING_MAX: usize = 4_096;

/// How long changes of single tasks are collected.
const COLLECT_FOR: Duration = Duration::from_millis(100);

/// How long the caller of [`AuditLog::add`] waits for the entry of a change of many tasks.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of keys of one entry.
const KEYS_MAX: usize = 50;

/// Number of times that a batch of entries is tried again while the ledger does not answer, and the rest between two of them.
const RETRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often old entries are deleted, and how many at a time.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
const PRUNE_BATCH: u32 = 1_000;

/// A change that a caller made.
#[derive(Debug, Clone)]
pub struct Change {
    verb: &'static str,
    subject: String,
    tasks: u64,
    reason: String,
    /// Class and method of the task, if it is a change of a single task.
    kind: Option<String>,
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
        }
    }

    /// Adds the reason that the caller gave.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When it was written, unix milliseconds by the ledger's clock.
    #[serde(default)]
    pub at: i64,
    /// Name of the caller.
    pub caller: String,
    /// Address from which the caller was connected; empty if it is not known.
    #[serde(default)]
    pub address: String,
    /// What was done, one word.
    pub verb: String,
    /// A key, a scope, or a filter in words. Of several tasks, their class and method.
    pub subject: String,
    /// Number of tasks that were changed.
    pub tasks: u64,
    /// The reason that the caller gave; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Keys, at most 50, if several tasks became one entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// Entries of the audit log, newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// `before` of the next page; `None` at the end.
    pub next: Option<DocumentPlace>,
}

/// The audit log. Cheap to clone.
#[derive(Clone)]
pub struct AuditLog {
    ledger: Arc<dyn Ledger>,
    keep: Duration,
    /// Starts with the first change.
    writer: Arc<OnceLock<mpsc::Sender<Message>>>,
}

enum Message {
    Entry(Entry),
    /// Answered when all entries before it are written.
    Flush(oneshot::Sender<()>),
}

struct Entry {
    entry: AuditEntry,
    /// Class and method by which entries are joined.
    kind: Option<String>,
    /// Answered when it is written. An entry without it may wait for others.
    written: Option<oneshot::Sender<()>>,
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
            keys: Vec::new(),
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
            entries: found.iter().filter_map(read).collect(),
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

fn read(document: &Document) -> Option<AuditEntry> {
    let entry: AuditEntry = serde_json::from_str(&document.body).ok()?;
    Some(AuditEntry {
        at: document.at.0,
        ..entry
    })
}

/// What identifies entries that become one: caller, address, verb, class and method.
type Group = (String, String, String, String);

/// Entries that are written together.
#[derive(Default)]
struct Batch {
    entries: Vec<AuditEntry>,
    groups: HashMap<Group, usize>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Batch {
    /// Adds a message. Returns true if its sender waits.
    fn add(&mut self, message: Message) -> bool {
        let Entry {
            entry,
            kind,
            written,
        } = match message {
            Message::Entry(entry) => entry,
            Message::Flush(written) => {
                self.waiting.push(written);
                return true;
            }
        };
        let waits = written.is_some();
        self.waiting.extend(written);
        let Some(kind) = kind else {
            self.entries.push(entry);
            return waits;
        };
        let group = (
            entry.caller.clone(),
            entry.address.clone(),
            entry.verb.clone(),
            kind.clone(),
        );
        let Some(joined) = self.groups.get(&group).map(|at| &mut self.entries[*at]) else {
            self.groups.insert(group, self.entries.len());
            self.entries.push(entry);
            return waits;
        };
        if joined.tasks == 1 {
            let first = std::mem::replace(&mut joined.subject, kind);
            joined.keys.push(first);
        }
        joined.tasks += 1;
        if joined.keys.len() < KEYS_MAX {
            joined.keys.push(entry.subject);
        }
        waits
    }
}

struct Writer {
    ledger: Arc<dyn Ledger>,
    keep: Duration,
    /// Names sort in the order of the entries of this daemon.
    prefix: String,
    count: u64,
    pruned: Option<Instant>,
    /// Set once the ledger has refused an entry.
    refused: AtomicBool,
}

impl Writer {
    fn new(ledger: Arc<dyn Ledger>, keep: Duration) -> Self {
        Self {
            ledger,
            keep,
            prefix: format!("{:08x}", rand::random::<u32>()),
            count: 0,
            pruned: None,
            refused: AtomicBool::new(false),
        }
    }

    /// Writes until every sender is gone.
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        while let Some(first) = messages.recv().await {
            let mut batch = Batch::default();
            let collected = Instant::now() + COLLECT_FOR;
            let mut waits = batch.add(first);
            while !waits && batch.entries.len() < WAITING_MAX {
                match timeout_at(collected, messages.recv()).await {
                    Ok(Some(message)) => waits = batch.add(message),
                    Ok(None) | Err(_) => break,
                }
            }
            self.write(batch.entries).await;
            for written in batch.waiting {
                // Its receiver may be gone.
                let _ = written.send(());
            }
            self.prune().await;
        }
    }

    async fn write(&mut self, entries: Vec<AuditEntry>) {
        let (mut lost, mut retries) = (0u64, RETRIES);
        for entry in entries {
            self.count += 1;
            let name = format!("{}-{:012}", self.prefix, self.count);
            let body = serde_json::to_string(&entry).expect("texts and numbers are JSON");
            if let Err(error) = self.insert(&name, &body, &mut retries).await {
                lost += 1;
                if !self.refused.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "changes over http are missing in the audit log");
                }
            }
        }
        if lost > 0 {
            tracing::debug!(entries = lost, "entries of the audit log were not written");
        } else {
            self.refused.store(false, Ordering::Relaxed);
        }
    }

    async fn insert(&self, name: &str, body: &str, retries: &mut u32) -> Result<(), LedgerError> {
        loop {
            let inserted = self
                .ledger
                .insert_document(Collection::Audit, name, body)
                .await;
            match inserted {
                // It is this entry: an earlier attempt was carried out.
                Ok(_) => return Ok(()),
                Err(error) if error.is_transient() && *retries > 0 => {
                    *retries -= 1;
                    sleep(RETRY_AFTER).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes entries that are too old, once an hour.
    async fn prune(&mut self) {
        if self.pruned.is_some_and(|at| at.elapsed() < PRUNE_EVERY) {
            return;
        }
        let before = self.ledger.clock().now().0 - self.keep.as_millis() as i64;
        let deleted = self
            .ledger
            .delete_documents(Collection::Audit, UnixMs(before), PRUNE_BATCH)
            .await;
        match deleted {
            // There may be more; the next batch of entries deletes them.
            Ok(deleted) if deleted == u64::from(PRUNE_BATCH) => {}
            Ok(_) | Err(_) => self.pruned = Some(Instant::now()),
        }
    }
}
