//! Reads and writes whole rows. Any program may write to the table, so no value is trusted.

use rusqlite::types::ValueRef;
use rusqlite::{Params, Row as Found, Statement, params};

use lapsed_core::ledger::Owner;
use lapsed_core::ledger::row::{Row, Status, StoredRecurrence};
use lapsed_core::ledger::rows::store::{Parts, Scanned, Stored};
use lapsed_core::task::{AttemptError, Contents, Origin, TaskKey, UnixMs};

/// Place of the column behind those of a whole row, for the bytes of payload and result.
const BYTES: usize = 26;

/// Key in place of one that is not a task key. Never written.
const NO_KEY: &str = "Malformed@key";

/// Reads the row that a statement about one row finds.
pub(super) fn find(
    statement: &mut Statement<'_>,
    values: impl Params,
    parts: Parts,
) -> rusqlite::Result<Option<Stored>> {
    let mut found = statement.query(values)?;
    let Some(row) = found.next()? else {
        return Ok(None);
    };
    let bytes = row_id(row, BYTES)?;
    Ok(Some(Stored {
        bytes,
        ..read(row, parts)?
    }))
}

/// Reads a row.
pub(super) fn read(found: &Found<'_>, parts: Parts) -> rusqlite::Result<Stored> {
    let text_key = text(found, 1)?.unwrap_or_default();
    let (key, malformed) = match TaskKey::parse(&text_key) {
        Ok(key) => (key, None),
        Err(_) => (no_key(), Some(text_key.into_owned())),
    };
    let owned = |column| -> rusqlite::Result<Option<String>> {
        Ok(text(found, column)?.map(|text| text.into_owned()))
    };
    let large = |column| match parts {
        Parts::Whole => owned(column),
        Parts::Brief => Ok(None),
    };
    let row = Row {
        id: row_id(found, 0)?,
        key,
        status: match number(found, 2)? {
            1 => Status::Processed,
            2 => Status::Dead,
            3 => Status::Cancelled,
            _ => Status::Unprocessed,
        },
        deleted: number(found, 3)? != 0,
        start_time: ms(found, 4)?,
        end_time: ms(found, 5)?,
        owner: owner(found, 6)?,
        daemon: owned(7)?.unwrap_or_default(),
        lease_until: ms(found, 8)?,
        run_end: ms(found, 9)?,
        retry_at: ms(found, 10)?,
        attempt: narrow(number(found, 11)?, u16::MAX),
        crashes: narrow(number(found, 12)?, u8::MAX),
        origin: match number(found, 14)? {
            0 => Origin::Row,
            2 => Origin::DeletedKey,
            3 => Origin::Entry,
            _ => Origin::Key,
        },
        finished_at: optional(found, 15)?.map(UnixMs),
        changed_at: ms(found, 16)?,
        reason: text(found, 18)?.and_then(|word| word.parse().ok()),
        last_error: owned(19)?,
        history: text(found, 20)?.map_or_else(Vec::new, |lines| AttemptError::read_lines(&lines)),
        result: large(21)?,
        recurrence: text(found, 22)?.map(|text| StoredRecurrence::read(&text)),
        contents: Contents {
            payload: large(23)?,
            tag: owned(17)?,
            max_attempts: optional(found, 13)?.map(|most| narrow(most, u16::MAX)),
        },
        claimed_at: ms(found, 24)?,
        progress: owned(25)?,
    };
    Ok(Stored {
        row,
        malformed,
        bytes: 0,
    })
}

/// Reads what scans need of a row.
pub(super) fn scanned<'a>(found: &'a Found<'_>) -> rusqlite::Result<Scanned<'a>> {
    Ok(Scanned {
        id: row_id(found, 0)?,
        due_at: ms(found, 1)?,
        key: text(found, 2)?.unwrap_or_default(),
        task_key: None,
        end_time: ms(found, 3)?,
        lease_until: ms(found, 4)?,
        owner: owner(found, 5)?,
        daemon: text(found, 6)?.unwrap_or_default(),
        status: narrow(number(found, 7)?, u8::MAX),
        deleted: number(found, 8)? != 0,
        run_end: ms(found, 9)?,
        retry_at: ms(found, 10)?,
    })
}

/// Inserts the row of a new task. Returns false if the key has a row.
pub(super) fn insert(statement: &mut Statement<'_>, row: &Row) -> rusqlite::Result<bool> {
    let recurrence = row.recurrence.as_ref().map(ToString::to_string);
    let inserted = statement.execute(params![
        row.key.as_str(),
        row.start_time.0,
        row.end_time.0,
        row.run_end.0,
        row.attempt,
        row.contents.max_attempts,
        origin(row),
        row.changed_at.0,
        row.contents.tag,
        recurrence,
        row.contents.payload,
    ])?;
    Ok(inserted > 0)
}

