//! Changes of several tasks in one transaction.

use rusqlite::Result;

use super::rows::{insert, save, save_brief, some};
use super::session::Session;
use crate::ledger::row::Row;
use crate::ledger::{Change, Changed, Decide, LedgerError, See};
use crate::task::TaskKey;

/// Rows that are kept in memory between their reading and their change. Others are read again: a row may have
/// some 100 KiB.
const ROWS_KEPT: usize = 64;

/// As [`Producer::standing`](crate::ledger::Producer::standing).
pub(super) fn standing(session: &Session<'_>, keys: &[TaskKey], see: &dyn See) -> Result<()> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    for (place, key) in keys.iter().enumerate() {
        let found = some(&mut find, [key.as_str()], !see.needs_payload(place))?;
        see.see(place, found.map(|stored| stored.row.series(session.now)));
    }
    Ok(())
}

/// As [`Producer::change`](crate::ledger::Producer::change). The inner error: nothing was changed.
pub(super) fn change(
    session: &Session<'_>,
    keys: &[TaskKey],
    see: &dyn See,
    decide: &Decide,
) -> Result<std::result::Result<Vec<Changed>, LedgerError>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let mut kept: Vec<Option<Row>> = Vec::with_capacity(keys.len().min(ROWS_KEPT));
    let mut sizes: Vec<u64> = Vec::with_capacity(keys.len());
    for (place, key) in keys.iter().enumerate() {
        let stored = some(&mut find, [key.as_str()], !see.needs_payload(place))?;
        sizes.push(stored.as_ref().map_or(0, |stored| stored.bytes));
        let row = stored.map(|stored| stored.row);
        see.see(place, row.as_ref().map(|row| row.series(session.now)));
        if place < ROWS_KEPT {
            kept.push(row);
        }
    }
    let changes = decide(session.now);
    let (bytes, most) = (changed_bytes(&sizes, &changes), see.changed_bytes_max());
    if bytes > most {
        return Ok(Err(LedgerError::TooLarge { bytes, most }));
    }
    let mut save_row = session.prepare(&session.queries.save)?;
    let mut save_brief_row = session.prepare(&session.queries.save_brief)?;
    let mut write_new = session.prepare(&session.queries.insert)?;
    let mut changed = Vec::with_capacity(keys.len());
    let mut kept = kept.into_iter();
    for (key, change) in keys.iter().zip(changes) {
        let row = match kept.next() {
            Some(row) => row,
            None if matches!(change, Change::Keep) => None,
            // A row keeps its payload, which is not written, or gets another one.
            None => some(&mut find, [key.as_str()], true)?.map(|stored| stored.row),
        };
        changed.push(match (row, change) {
            (_, Change::Keep) | (None, Change::Move(_) | Change::Cancel) => Changed::Kept,
            (Some(mut row), change @ (Change::Move(_) | Change::Cancel)) => {
                let changed = row.change(change, session.now);
                save_brief(&mut save_brief_row, &row)?;
                changed
            }
            (Some(row), Change::Write(task)) if row.has_begun(&task, session.now) => {
                Changed::Armed(row.arming())
            }
            (Some(mut row), change) => {
                let changed = row.change(change, session.now);
                save(&mut save_row, &row)?;
                changed
            }
            (None, Change::Write(task)) => {
                let mut row = Row::new(0, &task, session.now);
                insert(&mut write_new, &row)?;
                let id = session.connection.last_insert_rowid();
                row.id = u64::try_from(id).unwrap_or_default();
                Changed::Armed(row.arming())
            }
        });
    }
    Ok(Ok(changed))
}

/// Bytes of the rows that are changed, and of what is written over them.
fn changed_bytes(sizes: &[u64], changes: &[Change]) -> u64 {
    let of_one = |(size, change): (&u64, &Change)| match change {
        Change::Keep => 0,
        Change::Move(_) | Change::Cancel => *size,
        Change::Write(task) => size + task.payload.as_ref().map_or(0, |it| it.len() as u64),
    };
    sizes.iter().zip(changes).map(of_one).sum()
}
