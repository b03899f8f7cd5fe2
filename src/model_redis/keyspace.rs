//! The keys of a database: their values and when they expire.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use indexmap::IndexMap;

/// A name, a member, a field or a value.
pub(crate) type Bytes = Vec<u8>;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    String(Bytes),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Hash(IndexMap<Bytes, Bytes>),
    Sorted(Sorted),
    Stream(Stream),
}

impl Value {
    /// Its name in replies to `TYPE`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }
}

/// Entries of a stream by id, and the last id.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stream {
    pub(crate) entries: BTreeMap<(u64, u64), Vec<Bytes>>,
    pub(crate) last: (u64, u64),
}

/// A score that orders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // Adding zero makes the negative zero a positive one.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

/// A sorted set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sorted {
    by_member: BTreeMap<Bytes, f64>,
    by_score: BTreeSet<(Score, Bytes)>,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.by_member.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.by_member.get(member).copied()
    }

    pub(crate) fn insert(&mut self, member: Bytes, score: f64) {
        self.remove(&member);
        self.by_score.insert((Score(score), member.clone()));
        self.by_member.insert(member, score);
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        match self.by_member.remove_entry(member) {
            Some((member, score)) => self.by_score.remove(&(Score(score), member)),
            None => false,
        }
    }

    /// In order of score, then of member.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.by_score
            .iter()
            .map(|(score, member)| (member, score.0))
    }
}

/// A key's value, when it expires in milliseconds since 1970, and when it was last used.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    pub(crate) due: Option<i64>,
    pub(crate) used_ms: i64,
}

/// A database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Db {
    keys: BTreeMap<Bytes, Entry>,
    by_due: BTreeSet<(i64, Bytes)>,
    /// The key after which the active expiry continues.
    cursor: Bytes,
}

impl Db {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of keys that expire.
    pub(crate) fn expiring(&self) -> usize {
        self.by_due.len()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.keys()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// The value is free to change; the expiry is changed by [`set_due`](Self::set_due).
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.keys.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: Bytes, entry: Entry) {
        self.remove(&key);
        if let Some(due) = entry.due {
            self.by_due.insert((due, key.clone()));
        }
        self.keys.insert(key, entry);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let (key, entry) = self.keys.remove_entry(key)?;
        if let Some(due) = entry.due {
            self.by_due.remove(&(due, key));
        }
        Some(entry)
    }

    pub(crate) fn set_due(&mut self, key: &[u8], due: Option<i64>) {
        if let Some(mut entry) = self.remove(key) {
            entry.due = due;
            self.insert(key.to_vec(), entry);
        }
    }

    /// The earliest expiry.
    pub(crate) fn first_due(&self) -> Option<i64> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// The next `count` keys that expire, from the cursor on, with their expiry. Moves the cursor behind them.
    pub(crate) fn sample(&mut self, count: usize) -> Vec<(Bytes, i64)> {
        let count = count.min(self.by_due.len());
        let mut found = Vec::with_capacity(count);
        let behind = self.keys.iter().filter(|(key, _)| **key > self.cursor);
        let before = self.keys.iter().take_while(|(key, _)| **key <= self.cursor);
        for (key, entry) in behind.chain(before) {
            if found.len() == count {
                break;
            }
            found.extend(entry.due.map(|due| (key.clone(), due)));
        }
        if let Some((last, _)) = found.last() {
            self.cursor.clone_from(last);
        }
        found
    }

    /// Deletes the keys that are due before `now`, as loading does.
    pub(crate) fn forget_due(&mut self, now: i64) {
        while let Some((due, key)) = self.by_due.first().cloned()
            && due < now
        {
            self.remove(&key);
        }
    }
}
