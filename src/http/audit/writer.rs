//! Writes entries of the audit log: collects changes of single tasks for a moment, and joins those that are alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::entry::AuditEntry;
use crate::ledger::{Collection, Ledger, LedgerError};
use crate::task::UnixMs;

/// Maximum number of entries that wait to be written. Further changes wait until there is room.
pub(super) const WAITING_MAX: usize = 4_096;

/// How long changes of single tasks are collected.
const COLLECT_FOR: Duration = Duration::from_millis(100);

/// Maximum number of keys of one entry.
pub(super) const KEYS_MAX: usize = 50;

/// Number of times that a batch of entries is tried again while the ledger does not answer, and the rest between two of them.
const RETRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often old entries are deleted, and how many at a time.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
const PRUNE_BATCH: u32 = 1_000;

/// What the writer is sent.
pub(super) enum Message {
    /// A change.
    Entry(Entry),
    /// Answered when all entries before it are written.
    Flush(oneshot::Sender<()>),
}

/// An entry on its way to the ledger.
pub(super) struct Entry {
    pub entry: AuditEntry,
    /// Class and method by which entries are joined.
    pub kind: Option<String>,
    /// Answered when it is written. An entry without it may wait for others.
    pub written: Option<oneshot::Sender<()>>,
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

/// Collects entries, and writes them to the ledger.
pub(super) struct Writer {
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
    pub fn new(ledger: Arc<dyn Ledger>, keep: Duration) -> Self {
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
    pub async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
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
