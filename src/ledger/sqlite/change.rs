//! Changes of several tasks in one transaction.

use rusqlite::Result;

use super::rows::{insert, one, save};
use super::session::Session;
use crate::ledger::row::Row;
use crate::ledger::{Change, Changed, Decide, SeriesRow};
use crate::task::TaskKey;

/// As [`Producer::standing`](crate::ledger::Producer::standing).
pub(super) fn standing(session: &Session<'_>, keys: &[TaskKey]) -> Result<Vec<Option<SeriesRow>>> {
    let mut find = session.prepare(&session.queries.row_by_key)?;
    let mut read = |key: &TaskKey| {
        let found = one(&mut find, [key.as_str()])?;
        Ok(found.map(|stored| stored.row.series(session.now)))
    };
    keys.iter().map(&mut read).collect()
}

/// As [`Producer::change`](crate::ledger::Producer::change).
pub(super) fn change(
    session: &Session<'_>,
    keys: &[TaskKey],
    decide: &Decide,
) -> Result<Vec<Changed>> {
    let mut found: Vec<Option<Row>> = Vec::with_capacity(keys.len());
    {
        let mut find = session.prepare(&session.queries.row_by_key)?;
        for key in keys {
            found.push(one(&mut find, [key.as_str()])?.map(|stored| stored.row));
        }
    }
    let seen = |row: &Option<Row>| row.as_ref().map(|row| row.series(session.now));
    let rows: Vec<Option<SeriesRow>> = found.iter().map(seen).collect();
    let changes = decide(session.now, &rows);
    let mut save_row = session.prepare(&session.queries.save)?;
    let mut write_new = session.prepare(&session.queries.insert)?;
    let mut changed = Vec::with_capacity(keys.len());
    for (row, change) in found.into_iter().zip(changes) {
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
