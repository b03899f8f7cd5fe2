//! Changes of several tasks in one transaction.

use rusqlite::Result;

use super::rows::{insert, one, save, some};
use super::session::Session;
use crate::ledger::row::Row;
use crate::ledger::{Change, Changed, Decide, See};
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

/// As [`Producer::change`](crate::ledger::Producer::change).
pub(super) fn change(
    session: &Session<'_>,
    keys: &[TaskKey],
    see: &dyn See,
    decide: &Decide,
) -> Result<Vec<Changed>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let mut kept: Vec<Option<Row>> = Vec::with_capacity(keys.len().min(ROWS_KEPT));
    for (place, key) in keys.iter().enumerate() {
        let is_kept = place < ROWS_KEPT;
        let is_brief = !is_kept && !see.needs_payload(place);
        let row = some(&mut find, [key.as_str()], is_brief)?.map(|stored| stored.row);
        see.see(place, row.as_ref().map(|row| row.series(session.now)));
        if is_kept {
            kept.push(row);
        }
    }
    let changes = decide(session.now);
    let mut save_row = session.prepare(&session.queries.save)?;
    let mut write_new = session.prepare(&session.queries.insert)?;
    let mut changed = Vec::with_capacity(keys.len());
    let mut kept = kept.into_iter();
    for (key, change) in keys.iter().zip(changes) {
        let row = match kept.next() {
            Some(row) => row,
            None if matches!(change, Change::Keep) => None,
            None => one(&mut find, [key.as_str()])?.map(|stored| stored.row),
        };
        changed.push(match (row, change) {
            (_, Change::Keep) | (None, Change::Move(_) | Change::Cancel) => Changed::Kept,
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
    Ok(changed)
}
