//! Whole rows, for moves between ledgers.

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::{contents, flag, id, key, ms, narrow, origin, owner};
use lapsed_core::ledger::row::{Row, Status, StoredRecurrence};
use lapsed_core::task::{AttemptError, UnixMs};

/// Reads a row of `WHOLE`. `None` if it is no task: its key or its status cannot be read.
pub fn whole(row: &MySqlRow) -> sqlx::Result<Option<Row>> {
    let status = Status::of_number(row.try_get("status")?);
    let (Some(key), Some(status)) = (key(row)?, status) else {
        return Ok(None);
    };
    Ok(Some(Row {
        id: id(row)?,
        key,
        status,
        deleted: flag(row, "sts")?,
        start_time: ms(row, "start_ms")?,
        end_time: ms(row, "end_ms")?,
        owner: owner(row)?,
        daemon: row.try_get("daemon")?,
        lease_until: ms(row, "lease_ms")?,
        run_end: ms(row, "run_end_ms")?,
        retry_at: ms(row, "retry_ms")?,
        attempt: narrow(row.try_get("attempt")?),
        crashes: narrow(row.try_get("crashes")?),
        contents: contents(row)?,
        recurrence: row
            .try_get::<Option<String>, _>("recurrence")?
            .map(|text| StoredRecurrence::read(&text)),
        last_error: row.try_get("last_error")?,
        reason: row
            .try_get::<Option<String>, _>("reason")?
            .and_then(|word| word.parse().ok()),
        history: row
            .try_get::<Option<String>, _>("history")?
            .map_or_else(Vec::new, |text| AttemptError::read_lines(&text)),
        result: row.try_get("result")?,
        finished_at: row.try_get::<Option<i64>, _>("finished_ms")?.map(UnixMs),
        changed_at: ms(row, "changed_ms")?,
        origin: origin(row)?,
        // Of a run, and nothing that runs is moved.
        progress: None,
        claimed_at: ms(row, "claimed_ms")?,
    }))
}
