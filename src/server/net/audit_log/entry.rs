//! Entries of the audit log.

use serde::{Deserialize, Serialize};

use lapsed::ledger::{Document, DocumentPlace};
use lapsed::task::TaskKey;

/// Maximum number of keys of one entry.
pub(super) const KEYS_MAX: usize = 50;

/// Who makes a change, and from where.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Name of the caller.
    pub caller: &'a str,
    /// Its address; empty if it is not known.
    pub address: &'a str,
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

impl AuditEntry {
    /// The change of one task.
    pub(super) fn of_task(source: Source<'_>, verb: &str, key: &TaskKey) -> Self {
        Self {
            at: 0,
            caller: source.caller.to_owned(),
            address: source.address.to_owned(),
            verb: verb.to_owned(),
            subject: key.to_string(),
            tasks: 1,
            reason: String::new(),
            keys: Vec::new(),
        }
    }

    /// Adds the same change of another task. `subject` names what both have in common.
    pub(super) fn join(&mut self, subject: &str, key: &TaskKey) {
        if self.tasks == 1 {
            let first = std::mem::replace(&mut self.subject, subject.to_owned());
            self.keys.push(first);
        }
        self.tasks += 1;
        if self.keys.len() < KEYS_MAX {
            self.keys.push(key.to_string());
        }
    }

    /// Reads a document; `None` if a newer version has written it in another form.
    pub(super) fn read(document: &Document) -> Option<Self> {
        let entry: Self = serde_json::from_str(&document.body).ok()?;
        Some(Self {
            at: document.at.0,
            ..entry
        })
    }
}
