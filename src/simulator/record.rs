//! What a history consists of.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::UnixMs;

/// What the table and the archive have.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    pub rows: Vec<Row>,
    pub archived: Vec<Row>,
}

/// Who acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A run of a daemon: its number, and how often it was started before.
    Daemon { number: usize, start: usize },
    /// A producer, between its operations.
    Producer(usize),
    /// An operation, by its place in the history.
    Op(usize),
    /// A pull worker.
    Worker(usize),
    /// A run of `lapsed move`: its number, and how often it was started before.
    Mover { number: usize, start: usize },
}

/// One of the two ledgers of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Source,
    Destination,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Source, Self::Destination];

    pub fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// What the handler of a task was called with.
#[derive(Debug, Clone)]
pub struct Call {
    pub id: String,
    pub row: u64,
    pub due: UnixMs,
    pub attempt: u16,
    pub payload: Option<String>,
    /// The owner in the claim token of a worker.
    pub owner: Option<[u8; 16]>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Succeeded,
    Failed,
    FailedForGood,
    Snoozed,
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The ledger holds this arming.
    Armed { row: u64, due: UnixMs },
    /// The ledger holds all these armings.
    AllArmed(Vec<(u64, UnixMs)>),
    /// The row of its key is as it asked.
    Written,
    /// No task was pending that has this key.
    NothingPending,
    /// No task of the class of its key is in this state any more that was so before.
    NoneLeft(Status),
    /// The payload of the task, or that there is none.
    Payload(Option<String>),
    /// The task is cancelled.
    Cancelled,
    /// The task runs, and no further attempt will start.
    Cancelling,
    /// Something else, which promises nothing.
    Other(String),
    /// It failed: it may have been done or not.
    Failed(String),
}
