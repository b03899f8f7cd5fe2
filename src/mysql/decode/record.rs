//! Whole rows, finished rows and pauses.

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::{arming, contents, flag, id, key, ms, narrow, origin, owner, state, text_key};
use lapsed_core::ledger::pauses::kind_and_scope;
use lapsed_core::ledger::row::StoredReason;
use lapsed_core::ledger::{MalformedRow, Progress, TaskRecord};
use lapsed_core::task::{AttemptError, Origin, Pause, State, TaskKey, UnixMs};

/// Reads a row of `RECORD`. `None` if its key is not a task key.
pub fn record(row: &MySqlRow) -> sqlx::Result<Option<TaskRecord>> {
    let Some(key) = key(row)? else {
        return Ok(None);
    };
    let deleted = flag(row, "sts")?;
    let state = state_of(row)?;
    let arming = arming(row)?;
    let reason: Option<String> = row.try_get("reason")?;
    let reason: Option<StoredReason> = reason.and_then(|text| text.parse().ok());
    let record = TaskRecord {
        id: arming.to_string(),
        state,
        due: arming.due,
        due_at: ms(row, "due_ms")?,
        created: ms(row, "start_ms")?,
        attempt: narrow(row.try_get("attempt")?),
        crashes: narrow(row.try_get("crashes")?),
        daemon: row.try_get("daemon")?,
        lease_until: match state {
            State::Running => Some(ms(row, "lease_ms")?),
            _ => None,
        },
        progress: progress(row, state)?,
        cancel_requested: state == State::Running && deleted,
        recurrence: row.try_get("recurrence")?,
        last_error: row.try_get("last_error")?,
        reason: reason.and_then(StoredReason::death),
        history: row
            .try_get::<Option<String>, _>("history")?
            .map_or_else(Vec::new, |text| AttemptError::read_lines(&text)),
        result: row.try_get("result")?,
        // While the task is running, the column is the time of its cancellation.
        finished: row
            .try_get::<Option<i64>, _>("finished_ms")?
            .map(UnixMs)
            .filter(|_| state.is_finished()),
        adopted: origin(row)? != Origin::Row,
        ..TaskRecord::of(key, contents(row)?)
    };
    let latest = reason.and_then(StoredReason::latest);
    Ok(Some(TaskRecord {
        started: record.started(ms(row, "claimed_ms")?),
        latest_occurrence: latest.and_then(|ended| record.latest_occurrence(ended)),
        ..record
    }))
}

fn progress(row: &MySqlRow, state: State) -> sqlx::Result<Option<Progress>> {
    let line: Option<String> = row.try_get("progress")?;
    let Some(line) = line.filter(|_| state == State::Running) else {
        return Ok(None);
    };
    Ok(Progress::of_line(&line, owner(row)?))
}

/// Reads a row of `RECORD` whose key is not a task key.
pub fn malformed(row: &MySqlRow) -> sqlx::Result<MalformedRow> {
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

/// A row of `FINISHED`.
pub struct Finished {
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

/// Reads a row of `PAUSES`. `None` for a kind or scope that this version does not know.
pub fn pause(row: &MySqlRow) -> sqlx::Result<Option<Pause>> {
    let (kind, class, method): (String, String, String) = (
        row.try_get("kind")?,
        row.try_get("class")?,
        row.try_get("method")?,
    );
    let Some((kind, scope)) = kind_and_scope(&kind, &class, &method) else {
        return Ok(None);
    };
    Ok(Some(Pause {
        kind,
        scope,
        since: ms(row, "since_ms")?,
        due_before: row.try_get::<Option<i64>, _>("due_before_ms")?.map(UnixMs),
        until: row.try_get::<Option<i64>, _>("until_ms")?.map(UnixMs),
        by: row.try_get("set_by")?,
        reason: row.try_get("reason")?,
    }))
}
