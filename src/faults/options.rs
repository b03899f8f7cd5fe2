//! What to run.

use std::path::PathBuf;
use std::time::Duration;

use crate::plan::Fault;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `lapsed`.
    pub program: PathBuf,
    /// Decides the faults and the load.
    pub seed: u64,
    /// Length of the load.
    pub time: Duration,
    /// Number of tasks after which the load ends, too.
    pub tasks: u64,
    /// Tasks a second.
    pub rate: u64,
    /// Daemons on MariaDB.
    pub daemons: usize,
    /// These faults in this order, instead of those of the seed. The load ends with the last.
    pub faults: Option<Vec<Fault>>,
    /// The first daemon is left alive, and measured: it must not grow.
    pub measured: bool,
}

/// Where tasks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ledger {
    /// MariaDB and Redis, with several daemons.
    Mysql,
    /// A file and the RESP server, with one daemon.
    File,
}

impl Ledger {
    /// Time between faults. With one daemon, more of them excuse that a task is late.
    pub(crate) fn rest_ms(self) -> (u64, u64) {
        match self {
            Self::Mysql => (500, 3_500),
            Self::File => (3_000, 9_000),
        }
    }
}
