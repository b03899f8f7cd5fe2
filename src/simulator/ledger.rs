//! The connection of a process to the ledger: the verbs of the product on the ledger in memory, and faults before and
//! after each transaction.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapsed_core::clock::LedgerClock;
use lapsed_core::ledger::memory::MemoryLedger;
use lapsed_core::ledger::row::Row;
use lapsed_core::ledger::rows::store::{Columns, Parts, Range, RowStore, Store};
use lapsed_core::ledger::rows::{Length, RowLedger};
use lapsed_core::ledger::{Ledger, LedgerError};
use lapsed_core::task::UnixMs;
use tokio::time::{Instant, sleep};

use crate::history::History;
use crate::plan::FaultKind;
use crate::process::Process;
use crate::record::{Actor, Tables};

/// As the limit of a statement in MySQL.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

pub struct SimLedger {
    inner: Arc<MemoryLedger>,
    process: Arc<Process>,
    history: Arc<History>,
    clock: LedgerClock,
}

impl SimLedger {
    /// `ahead_ms` is how far the first estimate of the process is ahead of the ledger's clock.
    pub fn new(
        inner: Arc<MemoryLedger>,
        process: Arc<Process>,
        history: Arc<History>,
        ahead_ms: i64,
    ) -> Self {
        let now = inner.clock().now();
        Self {
            clock: LedgerClock::estimated_at(UnixMs(now.0 + ahead_ms)),
            inner,
            process,
            history,
        }
    }

    /// What happens on the way there.
    async fn send(&self) -> Result<(), LedgerError> {
        let process = &self.process;
        process.runs().await;
        if process.strikes(FaultKind::LedgerHangs) {
            let _waits = process.waits();
            let hang = process.outlasts(FaultKind::LedgerHangs);
            let _ = tokio::time::timeout(STATEMENT_TIMEOUT, hang).await;
            process.runs().await;
            return Err(unavailable("no answer"));
        }
        if process.strikes(FaultKind::LedgerSlow) {
            sleep(Duration::from_millis(process.draw(10, 1_500))).await;
        } else {
            self.on_the_way(2).await;
        }
        if process.strikes(FaultKind::LedgerUnreachable) {
            return Err(unavailable("connection refused"));
        }
        if process.strikes(FaultKind::LedgerRefuses) {
            return Err(LedgerError::Refused {
                message: "the disk is full".into(),
                source: None,
            });
        }
        if process.strikes(FaultKind::LedgerLocked) {
            sleep(Duration::from_secs(1)).await;
            return Err(LedgerError::Locked {
                message: "lock wait timeout exceeded".into(),
                source: None,
            });
        }
        process.runs().await;
        Ok(())
    }

    /// What happens on the way back.
    async fn receive<T>(&self, answer: Result<T, LedgerError>) -> Result<T, LedgerError> {
        self.on_the_way(1).await;
        self.process.runs().await;
        answer
    }

    async fn on_the_way(&self, ms_max: u64) {
        let ms = self.process.draw(0, ms_max);
        if ms > 0 {
            sleep(Duration::from_millis(ms)).await;
        }
    }
}

/// Runs a verb and notes the rows as it leaves them.
async fn apply<T, V>(
    inner: &MemoryLedger,
    history: Arc<History>,
    actor: Actor,
    length: Length,
    verb: V,
) -> Result<T, LedgerError>
where
    T: Send + 'static,
    V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
{
    let noting = move |store: &mut dyn Store| {
        let before = history.forgets().then(|| read_tables(store)).transpose()?;
        let answer = verb(store);
        if let Some(before) = before {
            restore_tables(before, store)?;
        }
        let after = read_tables(store)?;
        history.wrote(actor, store.now(), after);
        answer
    };
    inner.write(length, noting).await
}

/// Reads the table and its archive.
pub fn read_tables(store: &mut dyn Store) -> Result<Tables, LedgerError> {
    let (rows, mut archived) = (all_rows(store)?, Vec::new());
    store.in_archive(&mut |archive| {
        archived = all_rows(archive)?;
        Ok(())
    })?;
    Ok(Tables { rows, archived })
}

/// Takes back what a transaction has changed.
fn restore_tables(tables: Tables, store: &mut dyn Store) -> Result<(), LedgerError> {
    let Tables { rows, archived } = tables;
    restore(store, rows)?;
    store.in_archive(&mut |archive| restore(archive, archived.clone()))
}

fn all_rows(store: &mut dyn RowStore) -> Result<Vec<Row>, LedgerError> {
    let mut rows = Vec::new();
    let _ = store.walk(
        &Range::All { after: 0 },
        Parts::Whole,
        usize::MAX,
        &mut |stored| {
            rows.push(stored.row);
            ControlFlow::Continue(())
        },
    )?;
    Ok(rows)
}

fn restore(store: &mut dyn RowStore, before: Vec<Row>) -> Result<(), LedgerError> {
    for row in all_rows(store)? {
        if before.iter().all(|old| old.id != row.id) {
            store.delete(row.id)?;
        }
    }
    before
        .iter()
        .try_for_each(|row| store.save(row, Columns::All))
}

fn unavailable(message: &str) -> LedgerError {
    LedgerError::Unavailable {
        message: message.into(),
        source: None,
    }
}

impl RowLedger for SimLedger {
    async fn read<T, V>(&self, length: Length, verb: V) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
    {
        self.send().await?;
        let answer = self.inner.read(length, verb).await;
        self.receive(answer).await
    }

    async fn write<T, V>(&self, length: Length, verb: V) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T, LedgerError> + Send + 'static,
    {
        self.send().await?;
        let (process, history) = (&self.process, Arc::clone(&self.history));
        let actor = history.acting(process.actor);
        if process.strikes(FaultKind::LedgerAppliesLate) {
            let (inner, after) = (Arc::clone(&self.inner), process.draw(100, 9_000));
            tokio::spawn(async move {
                sleep(Duration::from_millis(after)).await;
                let _ = apply(&inner, Arc::clone(&history), actor, length, verb).await;
                // What it has claimed is known to nothing, until its lease ends.
                history.struck(FaultKind::LedgerAppliesLate, actor);
            });
            let _waits = process.waits();
            sleep(Duration::from_millis(process.draw(1, 5_000))).await;
            process.runs().await;
            return Err(unavailable("no answer; the statement is under way"));
        }
        let answer = apply(&self.inner, history, actor, length, verb).await;
        if process.strikes(FaultKind::LedgerAnswerLost) {
            let _waits = process.waits();
            sleep(Duration::from_millis(process.draw(1, 5_000))).await;
            process.runs().await;
            return Err(unavailable("the connection broke after the commit"));
        }
        self.receive(answer).await
    }

    fn identity(&self) -> Option<String> {
        Some("simulated".to_owned())
    }
}

#[async_trait]
impl Ledger for SimLedger {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        let asked = Instant::now();
        self.send().await?;
        let mut now = self.inner.clock().now();
        if self.process.strikes(FaultKind::ClockOff) {
            now.0 += i64::try_from(self.process.draw(0, 8_000)).unwrap_or(0) - 4_000;
        }
        now.0 += self.process.drift_ms();
        let now = self.receive(Ok(now)).await?;
        self.clock.observe_us(now.0 * 1_000, asked);
        Ok(now)
    }

    async fn now(&self) -> Result<UnixMs, LedgerError> {
        match self.clock.is_known() {
            true => Ok(self.clock.now()),
            false => self.sync_clock().await,
        }
    }

    async fn check(&self) -> Result<(), LedgerError> {
        self.sync_clock().await.map(drop)
    }
}
