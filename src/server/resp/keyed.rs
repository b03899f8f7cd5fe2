//! Commands about tasks by key, as they are batched and queued.

use lapsed::client::Task;
use lapsed::contract::TaskRequest;
use lapsed::ledger::IfPending;
use lapsed::task::TaskKey;
use xxhash_rust::xxh3::xxh3_64;

/// The error for a key that would never expire.
pub const NEEDS_DUE_TIME: &str = "a key is a task here and needs a due time, expected EX, PX, EXAT or PXAT: this is a scheduler, not a store";

/// The error for a recurring task in a transaction.
pub const NOT_IN_TRANSACTION: &str = "EVERY and CRON are not allowed between MULTI and EXEC";

/// A key of a command. `None`: it is not a task key, so no task has it.
pub type Key = Option<TaskKey>;

/// A command about tasks by key.
#[derive(Debug, Clone)]
pub enum Keyed {
    /// `SET`, `SETEX`, `PSETEX`, `LAPSED.SCHEDULE`.
    Set(Box<Set>),
    /// `MSETEX`: writes all of them or none. `when` is [`When::Always`], [`When::Missing`] or [`When::Present`] of all keys.
    SetAll {
        /// The tasks. Each is written whether there is one or not.
        sets: Vec<Set>,
        /// When to write them.
        when: When,
    },
    /// `LAPSED.SCHEDULE` with `EVERY` or `CRON`. Not part of a transaction.
    Repeat(Box<TaskRequest>),
    /// `GET`.
    Get(Key),
    /// `DIGEST`: the XXH3 digest of what `GET` answers.
    Digest(Key),
    /// `EXISTS`, `TOUCH`: how many of these keys exist.
    Exists(Vec<Key>),
    /// `TYPE`.
    Type(Key),
    /// `DEL`, `UNLINK`: cancels, and counts tasks that will not start.
    Delete(Vec<Key>),
    /// `DELEX` with a condition.
    DeleteIf {
        /// The task.
        key: Key,
        /// The condition on its value.
        value: Condition,
    },
    /// `LAPSED.CANCEL`: cancels, and says for each key what became of it.
    Cancel(Vec<Key>),
    /// `EXPIRE` and its kin.
    Expire {
        /// The task.
        key: Key,
        /// Its new due time.
        expiry: Expiry,
        /// When to change it.
        only: OnlyIf,
    },
    /// `PERSIST`: a task that is never due is a cancelled one.
    Persist(Key),
    /// `TTL` and its kin.
    Remaining {
        /// The task.
        key: Key,
        /// Milliseconds; else seconds, rounded.
        in_ms: bool,
        /// The due time itself; else the time until then.
        absolute: bool,
    },
}

/// A task to write.
#[derive(Debug, Clone)]
pub struct Set {
    /// The task.
    pub task: Task,
    /// Its key.
    pub key: TaskKey,
    /// When it is due.
    pub expiry: Expiry,
    /// When to write it.
    pub when: When,
    /// Whether the reply is the value before.
    pub get: bool,
    /// Whether the reply is the due time in milliseconds, instead of `OK`.
    pub answers_due: bool,
}

impl Set {
    /// True if it needs nothing that is in the ledger: it can share a statement with others.
    ///
    /// A due time that is a moment may be the one at which the task has run already: then the row has to be read.
    pub fn is_plain(&self) -> bool {
        matches!(self.when, When::Always | When::Policy(IfPending::Move))
            && !self.get
            && matches!(self.expiry, Expiry::In(_))
    }
}

/// A due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Milliseconds from now.
    In(i64),
    /// Unix milliseconds.
    At(i64),
    /// That of the existing task.
    Keep,
}

/// When to write a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// If there is none: `NX`.
    Missing,
    /// If there is one: `XX`.
    Present,
    /// If its value is like this: `IFEQ` and `IFNE`. One without a value is not equal to any.
    Value(Condition),
    /// As [`IfPending`] says.
    Policy(IfPending),
}

/// A condition on the value of a key, as `GET` answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `IFEQ`.
    Equal(Vec<u8>),
    /// `IFNE`.
    NotEqual(Vec<u8>),
    /// `IFDEQ`: the XXH3 digest is this one.
    DigestEqual(u64),
    /// `IFDNE`.
    DigestNotEqual(u64),
}

/// The XXH3 digest of a value.
pub fn digest_of(value: &str) -> u64 {
    xxh3_64(value.as_bytes())
}

impl Condition {
    /// True for a value of which it holds.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Self::Equal(other) => value.as_bytes() == other,
            Self::NotEqual(other) => value.as_bytes() != other,
            Self::DigestEqual(digest) => digest_of(value) == *digest,
            Self::DigestNotEqual(digest) => digest_of(value) != *digest,
        }
    }

    /// True if it asks for another value, and so holds of a key that does not exist.
    pub fn is_negative(&self) -> bool {
        matches!(self, Self::NotEqual(_) | Self::DigestNotEqual(_))
    }
}

/// When to change a due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnlyIf {
    /// If it has none.
    pub none: bool,
    /// If the new one is later.
    pub later: bool,
    /// If the new one is earlier.
    pub earlier: bool,
}

impl Keyed {
    /// Calls `name` with each task key.
    pub fn each_key<'a>(&'a self, mut name: impl FnMut(&'a TaskKey)) {
        match self {
            Self::Set(_) | Self::SetAll { .. } => self.sets().iter().for_each(|set| name(&set.key)),
            Self::Repeat(repeat) => name(repeat.key()),
            Self::Get(key)
            | Self::Digest(key)
            | Self::Type(key)
            | Self::DeleteIf { key, .. }
            | Self::Expire { key, .. }
            | Self::Persist(key)
            | Self::Remaining { key, .. } => key.iter().for_each(name),
            Self::Exists(keys) | Self::Delete(keys) | Self::Cancel(keys) => {
                keys.iter().flatten().for_each(name);
            }
        }
    }

    /// Number of task keys.
    pub fn keys(&self) -> usize {
        let mut keys = 0;
        self.each_key(|_| keys += 1);
        keys
    }

    /// True if its reply depends on the value of a key.
    pub fn reads_value(&self) -> bool {
        match self {
            Self::Get(_) | Self::Digest(_) | Self::DeleteIf { .. } => true,
            Self::Set(set) => set.get || matches!(set.when, When::Value(_)),
            _ => false,
        }
    }

    /// Returns the tasks to write.
    pub fn sets(&self) -> &[Set] {
        match self {
            Self::Set(set) => std::slice::from_ref(&**set),
            Self::SetAll { sets, .. } => sets,
            _ => &[],
        }
    }

    /// True if it changes nothing.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Get(_)
            | Self::Digest(_)
            | Self::Exists(_)
            | Self::Type(_)
            | Self::Remaining { .. } => true,
            Self::Set(_)
            | Self::SetAll { .. }
            | Self::Repeat(_)
            | Self::Delete(_)
            | Self::DeleteIf { .. }
            | Self::Cancel(_)
            | Self::Expire { .. }
            | Self::Persist(_) => false,
        }
    }
}
