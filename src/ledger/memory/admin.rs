//! Administration in memory.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLedger;
use super::table::Table;
use crate::ledger::row::{Row, Status};
use crate::ledger::{
    Admin, DetailedStats, DetailedStatsLimits, LedgerError, ListCursor, ListFilter, ListOrder,
    ListPage, Picked, RunNowAnswer, StateFilter, TaskRecord,
};
use crate::task::{Paused, State, TaskKey, UnixMs};

#[async_trait]
impl Admin for MemoryLedger {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let now = self.clock.now();
        Ok(self.table().of_key(key).map(|row| row.record(now)))
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let (rows, next) = fitting(&table, filter, now)?;
        Ok(ListPage {
            tasks: rows
                .iter()
                .map(|row| match filter.brief {
                    true => row.record(now).in_brief(),
                    false => row.record(now),
                })
                .collect(),
            next,
            ..ListPage::default()
        })
    }

    async fn overdue_for(&self) -> Result<Duration, LedgerError> {
        let now = self.clock.now();
        let table = self.table();
        let overdue = table.rows.values().filter(|row| row.free_and_due(now));
        let waited = overdue.map(|row| now.since(row.due_at()));
        Ok(waited.max().unwrap_or_default())
    }

    async fn detailed_stats(&self, _: DetailedStatsLimits) -> Result<DetailedStats, LedgerError> {
        Ok(self.detailed_stats_of(self.counts()))
    }

    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        let held_before = Paused::of(&self.table().pauses).held_before_of(key);
        Ok(self.make_due(key, |row, now| row.run_now(held_before, now)))
    }

    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        Ok(self.make_due(key, Row::redrive))
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        let dead = ListFilter {
            states: vec![StateFilter::Is(State::Dead)],
            ..filter.clone()
        };
        let table = self.table();
        let (rows, next) = fitting(&table, &dead, self.clock.now())?;
        Ok(Picked {
            rows: rows.iter().map(|row| row.id).collect(),
            next,
        })
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut redrive = |id: &u64| table.rows.get_mut(id).is_some_and(|row| row.redrive(now));
        Ok(rows.iter().filter(|id| redrive(id)).count() as u64)
    }

    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError> {
        let table = self.table();
        let dead = rows.iter().filter_map(|id| table.rows.get(id));
        let dead = dead.filter(|row| row.status == Status::Dead);
        Ok(dead.map(|row| row.key.clone()).collect())
    }

    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        let mut table = self.table();
        let mut discard = |id: &u64| {
            let dead = table
                .rows
                .get(id)
                .is_some_and(|row| row.status == Status::Dead);
            dead && table.remove(*id)
        };
        Ok(rows.iter().filter(|id| discard(id)).count() as u64)
    }
}

impl MemoryLedger {
    /// Applies `change` to the row of a key. `change` returns false if the state of the row does not allow it.
    fn make_due(
        &self,
        key: &TaskKey,
        change: impl FnOnce(&mut Row, UnixMs) -> bool,
    ) -> RunNowAnswer {
        let now = self.clock.now();
        match self.table().of_key(key) {
            None => RunNowAnswer::Unknown,
            Some(row) => match change(row, now) {
                true => RunNowAnswer::Due(row.arming()),
                false => RunNowAnswer::Refused(row.state(now)),
            },
        }
    }
}

/// Returns the rows that match, in the order of the filter, and where the next page begins.
fn fitting<'a>(
    table: &'a Table,
    filter: &ListFilter,
    now: UnixMs,
) -> Result<(Vec<&'a Row>, Option<ListCursor>), LedgerError> {
    filter.check_cursor()?;
    let order = filter.order();
    let behind = |row: &&Row| match &filter.cursor {
        None => true,
        Some(ListCursor::Row(id)) => row.id > *id,
        Some(ListCursor::Key(key)) => row.key.as_str() > key.as_str(),
        Some(ListCursor::Due {
            status,
            deleted,
            due_at,
            row: id,
        }) => place(order, row) > (*status, *deleted, *due_at, *id, ""),
    };
    let rows = table.rows.values().filter(|row| row.fits(filter, now));
    let mut rows: Vec<&Row> = rows.filter(behind).collect();
    rows.sort_by(|one, other| place(order, one).cmp(&place(order, other)));
    rows.truncate(filter.limit as usize);
    let last = rows.last().filter(|_| rows.len() == filter.limit as usize);
    let next = last.map(|row| match order {
        ListOrder::Row => ListCursor::Row(row.id),
        ListOrder::Key => ListCursor::Key(row.key.to_string()),
        ListOrder::Due => ListCursor::Due {
            status: row.status as u8,
            deleted: row.deleted,
            due_at: row.due_at(),
            row: row.id,
        },
    });
    Ok((rows, next))
}

/// Returns the sort key of a row in a list of this order.
fn place(order: ListOrder, row: &Row) -> (u8, bool, UnixMs, u64, &str) {
    match order {
        ListOrder::Row => (0, false, UnixMs(0), row.id, ""),
        ListOrder::Key => (0, false, UnixMs(0), 0, row.key.as_str()),
        ListOrder::Due => (row.status as u8, row.deleted, row.due_at(), row.id, ""),
    }
}
