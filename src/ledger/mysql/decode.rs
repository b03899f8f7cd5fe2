//! Decodes rows into the types of the seams. Other programs may have written a row: a value that does not fit is left out
//! or an error, never trusted.

use std::sync::Arc;

use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::Instant;

use crate::ledger::{
    CancelAnswer, Claim, Created, DuePage, FoundLease, Lease, Lookup, MalformedRow, NewTask, Owner,
    SeriesRow, Stamp, Stands, TaskRecord, Upcoming,
};
use crate::task::{
    Arming, Attempt, Envelope, Mishap, Origin, Pause, PauseKind, Scope, State, TaskKey, UnixMs,
};

pub(super) fn first_i64(rows: &[MySqlRow]) -> sqlx::Result<i64> {
    rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

fn ms(row: &MySqlRow, column: &str) -> sqlx::Result<UnixMs> {
    row.try_get(column).map(UnixMs)
}

fn flag(row: &MySqlRow, column: &str) -> sqlx::Result<bool> {
    Ok(row.try_get::<i64, _>(column)? != 0)
}

fn arming(row: &MySqlRow) -> sqlx::Result<Arming> {
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

fn origin(row: &MySqlRow) -> sqlx::Result<Origin> {
    Ok(match row.try_get::<i64, _>("adopted")? {
        0 => Origin::Row,
        2 => Origin::DeletedKey,
        _ => Origin::Key,
    })
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

/// Reads a row of `LEASES`. `None` without an owner, which no claim leaves behind.
pub(super) fn found_lease(row: &MySqlRow) -> sqlx::Result<Option<FoundLease>> {
    let Some(owner) = owner(row)? else {
        return Ok(None);
    };
    Ok(Some(FoundLease {
        row: id(row)?,
        owner,
        daemon: row.try_get("daemon")?,
        until: ms(row, "lease_ms")?,
    }))
}

/// A row of `CANCELLABLE`.
#[derive(Debug, Clone)]
pub(super) struct Cancellable {
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

/// Reads a row of `NOT_CANCELLED`.
pub(super) fn not_cancelled(row: &MySqlRow) -> sqlx::Result<(u64, CancelAnswer)> {
    let (deleted, leased) = (flag(row, "sts")?, flag(row, "leased")?);
    let state = state(row.try_get("status")?, deleted, leased, false);
    Ok((id(row)?, answer_of(state)))
}

/// A row of `LOOKUP`.
pub(super) struct LookupRow {
    pub key: String,
    pub arming: Arming,
    due_at: UnixMs,
    status: i64,
    deleted: bool,
    leased: bool,
    waiting: bool,
    older_run: bool,
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
            stands: Stands::after(asked, self.arming.due),
        }
    }
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

/// Returns the result of a cancellation, given the row after it.
pub(super) fn cancel_answer(after: Option<&LookupRow>) -> CancelAnswer {
    after.map_or(CancelAnswer::Unknown, |row| answer_of(row.state()))
}

fn answer_of(after: State) -> CancelAnswer {
    match after {
        State::Running => CancelAnswer::Running,
        State::Cancelled => CancelAnswer::Cancelled,
        state => CancelAnswer::Finished(state),
    }
}

pub(super) fn due_page(rows: &[MySqlRow], limit: u32) -> sqlx::Result<DuePage> {
    let mut page = DuePage::default();
    for row in rows {
        let (arming, due_at) = (arming(row)?, ms(row, "due_ms")?);
        page.next = Some((due_at, arming.row));
        match key(row)? {
            Some(key) => page.rows.push(Upcoming {
                key,
                arming,
                due_at,
            }),
            None => page.foreign += 1,
        }
    }
    if rows.len() < limit as usize {
        page.next = None;
    }
    Ok(page)
}

/// Reads the places of rows by due time, in their order.
pub(super) fn places(rows: &[MySqlRow]) -> sqlx::Result<Vec<(UnixMs, u64)>> {
    rows.iter().map(place).collect()
}

/// Reads the place of a row by due time.
pub(super) fn place(row: &MySqlRow) -> sqlx::Result<(UnixMs, u64)> {
    Ok((ms(row, "due_ms")?, id(row)?))
}

/// Reads a row of `CLAIMED`. `None` if its key is not a task key; the engine does not claim such rows.
pub(super) fn claim(row: &MySqlRow, owner: Owner, claimed: Instant) -> sqlx::Result<Option<Claim>> {
    let Some(key) = key(row)? else {
        return Ok(None);
    };
    let (arming, created) = (arming(row)?, ms(row, "start_ms")?);
    let snoozed: Option<String> = row.try_get("snoozed")?;
    let snoozed = snoozed.map(|text| Mishap::read_lines(&text));
    let attempt = Attempt {
        number: narrow(row.try_get("attempt")?),
        crashes: narrow(row.try_get("crashes")?),
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
        since: arming.due.max(created),
        snoozes: snoozed
            .and_then(|entries| Some(entries.first()?.snoozes))
            .unwrap_or(0),
    };
    Ok(Some(Claim {
        lease: Lease { arming, owner },
        key,
        attempt,
        created,
        due_at: ms(row, "due_ms")?,
        payload: row.try_get("payload")?,
        oversize: row
            .try_get::<Option<i64>, _>("oversize")?
            .map(i64::unsigned_abs),
        tag: row.try_get("tag")?,
        recurrence: row
            .try_get::<Option<String>, _>("recurrence")?
            .map(|text| Arc::new(text.parse())),
        claimed,
    }))
}

/// Reads a row of `SERIES`.
pub(super) fn series(row: &MySqlRow) -> sqlx::Result<SeriesRow> {
    Ok(SeriesRow {
        lookup: LookupRow::read(row)?.lookup(),
        recurrence: row.try_get("recurrence")?,
        payload: row.try_get("payload")?,
        tag: row.try_get("tag")?,
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
    })
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

/// Reads a row of `RENEWED`.
pub(super) fn held(row: &MySqlRow) -> sqlx::Result<Option<(u64, Owner)>> {
    match owner(row)? {
        Some(owner) => Ok(Some((id(row)?, owner))),
        None => Ok(None),
    }
}

/// A row of `SETTLED`.
pub(super) struct SettledRow {
    pub arming: Arming,
    pub owner: Option<Owner>,
    pub status: i64,
    pub deleted: bool,
    pub lease_left: bool,
    pub recurring: bool,
}

impl SettledRow {
    /// True if another program has marked the row processed.
    pub fn marked(&self) -> bool {
        self.status == 1 && self.lease_left
    }

    pub fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            arming: arming(row)?,
            owner: owner(row)?,
            status: row.try_get("status")?,
            deleted: flag(row, "sts")?,
            lease_left: flag(row, "lease_left")?,
            recurring: flag(row, "recurring")?,
        })
    }
}

/// A row of `FINISHED`.
pub(super) struct Finished {
    pub row: u64,
    pub key: Option<TaskKey>,
    pub due_at: UnixMs,
    /// Old enough to be deleted by age.
    pub old: bool,
    /// Old enough to be deleted as surplus.
    pub spare: bool,
}

impl Finished {
    pub fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            row: id(row)?,
            key: key(row)?,
            due_at: ms(row, "due_ms")?,
            old: flag(row, "old")?,
            spare: flag(row, "spare")?,
        })
    }
}

