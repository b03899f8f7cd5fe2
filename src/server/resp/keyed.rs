//! Commands about tasks by key, as they are batched and queued.

use lapsed::client::Task;
use lapsed::contract::TaskRequest;
use lapsed::ledger::IfPending;
use lapsed::task::TaskKey;

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
    /// `LAPSED.SCHEDULE` with `EVERY` or `CRON`. Not part of a transaction.
    Repeat(Box<TaskRequest>),
    /// `GET`.
    Get(Key),
    /// `EXISTS`, `TOUCH`: how many of these keys exist.
    Exists(Vec<Key>),
    /// `TYPE`.
    Type(Key),
    /// `DEL`, `UNLINK`: cancels, and counts tasks that will not start.
    Delete(Vec<Key>),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// If there is none: `NX`.
    Missing,
    /// If there is one: `XX`.
    Present,
    /// As [`IfPending`] says.
    Policy(IfPending),
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
            Self::Set(set) => name(&set.key),
            Self::Repeat(repeat) => name(repeat.key()),
            Self::Get(key)
            | Self::Type(key)
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

    /// True if its reply has the value of a key.
    pub fn reads_value(&self) -> bool {
        match self {
            Self::Get(_) => true,
            Self::Set(set) => set.get,
            _ => false,
        }
    }

    /// Returns the task to write, if it is one.
    pub fn as_set(&self) -> Option<&Set> {
        match self {
            Self::Set(set) => Some(set),
            _ => None,
        }
    }

    /// True if it changes nothing.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Get(_) | Self::Exists(_) | Self::Type(_) | Self::Remaining { .. } => true,
            Self::Set(_)
            | Self::Repeat(_)
            | Self::Delete(_)
            | Self::Cancel(_)
            | Self::Expire { .. }
            | Self::Persist(_) => false,
        }
    }
}
