//! Entries that are not written yet.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::oneshot;

use super::entry::{AuditEntry, Source};
use lapsed::task::TaskKey;

/// Maximum number of entries of single tasks that wait. The tasks of further classes and methods share an entry for each caller
/// and verb.
const GROUPS_MAX: usize = 64;

/// Maximum number of entries that wait. Further ones are lost.
const ENTRIES_MAX: usize = 4_096;

/// The subject of an entry of more than one class and method.
const SEVERAL: &str = "several classes";

/// Entries that are written together.
#[derive(Default)]
pub(super) struct Pending {
    pub entries: Vec<AuditEntry>,
    /// Places of the entries of single tasks, by the hash of what they have in common.
    groups: HashMap<u64, usize>,
    hasher: RandomState,
    /// Answered when all of these are written.
    pub waiting: Vec<oneshot::Sender<()>>,
    /// Entries for which there was no room.
    pub lost: u64,
}

impl Pending {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.waiting.is_empty() && self.lost == 0
    }

    /// Adds an entry as it is.
    pub fn add_entry(&mut self, entry: AuditEntry) {
        match self.entries.len() < ENTRIES_MAX {
            true => self.entries.push(entry),
            false => self.lost += 1,
        }
    }

    /// Adds the change of a task to the entry of its group: a caller, its address, a verb, and a class and method.
    pub fn add_task(&mut self, source: Source<'_>, verb: &'static str, key: &TaskKey) {
        let kind = match self.find(source, verb, key.class_method()) {
            None if self.groups.len() >= GROUPS_MAX => SEVERAL,
            _ => key.class_method(),
        };
        match self.find(source, verb, kind) {
            Some(at) => self.entries[at].join(kind, key),
            None if self.entries.len() >= ENTRIES_MAX => self.lost += 1,
            None => {
                let group = self.group(source, verb, kind);
                self.groups.insert(group, self.entries.len());
                self.entries.push(AuditEntry::of_task(source, verb, key));
            }
        }
    }

    fn group(&self, source: Source<'_>, verb: &str, kind: &str) -> u64 {
        let Source { caller, address } = source;
        self.hasher.hash_one((caller, address, verb, kind))
    }

    /// Returns the place of the entry of a group.
    fn find(&self, source: Source<'_>, verb: &str, kind: &str) -> Option<usize> {
        self.groups.get(&self.group(source, verb, kind)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::audit_log::entry::KEYS_MAX;

    const SHOP: Source<'static> = Source {
        caller: "shop",
        address: "10.0.0.1",
    };

    fn key(text: &str) -> TaskKey {
        TaskKey::parse(text).unwrap()
    }

    fn subjects(pending: &Pending) -> Vec<(&str, &str, u64, usize)> {
        let of = |entry: &'_ AuditEntry| (entry.tasks, entry.keys.len());
        let entries = pending.entries.iter();
        entries
            .map(|entry| (&*entry.verb, &*entry.subject, of(entry).0, of(entry).1))
            .collect()
    }

    #[test]
    fn the_tasks_of_one_class_and_method_share_an_entry_with_fifty_keys() {
        let mut pending = Pending::default();
        pending.add_task(SHOP, "cancel", &key("Order@close@1"));
        for number in 0..70 {
            pending.add_task(SHOP, "create", &key(&format!("Order@close@{number}")));
        }
        let cancelled = ("cancel", "Order@close@1", 1, 0);
        let created = ("create", "Order@close", 70, KEYS_MAX);
        assert_eq!(subjects(&pending), [cancelled, created]);
        assert_eq!(pending.entries[1].keys[0], "Order@close@0");
    }

    #[test]
    fn entries_are_bounded_however_many_classes_there_are() {
        let mut pending = Pending::default();
        for number in 0..1_000 {
            pending.add_task(SHOP, "create", &key(&format!("C{number}@m")));
        }
        assert_eq!(pending.entries.len(), GROUPS_MAX + 1);
        let last = pending.entries.last().unwrap();
        assert_eq!((&*last.subject, last.tasks), (SEVERAL, 1_000 - 64));
        let counted: u64 = pending.entries.iter().map(|entry| entry.tasks).sum();
        assert_eq!(counted, 1_000);
    }
}
