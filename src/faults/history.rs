//! What producers were told, what targets saw, what went wrong on purpose, and which rows are left.

use std::collections::BTreeMap;

/// Milliseconds since 1970 by the clock of this machine, which is that of the servers, too.
pub type Ms = i64;

/// Everything that is judged.
#[derive(Debug, Default)]
pub struct History {
    /// What producers did, by key.
    pub keys: BTreeMap<String, Story>,
    pub runs: Vec<Run>,
    pub windows: Vec<Window>,
    /// The rows after the end, by key.
    pub rows: BTreeMap<String, Row>,
    /// Length of a lease.
    pub lease_ms: Ms,
}

/// How a producer speaks to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `SET key "" PXAT ms` in Redis. A daemon adopts the key.
    Redis,
    /// `INSERT` into the table.
    Sql,
    /// The Rust client.
    Client,
    /// The program `lapsed schedule`.
    Cli,
    /// A Redis client of the RESP server.
    Resp,
}

/// What one producer did with a key, in order. It stops after the first answer that it does not get.
#[derive(Debug)]
pub struct Story {
    pub source: Source,
    pub ops: Vec<Op>,
    /// Answers that contradict what was acknowledged before.
    pub wrong: Vec<String>,
}

impl Story {
    pub fn new(source: Source) -> Self {
        Self {
            source,
            ops: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Writes down an operation. Without an answer, it may have happened.
    pub fn add(&mut self, asked: Ms, answered: Option<Ms>, step: Step) {
        self.ops.push(Op {
            asked,
            answered,
            step,
        });
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub asked: Ms,
    /// `None`: no answer came, so that it may have happened or not.
    pub answered: Option<Ms>,
    pub step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The key is armed for this time. `busy`: the answer was, or may have been, that an older arming is running.
    Arm { due: Ms, busy: bool },
    /// The task is cancelled. `busy`: the answer was that it is running.
    Cancel { busy: bool },
}

/// How a run ended, as its target tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// It asked for another attempt.
    Failed,
}

/// A run, as its target saw it.
#[derive(Debug, Clone)]
pub struct Run {
    /// The result of the run. 0: it has none.
    pub number: u64,
    /// The daemon that started it.
    pub daemon: usize,
    pub key: String,
    /// The due time in the id of the task.
    pub due: Ms,
    pub started: Ms,
    pub ended: Ended,
    /// The daemon answered that the claim is lost.
    pub fenced: bool,
}

/// A fault: from before it begins until after it has ended.
#[derive(Debug, Clone)]
pub struct Window {
    pub name: String,
    pub from: Ms,
    pub to: Ms,
    pub hits: Hits,
}

/// What a fault keeps from answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hits {
    /// Redis, or the way to it.
    Redis,
    /// The ledger, or the way to it: of one daemon, or of all and the producers.
    Ledger(Option<usize>),
    /// A daemon is killed, stops, or is frozen beyond its lease; `None`: all of them.
    Daemon(Option<usize>),
    /// A daemon is frozen for less than its lease.
    Pause(usize),
    /// A worker that takes tasks does not end them within their lease, or is gone.
    Worker(usize),
    /// The targets, or the way to them.
    Targets,
    /// This machine did not run this program for some time.
    Machine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Pending,
    Done,
    Dead,
    Cancelled,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub due: Ms,
    pub left: Left,
    /// It is dead because its leases ran out three times.
    pub is_poison: bool,
    /// The run whose result it has.
    pub result: Option<u64>,
}
