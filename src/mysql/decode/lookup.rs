//! Rows of lookups, series and cancellations.

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::{arming, contents, flag, id, key, ms, origin, state};
use lapsed_core::ledger::{
    CancelAnswer, CreateResult, Created, Lookup, NewTask, RowSnapshot, Stamp,
};
use lapsed_core::task::{Arming, Origin, State, TaskKey, UnixMs};

/// A row of `LOOKUP`.
pub struct LookupRow {
    pub key: String,
    pub arming: Arming,
    due_at: UnixMs,
    status: i64,
    deleted: bool,
    leased: bool,
    waiting: bool,
    older_run: bool,
    /// Its latest claim has no outcome.
    claimed: bool,
    /// By a move.
    held: bool,
    origin: Origin,
    stamp: Stamp,
}

impl LookupRow {
    pub fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            key: row.try_get("key")?,
            arming: arming(row)?,
            due_at: ms(row, "due_ms")?,
            status: row.try_get("status")?,
            deleted: flag(row, "sts")?,
            leased: flag(row, "leased")?,
            waiting: flag(row, "waiting")?,
            older_run: flag(row, "older_run")?,
            claimed: flag(row, "claimed")?,
            held: flag(row, "held")?,
            origin: origin(row)?,
            stamp: Stamp {
                changed: ms(row, "changed_ms")?,
                created: ms(row, "start_ms")?,
                finished: row.try_get::<Option<i64>, _>("finished_ms")?.map(UnixMs),
            },
        })
    }

    pub fn state(&self) -> State {
        state(self.status, self.deleted, self.leased, self.waiting)
    }

    pub fn lookup(&self) -> Lookup {
        let is_deleted = self.status == 0 && self.deleted;
        Lookup {
            arming: self.arming,
            state: self.state(),
            due_at: self.due_at,
            deleted: is_deleted && !self.leased,
            cancelling: is_deleted && self.leased,
            older_run: self.leased && self.older_run && !self.held,
            interrupted: self.claimed && !self.leased,
            origin: self.origin,
            stamp: self.stamp,
        }
    }

    pub fn created(&self, asked: &NewTask) -> Created {
        Created {
            arming: self.arming,
            state: self.state(),
            older_run: self.leased && self.older_run,
            since: self.stamp.created,
            result: CreateResult::after(asked, self.arming.due),
        }
    }
}

/// Reads a row of `SERIES`.
pub fn series(row: &MySqlRow) -> sqlx::Result<RowSnapshot> {
    Ok(RowSnapshot {
        lookup: LookupRow::read(row)?.lookup(),
        recurrence: row.try_get("recurrence")?,
        contents: contents(row)?,
    })
}

/// A row of `CANCELLABLE`.
#[derive(Debug, Clone)]
pub struct Cancellable {
    pub id: u64,
    /// `None`: the row's key is not a task key.
    pub key: Option<TaskKey>,
    pub leased: bool,
}

impl Cancellable {
    pub fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: id(row)?,
            key: key(row)?,
            leased: flag(row, "leased")?,
        })
    }
}

/// Reads a row of `NOT_CANCELLED`. A running row that is not marked was not cancelled, since it does not match any more.
pub fn not_cancelled(row: &MySqlRow) -> sqlx::Result<(u64, CancelAnswer)> {
    let (deleted, leased) = (flag(row, "sts")?, flag(row, "leased")?);
    let state = state(row.try_get("status")?, deleted, leased && deleted, false);
    Ok((id(row)?, answer_of(state)))
}

/// Returns the result of a cancellation, given the row after it.
pub fn cancel_answer(after: Option<&LookupRow>) -> CancelAnswer {
    after.map_or(CancelAnswer::Unknown, |row| answer_of(row.state()))
}

fn answer_of(after: State) -> CancelAnswer {
    match after {
        State::Running => CancelAnswer::Running,
        State::Cancelled => CancelAnswer::Cancelled,
        state => CancelAnswer::Finished(state),
    }
}
