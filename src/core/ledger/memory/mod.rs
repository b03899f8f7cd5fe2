//! The ledger in memory, for tests without servers: the verbs of `ledger::rows`, as in an SQLite file.
//!
//! Its clock is tokio's, so a test that pauses time moves the clock by hand. Nothing survives the process.

mod side_tables;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;

use self::table::{MemoryStore, Table};
use super::rows::store::Store;
use super::rows::{Length, RowLedger};
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

/// A copy of a ledger at some moment.
#[derive(Debug, Clone)]
pub struct Dump(Table);

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

    /// Copies everything.
    pub fn dump(&self) -> Dump {
        Dump(self.store().table.clone())
    }

    /// Replaces everything by what was copied.
    pub fn restore(&self, dump: Dump) {
        *self.store().table = dump.0;
    }

    fn store(&self) -> MemoryStore<MutexGuard<'_, Table>> {
        let table = self.table.lock();
        MemoryStore {
            table: table.expect("nothing panics while holding the table"),
            now: self.clock.now(),
        }
    }
}

impl RowLedger for MemoryLedger {
    async fn read<T, V>(&self, _: Length, verb: V) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
    {
        verb(&mut self.store())
    }

    async fn write<T, V>(&self, _: Length, verb: V) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
    {
        verb(&mut self.store())
    }

    fn identity(&self) -> Option<String> {
        Some(format!("memory {:p}", &raw const self.table))
    }

    fn note_read_ahead(&self, rows: usize) {
        self.read_ahead.fetch_add(rows as u64, Ordering::Relaxed);
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
