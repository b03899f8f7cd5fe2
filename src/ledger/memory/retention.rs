//! Retention in memory.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ledger::row::{Row, Status};
use crate::ledger::{DuePlace, LedgerError, Prune, PruneCursor, Pruned, Retention};
use crate::task::{State, UnixMs};

#[async_trait]
impl Retention for MemoryLedger {
    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        let now = self.clock.now();
        let status = match prune.state {
            State::Done => Status::Processed,
            State::Dead => Status::Dead,
            State::Cancelled => Status::Cancelled,
            State::Pending | State::Waiting | State::Running => return Ok(Pruned::default()),
        };
        let mut table = self.table();
        let since = |row: &Row| row.due_at().max(row.finished());
        let mut rows: Vec<(UnixMs, u64, UnixMs)> = table
            .rows
            .values()
            .filter(|row| row.status == status && !row.is_configured())
            .map(|row| (row.due_at(), row.id, since(row)))
            .collect();
        rows.sort_unstable();
        let after = prune.after.map(|after| (after.due_at, after.row));
        rows.retain(|(due_at, id, _)| after.is_none_or(|after| (*due_at, *id) > after));
        let more = rows.len() > prune.limit as usize;
        rows.truncate(prune.limit as usize);
        let mut pruned = Pruned {
            next: rows
                .last()
                .filter(|_| more)
                .map(|(due_at, row, _)| PruneCursor {
                    deleted: false,
                    due_at: *due_at,
                    row: *row,
                }),
            ..Pruned::default()
        };
        for (due_at, row, since) in rows {
            let age = now.since(since);
            let place = PruneCursor {
                deleted: false,
                due_at,
                row,
            };
            let is_surplus = prune.surplus.is_some_and(|last| place <= last);
            let spare = is_surplus && since <= now && age >= Prune::AGE_MIN;
            let old = since <= now && prune.age.is_some_and(|limit| age >= limit);
            if !spare && !old {
                continue;
            }
            if prune.dry_run {
                let key = table.rows.get(&row).map(|row| row.key.clone());
                pruned.found.push((row, key));
            }
            if prune.dry_run || table.remove(row) {
                pruned.rows += 1;
            }
        }
        Ok(pruned)
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let youngest = Prune::AGE_MIN.min(prune.age.unwrap_or(Duration::MAX));
        let mut forget = |id: &u64| {
            let goes = table.rows.get(id).is_some_and(|row| {
                row.status != Status::Unprocessed
                    && row.state(now) == prune.state
                    && !row.is_configured()
                    && now.since(row.finished()) >= youngest
            });
            goes && table.remove(*id)
        };
        Ok(rows.iter().filter(|id| forget(id)).count() as u64)
    }

    /// Ends all in one page.
    async fn end_cancelled(
        &self,
        _after: Option<DuePlace>,
    ) -> Result<(u64, Option<DuePlace>), LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut rows = table.rows.values_mut();
        let ended = rows
            .by_ref()
            .filter_map(|row| row.end_cancelled_run(now).then_some(()));
        Ok((ended.count() as u64, None))
    }

    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let rows = table.rows.values();
        let finished = rows.filter(|row| row.status != Status::Unprocessed);
        let of_state = finished.filter(|row| row.state(now) == state);
        let mut places: Vec<PruneCursor> = of_state
            .map(|row| PruneCursor {
                deleted: false,
                due_at: row.due_at(),
                row: row.id,
            })
            .collect();
        places.sort_unstable();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        Ok(places.into_iter().rev().nth(keep))
    }
}