/// Writes what a claim, a renewal or the end of a lease changes.
pub(super) fn save_run(statement: &mut Statement<'_>, row: &Row) -> rusqlite::Result<()> {
    statement.execute(params![
        id(row.id),
        row.owner.as_ref().map(|owner| &owner.0[..]),
        row.daemon,
        row.lease_until.0,
        row.run_end.0,
        row.retry_at.0,
        row.attempt,
        row.crashes,
        row.progress,
        row.claimed_at.0,
    ])?;
    Ok(())
}

/// Writes what a completion changes.
pub(super) fn save_end(statement: &mut Statement<'_>, row: &Row) -> rusqlite::Result<()> {
    statement.execute(params![
        id(row.id),
        row.status as u8,
        row.lease_until.0,
        row.finished_at.map(|at| at.0),
        row.last_error,
        row.result,
    ])?;
    Ok(())
}

/// Writes everything but id, key and progress.
pub(super) fn save(statement: &mut Statement<'_>, row: &Row) -> rusqlite::Result<()> {
    save_some(statement, row, false)
}

/// Writes everything but id, key, progress, payload and result.
pub(super) fn save_brief(statement: &mut Statement<'_>, row: &Row) -> rusqlite::Result<()> {
    save_some(statement, row, true)
}

fn save_some(statement: &mut Statement<'_>, row: &Row, brief: bool) -> rusqlite::Result<()> {
    let Row {
        id: row_id,
        key: _,
        status,
        deleted,
        start_time,
        end_time,
        owner,
        daemon,
        lease_until,
        run_end,
        retry_at,
        attempt,
        crashes,
        contents:
            Contents {
                payload,
                tag,
                max_attempts,
            },
        recurrence,
        last_error,
        reason,
        history,
        result,
        finished_at,
        changed_at,
        origin: _,
        claimed_at,
        // Written with a renewal alone: it says nothing of another claim.
        progress: _,
    } = row;
    let history: Vec<String> = history.iter().map(AttemptError::to_line).collect();
    let values = params![
        id(*row_id),
        *status as u8,
        deleted,
        start_time.0,
        end_time.0,
        owner.as_ref().map(|owner| &owner.0[..]),
        daemon,
        lease_until.0,
        run_end.0,
        retry_at.0,
        attempt,
        crashes,
        max_attempts,
        origin(row),
        finished_at.map(|at| at.0),
        changed_at.0,
        tag,
        reason.map(|reason| reason.to_string()),
        last_error,
        (!history.is_empty()).then(|| history.join("\n")),
        recurrence.as_ref().map(ToString::to_string),
        claimed_at.0,
        result,
        payload,
    ];
    let count = if brief { 22 } else { 24 };
    statement.execute(&values[..count])?;
    Ok(())
}

fn origin(row: &Row) -> u8 {
    match row.origin {
        Origin::Row => 0,
        Origin::Key => 1,
        Origin::DeletedKey => 2,
        Origin::Entry => 3,
    }
}

fn owner(found: &Found<'_>, column: usize) -> rusqlite::Result<Option<Owner>> {
    Ok(match found.get_ref(column)? {
        ValueRef::Blob(bytes) => bytes.try_into().ok().map(Owner),
        _ => None,
    })
}

fn no_key() -> TaskKey {
    TaskKey::parse(NO_KEY).expect("it follows the grammar")
}

/// Reads a text. `None` for null, and for what a program could not have meant.
pub(super) fn text<'a>(
    found: &'a Found<'_>,
    column: usize,
) -> rusqlite::Result<Option<std::borrow::Cow<'a, str>>> {
    Ok(match found.get_ref(column)? {
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes)),
        _ => None,
    })
}

/// Returns an id as SQLite stores it.
pub(super) fn id(row: u64) -> i64 {
    i64::try_from(row).unwrap_or(i64::MAX)
}

pub(super) fn row_id(found: &Found<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(number(found, column)?).unwrap_or_default())
}

pub(super) fn ms(found: &Found<'_>, column: usize) -> rusqlite::Result<UnixMs> {
    Ok(UnixMs(number(found, column)?))
}

fn number(found: &Found<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(optional(found, column)?.unwrap_or_default())
}

pub(super) fn optional(found: &Found<'_>, column: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match found.get_ref(column)? {
        ValueRef::Integer(number) => Some(number),
        _ => None,
    })
}

fn narrow<T: TryFrom<i64>>(value: i64, most: T) -> T {
    T::try_from(value).unwrap_or(most)
}
