//! The audit log: who changed what, over HTTP and over RESP.
//!
//! Entries are documents of the ledger, so every daemon shows those of all. A change of single tasks is not delayed by its
//! entry: such changes are collected for a moment, and those of one caller to one class and method become one entry. A flood
//! of changes thus costs an addition each, and the ledger a bounded number of rows.

mod entry;
mod pending;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use self::entry::KEYS_MAX;
pub use self::entry::{AuditEntry, AuditPage, Source};
use self::pending::Pending;
use self::writer::Writer;
use lapsed::ledger::{Collection, Document, DocumentPlace, DocumentRange, Ledger, LedgerError};
use lapsed::task::TaskKey;

/// How long the caller of [`AuditLog::add`] waits for the entry of a change of many tasks.
const PATIENCE: Duration = Duration::from_secs(2);

/// A change of something else than single tasks: of a pause, or of the tasks that match a filter.
#[derive(Debug, Clone)]
pub struct Change {
    verb: &'static str,
    subject: String,
    tasks: u64,
    reason: String,
    keys: Vec<String>,
}

impl Change {
    /// A change of a pause, or of `tasks` tasks that match a filter, which `subject` names. `verb` is one word: `cancel`.
    pub fn of_many(verb: &'static str, subject: impl Into<String>, tasks: u64) -> Self {
        Self {
            verb,
            subject: subject.into(),
            tasks,
            reason: String::new(),
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

/// The audit log of one server. Cheap to clone.
#[derive(Clone)]
pub struct AuditLog {
    ledger: Arc<dyn Ledger>,
    writer: Arc<Writer>,
}

impl AuditLog {
    /// Keeps the changes at a server, `http` or `resp`, in this ledger, for this long.
    pub fn new(server: &'static str, ledger: Arc<dyn Ledger>, keep: Duration) -> Self {
        Self {
            writer: Arc::new(Writer::new(server, Arc::clone(&ledger), keep)),
            ledger,
        }
    }

    /// Adds changes of single tasks, which are committed: a verb, one word such as `create`, and the key of each. Does not wait
    /// for the ledger.
    pub fn add_tasks<'k>(
        &self,
        source: Source<'_>,
        changes: impl IntoIterator<Item = (&'static str, &'k TaskKey)>,
    ) {
        let server = self.writer.server();
        self.writer.add(|pending| {
            for (verb, key) in changes {
                let Source { caller, address } = source;
                tracing::debug!(server, caller, address, verb, subject = %key, "task was changed");
                pending.add_task(source, verb, key);
            }
        });
    }

    /// Adds a change of something else, which is committed. Waits until its entry is written, at most 2 s. A failure is logged:
    /// the change stays.
    ///
    /// # Cancel safety
    /// The entry is written even if the future is dropped after it was polled.
    pub async fn add(&self, source: Source<'_>, change: Change) {
        let Change {
            verb,
            subject,
            tasks,
            reason,
            keys,
        } = change;
        let Source { caller, address } = source;
        let server = self.writer.server();
        tracing::info!(
            server,
            caller,
            address,
            verb,
            subject,
            tasks,
            reason,
            "tasks or pauses were changed"
        );
        let entry = AuditEntry {
            at: 0,
            caller: caller.to_owned(),
            address: address.to_owned(),
            verb: verb.to_owned(),
            subject,
            tasks,
            reason,
            keys,
        };
        let written = self.writer.add_urgent(|pending| pending.add_entry(entry));
        // The writer logs what it cannot write.
        let _ = timeout(PATIENCE, written).await;
    }

    /// Waits until all entries are written, at most 2 s.
    pub async fn flush(&self) {
        if self.writer.is_idle() {
            return;
        }
        let written = self.writer.add_urgent(|_: &mut Pending| {});
        if timeout(PATIENCE, written).await.is_err() {
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
}
