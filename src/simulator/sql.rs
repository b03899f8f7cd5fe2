//! What programs do to the rows of tasks, without lapsed.

use lapsed_core::ledger::LedgerError;
use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::ledger::rows::store::{At, Columns, Parts, Store};
use lapsed_core::task::{Contents, Origin, TaskKey, UnixMs};

/// What a program does that knows only the first six columns.
pub fn cancel(store: &mut dyn Store, key: &TaskKey) -> Result<(), LedgerError> {
    if let Some(mut stored) = store.row(At::Key(key), Parts::Whole)?
        && stored.row.status == Status::Unprocessed
    {
        stored.row.deleted = true;
        store.save(&stored.row, Columns::All)?;
    }
    Ok(())
}

/// The `INSERT .. ON DUPLICATE KEY UPDATE` of the documentation. Returns the id of the row.
pub fn create(
    store: &mut dyn Store,
    key: TaskKey,
    due: UnixMs,
    payload: String,
) -> Result<u64, LedgerError> {
    let now = store.now();
    if let Some(mut stored) = store.row(At::Key(&key), Parts::Whole)? {
        let row = &mut stored.row;
        (row.status, row.deleted) = (Status::Unprocessed, false);
        (row.start_time, row.end_time) = (now, due);
        row.contents = Contents {
            payload: Some(payload),
            ..Contents::default()
        };
        (row.recurrence, row.origin) = (None, Origin::Row);
        store.save(&stored.row, Columns::All)?;
        return Ok(stored.row.id);
    }
    let contents = Contents {
        payload: Some(payload),
        ..Contents::default()
    };
    let row = Row {
        contents,
        changed_at: now,
        ..bare(key, now, due)
    };
    Ok(store.insert(&row)?.unwrap_or_default())
}

/// Creates a task as a program does that knows only the first six columns and counts in seconds: an `UPDATE` of the row, or an
/// `INSERT`. It leaves `sts` as it is. Returns the id of the row.
pub fn old_create(
    store: &mut dyn Store,
    key: TaskKey,
    now: UnixMs,
    seconds: u32,
) -> Result<u64, LedgerError> {
    let (start, due) = (old_due(now, 0), old_due(now, seconds));
    if let Some(mut stored) = store.row(At::Key(&key), Parts::Whole)? {
        let row = &mut stored.row;
        row.status = Status::Unprocessed;
        (row.start_time, row.end_time) = (start, due);
        store.save(&stored.row, Columns::All)?;
        return Ok(stored.row.id);
    }
    Ok(store.insert(&bare(key, start, due))?.unwrap_or_default())
}

/// The due time that such a program writes.
pub fn old_due(now: UnixMs, seconds: u32) -> UnixMs {
    UnixMs((now.0 / 1_000 + i64::from(seconds)) * 1_000)
}

/// Deletes a task as such a program does: it sets `sts = 1`, whatever the state of the task.
pub fn old_delete(store: &mut dyn Store, key: &TaskKey) -> Result<(), LedgerError> {
    if let Some(mut stored) = store.row(At::Key(key), Parts::Whole)? {
        stored.row.deleted = true;
        store.save(&stored.row, Columns::All)?;
    }
    Ok(())
}

/// A row of which only the first six columns are given.
fn bare(key: TaskKey, start: UnixMs, due: UnixMs) -> Row {
    Row {
        id: 0,
        key,
        status: Status::Unprocessed,
        deleted: false,
        start_time: start,
        end_time: due,
        owner: None,
        daemon: String::new(),
        lease_until: UnixMs(0),
        run_end: UnixMs(0),
        retry_at: UnixMs(0),
        attempt: 0,
        crashes: 0,
        contents: Contents::default(),
        recurrence: None,
        last_error: None,
        reason: None,
        history: Vec::new(),
        result: None,
        finished_at: None,
        changed_at: UnixMs(0),
        origin: Origin::Row,
        progress: None,
        claimed_at: UnixMs(0),
    }
}
