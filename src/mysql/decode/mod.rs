//! Decodes rows into the types of the seams. Other programs may have written a row: a value that does not fit is left out
//! or an error, never trusted.

mod claim;
mod lookup;
mod record;
mod whole;

use sqlx::Row;
use sqlx::mysql::MySqlRow;

pub(super) use self::claim::{
    SettledRow, claim, due_page, found_lease, has_run_out, held, is_anew,
};
pub(super) use self::lookup::{Cancellable, LookupRow, cancel_answer, not_cancelled, series};
pub use self::record::pause;
pub(super) use self::record::{Finished, malformed, record};
pub(super) use self::whole::whole;
use lapsed_core::ledger::Owner;
use lapsed_core::task::{Arming, Contents, Origin, State, TaskKey, UnixMs};

pub(super) fn first_i64(rows: &[MySqlRow]) -> sqlx::Result<i64> {
    rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

fn ms(row: &MySqlRow, column: &str) -> sqlx::Result<UnixMs> {
    row.try_get(column).map(UnixMs)
}

fn flag(row: &MySqlRow, column: &str) -> sqlx::Result<bool> {
    Ok(row.try_get::<i64, _>(column)? != 0)
}

pub(super) fn arming(row: &MySqlRow) -> sqlx::Result<Arming> {
    Ok(Arming {
        row: id(row)?,
        due: ms(row, "end_ms")?,
    })
}

/// Reads the id. Tables that lapsed adopted may have a 32-bit id.
pub(super) fn id(row: &MySqlRow) -> sqlx::Result<u64> {
    row.try_get_unchecked::<u64, _>("id")
}

fn owner(row: &MySqlRow) -> sqlx::Result<Option<Owner>> {
    let bytes: Option<Vec<u8>> = row.try_get("owner")?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Owner))
}

/// Reads what the task carries.
fn contents(row: &MySqlRow) -> sqlx::Result<Contents> {
    Ok(Contents {
        payload: row.try_get("payload")?,
        tag: row.try_get("tag")?,
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
    })
}

fn origin(row: &MySqlRow) -> sqlx::Result<Origin> {
    Ok(match row.try_get::<i64, _>("adopted")? {
        0 => Origin::Row,
        2 => Origin::DeletedKey,
        3 => Origin::Entry,
        _ => Origin::Key,
    })
}

/// The number that [`origin`] reads.
pub(super) fn origin_number(origin: Origin) -> i64 {
    match origin {
        Origin::Row => 0,
        Origin::Key => 1,
        Origin::DeletedKey => 2,
        Origin::Entry => 3,
    }
}

/// Reads the key. `None` if it is not a task key, since any program may write one.
pub(super) fn key(row: &MySqlRow) -> sqlx::Result<Option<TaskKey>> {
    let text: String = row.try_get("key")?;
    Ok(TaskKey::parse(&text).ok())
}

/// Reads the key as text.
pub(super) fn text_key(row: &MySqlRow) -> sqlx::Result<String> {
    row.try_get("key")
}

/// Reads the places of rows by due time, in their order.
pub(super) fn places(rows: &[MySqlRow]) -> sqlx::Result<Vec<(UnixMs, u64)>> {
    rows.iter().map(place).collect()
}

/// Reads the place of a row by due time.
pub(super) fn place(row: &MySqlRow) -> sqlx::Result<(UnixMs, u64)> {
    Ok((ms(row, "due_ms")?, id(row)?))
}

/// Returns the state that the columns stand for.
fn state(status: i64, deleted: bool, leased: bool, waiting: bool) -> State {
    match status {
        1 => State::Done,
        2 => State::Dead,
        3 => State::Cancelled,
        _ if leased => State::Running,
        _ if deleted => State::Cancelled,
        _ if waiting => State::Waiting,
        _ => State::Pending,
    }
}

fn narrow<T: TryFrom<i64> + Bounded>(value: i64) -> T {
    T::try_from(value).unwrap_or(T::MAX)
}

trait Bounded {
    const MAX: Self;
}

impl Bounded for u16 {
    const MAX: Self = u16::MAX;
}

impl Bounded for u8 {
    const MAX: Self = u8::MAX;
}
