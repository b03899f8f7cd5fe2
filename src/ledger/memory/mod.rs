//! The ledger in memory: the rules of the MySQL ledger, for tests without servers.
//!
//! Its clock is tokio's, so a test that pauses time moves the clock by hand. Nothing survives the process.

mod admin;
mod adoption;
mod claims;
mod detailed_stats;
mod documents;
mod pauses;
mod producer;
mod retention;
mod scans;
mod table;
mod transfer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;

use self::table::Table;
use super::{Ledger, LedgerError};
use crate::clock::LedgerClock;
use crate::task::UnixMs;

/// A ledger in memory.
#[derive(Debug)]
pub struct MemoryLedger {
    clock: LedgerClock,
    table: Mutex<Table>,
    read_ahead: AtomicU64,
}

impl MemoryLedger {
    /// Creates an empty ledger whose clock starts at `now`.
    pub fn new(now: UnixMs) -> Self {
        Self::on(LedgerClock::starting_at(now))
    }

    /// Creates an empty ledger on this clock.
    pub fn on(clock: LedgerClock) -> Self {
        Self {
            clock,
            table: Mutex::default(),
            read_ahead: AtomicU64::new(0),
        }
    }

    /// Returns the number of future rows that scans have returned so far: the cost of the look-ahead, for tests.
    pub fn rows_read_ahead(&self) -> u64 {
        self.read_ahead.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table
            .lock()
            .expect("nothing panics while holding the table")
    }
}

impl Default for MemoryLedger {
    /// Creates an empty ledger whose clock starts at this machine's time.
    fn default() -> Self {
        Self::new(crate::clock::wall())
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        Ok(self.clock.now())
    }

    async fn check(&self) -> Result<(), LedgerError> {
        Ok(())
    }
}