/// Reads a row of `RECORD`. `None` if its key is not a task key.
pub(super) fn record(row: &MySqlRow) -> sqlx::Result<Option<TaskRecord>> {
    let Some(key) = key(row)? else {
        return Ok(None);
    };
    let deleted = flag(row, "sts")?;
    let state = state_of(row)?;
    let arming = arming(row)?;
    let envelope = Envelope::open(row.try_get("payload")?);
    Ok(Some(TaskRecord {
        id: arming.to_string(),
        key,
        state,
        due: arming.due,
        due_at: ms(row, "due_ms")?,
        created: ms(row, "start_ms")?,
        attempt: narrow(row.try_get("attempt")?),
        crashes: narrow(row.try_get("crashes")?),
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
        daemon: row.try_get("daemon")?,
        cancel_requested: state == State::Running && deleted,
        tag: row.try_get("tag")?,
        payload: envelope.payload,
        traceparent: envelope.traceparent,
        recurrence: row.try_get("recurrence")?,
        last_error: row.try_get("last_error")?,
        reason: row
            .try_get::<Option<String>, _>("reason")?
            .and_then(|word| word.parse().ok()),
        history: row
            .try_get::<Option<String>, _>("history")?
            .map_or_else(Vec::new, |text| Mishap::read_lines(&text)),
        result: row.try_get("result")?,
        // While the task is running, the column is the time of its cancellation.
        finished: row
            .try_get::<Option<i64>, _>("finished_ms")?
            .map(UnixMs)
            .filter(|_| state.is_finished()),
        adopted: origin(row)? != Origin::Row,
    }))
}

/// Reads a row of `RECORD` whose key is not a task key.
pub(super) fn malformed(row: &MySqlRow) -> sqlx::Result<MalformedRow> {
    Ok(MalformedRow {
        id: arming(row)?.to_string(),
        key: text_key(row)?,
        state: state_of(row)?,
        due_at: ms(row, "due_ms")?,
    })
}

fn state_of(row: &MySqlRow) -> sqlx::Result<State> {
    let (leased, deleted) = (flag(row, "leased")?, flag(row, "sts")?);
    let waiting = flag(row, "waiting")?;
    Ok(state(row.try_get("status")?, deleted, leased, waiting))
}

/// Reads a row of `PAUSES`. `None` for a kind or scope that this version does not know.
pub(super) fn pause(row: &MySqlRow) -> sqlx::Result<Option<Pause>> {
    let kind: String = row.try_get("kind")?;
    let kinds = [PauseKind::Pause, PauseKind::Hold, PauseKind::Release];
    let kind = kinds.into_iter().find(|known| known.as_str() == kind);
    let (class, method): (String, String) = (row.try_get("class")?, row.try_get("method")?);
    let scope = match (class.as_str(), method.as_str()) {
        ("", "") => Ok(Scope::EVERYTHING),
        (class, "") => Scope::class(class),
        (class, method) => Scope::method(class, method),
    };
    let (Some(kind), Ok(scope)) = (kind, scope) else {
        return Ok(None);
    };
    Ok(Some(Pause {
        kind,
        scope,
        since: ms(row, "since_ms")?,
        due_before: row.try_get::<Option<i64>, _>("due_before_ms")?.map(UnixMs),
        by: row.try_get("set_by")?,
        reason: row.try_get("reason")?,
    }))
}
