//! Moves between ledgers, in memory.

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::LedgerError;
use crate::ledger::row::{Arrival, Row, Status};
use crate::ledger::transfer::{GiveUp, MovePage, MovePlace, MovingTask, Rows, Staged, Transfers};
use crate::task::TaskKey;

#[async_trait]
impl Transfers for MemoryLedger {
    fn identity(&self) -> Option<String> {
        Some(format!("memory {:p}", &raw const self.table))
    }

    async fn whole_rows(
        &self,
        which: Rows,
        after: Option<MovePlace>,
        limit: u32,
    ) -> Result<MovePage, LedgerError> {
        let table = self.table();
        let fits = |row: &&Row| {
            (row.status == Status::Unprocessed) == (which == Rows::Unfinished)
                && after.is_none_or(|after| row.place() > after)
        };
        let mut rows: Vec<&Row> = table.rows.values().filter(fits).collect();
        rows.sort_by_key(|row| row.place());
        let next = match rows.get(limit as usize..) {
            Some([_, ..]) => rows.get(limit as usize - 1).map(|row| row.place()),
            _ => None,
        };
        rows.truncate(limit as usize);
        Ok(MovePage {
            tasks: rows
                .into_iter()
                .map(|row| MovingTask { row: row.clone() })
                .collect(),
            foreign: 0,
            next,
        })
    }

    async fn stage(&self, tasks: &[MovingTask]) -> Result<Vec<Staged>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut stage = |task: &MovingTask| {
            let existing = table.of_key(task.key()).map(|row| row.clone());
            match task.row.arrive(existing.as_ref(), now) {
                Arrival::Write => {
                    table.put(|id| task.row.staged(id, existing.as_ref()), task.key());
                    Staged::Held
                }
                Arrival::Known => Staged::Known,
                Arrival::Busy => Staged::Busy,
            }
        };
        Ok(tasks.iter().map(&mut stage).collect())
    }

    async fn freeze(&self, tasks: &[MovingTask]) -> Result<Vec<bool>, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut freeze = |task: &MovingTask| {
            let row = table.of_key(task.key());
            row.is_some_and(|row| row.freeze(&task.row, now))
        };
        Ok(tasks.iter().map(&mut freeze).collect())
    }

    async fn admit(&self, keys: &[TaskKey]) -> Result<(), LedgerError> {
        self.each(keys, |row, now| row.admit(now));
        Ok(())
    }

    async fn unstage(&self, keys: &[TaskKey]) -> Result<(), LedgerError> {
        self.each(keys, |row, now| row.unstage(now));
        Ok(())
    }

    async fn give_up(
        &self,
        keys: &[TaskKey],
        how: GiveUp,
        note: &str,
    ) -> Result<Vec<TaskKey>, LedgerError> {
        let mut held = Vec::new();
        self.each(keys, |row, now| {
            if row.give_up(how, note, now) {
                held.push(row.key.clone());
            }
        });
        Ok(held)
    }

    async fn copy(&self, tasks: &[MovingTask]) -> Result<u64, LedgerError> {
        let mut table = self.table();
        let mut copied = 0;
        for task in tasks {
            if table.of_key(task.key()).is_none() {
                let copy = |id| Row {
                    id,
                    ..task.row.clone()
                };
                table.put(copy, task.key());
                copied += 1;
            }
        }
        Ok(copied)
    }
}

impl MemoryLedger {
    fn each(&self, keys: &[TaskKey], mut act: impl FnMut(&mut Row, crate::task::UnixMs)) {
        let now = self.clock.now();
        let mut table = self.table();
        for key in keys {
            if let Some(row) = table.of_key(key) {
                act(row, now);
            }
        }
    }
}
