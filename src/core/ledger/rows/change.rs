//! Changes of several tasks in one transaction.

use super::store::{At, Columns, Parts, RowStore};
use super::{Result, insert};
use crate::ledger::row::Row;
use crate::ledger::{Change, Changed, Decide, LedgerError, See};
use crate::task::TaskKey;

/// Rows that are kept in memory between their reading and their change. Others are read again: a row may have
/// some 100 KiB.
const ROWS_KEPT: usize = 64;

/// As [`Producer::read_rows`](crate::ledger::Producer::read_rows).
pub fn read_rows(store: &mut dyn RowStore, keys: &[TaskKey], see: &dyn See) -> Result<()> {
    for (place, key) in keys.iter().enumerate() {
        let parts = Parts::of(!see.needs_payload(place));
        let found = store.row(At::Key(key), parts)?;
        see.see(place, found.map(|stored| stored.row.snapshot(store.now())));
    }
    Ok(())
}

/// As [`Producer::change`](crate::ledger::Producer::change).
pub fn change(
    store: &mut dyn RowStore,
    keys: &[TaskKey],
    see: &dyn See,
    decide: &Decide,
) -> Result<Vec<Changed>> {
    let now = store.now();
    let mut kept: Vec<Option<Row>> = Vec::with_capacity(keys.len().min(ROWS_KEPT));
    let mut sizes: Vec<u64> = Vec::with_capacity(keys.len());
    for (place, key) in keys.iter().enumerate() {
        let parts = Parts::of(!see.needs_payload(place));
        let stored = store.row(At::Key(key), parts)?;
        sizes.push(stored.as_ref().map_or(0, |stored| stored.bytes));
        let row = stored.map(|stored| stored.row);
        see.see(place, row.as_ref().map(|row| row.snapshot(now)));
        if place < ROWS_KEPT {
            kept.push(row);
        }
    }
    let changes = decide(now);
    let (bytes, most) = (changed_bytes(&sizes, &changes), see.changed_bytes_max());
    if bytes > most {
        return Err(LedgerError::TooLarge { bytes, most });
    }
    let mut changed = Vec::with_capacity(keys.len());
    let mut kept = kept.into_iter();
    for (key, change) in keys.iter().zip(changes) {
        let row = match kept.next() {
            Some(row) => row,
            None if matches!(change, Change::Keep) => None,
            // A row keeps its payload, which is not written, or gets another one.
            None => store
                .row(At::Key(key), Parts::Brief)?
                .map(|stored| stored.row),
        };
        changed.push(change_row(store, row, change)?);
    }
    Ok(changed)
}

fn change_row(store: &mut dyn RowStore, row: Option<Row>, change: Change) -> Result<Changed> {
    let now = store.now();
    let (mut row, columns) = match (row, &change) {
        (_, Change::Keep) | (None, Change::Move(_) | Change::Cancel) => return Ok(Changed::Kept),
        (Some(row), Change::Move(_) | Change::Cancel) => (row, Columns::Brief),
        (Some(row), Change::Write(task)) if row.has_started(task, now) => {
            return Ok(Changed::Armed(row.arming()));
        }
        (Some(row), Change::Write(_)) => (row, Columns::All),
        (None, Change::Write(task)) => {
            let mut row = Row::new(0, task, now);
            insert(store, &mut row)?;
            return Ok(Changed::Armed(row.arming()));
        }
    };
    let changed = row.change(change, now);
    store.save(&row, columns)?;
    Ok(changed)
}

/// Bytes of the rows that are changed, and of what is written over them.
fn changed_bytes(sizes: &[u64], changes: &[Change]) -> u64 {
    let of_one = |(size, change): (&u64, &Change)| match change {
        Change::Keep => 0,
        Change::Move(_) | Change::Cancel => *size,
        Change::Write(task) => {
            let payload = task.contents.payload.as_ref();
            size + payload.map_or(0, |it| it.len() as u64)
        }
    };
    sizes.iter().zip(changes).map(of_one).sum()
}
