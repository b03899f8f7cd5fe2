//! Retention: deletes finished rows in batches.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{OptionalExtension as _, Result};

use super::ROWS_MAX;
use super::SqliteLedger;
use super::admin::of_rows;
use super::rows::{self, Stored, ms, row_id};
use super::session::{Session, id};
use super::walk::{Direction, START, Walk};
use crate::ledger::row::Status;
use crate::ledger::{DuePlace, LedgerError, Prune, PruneCursor, Pruned, Retention};
use crate::task::{State, UnixMs};

/// Number of rows of a page of [`end_cancelled`](Retention::end_cancelled).
const DELETED_ROWS: usize = 10_000;

#[async_trait]
impl Retention for SqliteLedger {
    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        let (prune, dry_run) = (*prune, prune.dry_run);
        let batch = move |session: &Session<'_>| batch(session, &prune);
        match dry_run {
            true => self.read_long(batch).await,
            false => self.write_long(batch).await,
        }
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        let Some(status) = status_of(prune.state) else {
            return Ok(0);
        };
        let (rows, least) = (rows.to_vec(), least_age(prune.age));
        self.write_long(move |session| {
            let mut delete = session.prepare(&session.queries.delete)?;
            of_rows(session, &rows, |stored| {
                let row = &stored.row;
                let goes = row.status == status
                    && !row.is_configured()
                    && age(session.now, row.finished()) >= Some(least);
                if goes {
                    delete.execute([id(row.id)])?;
                }
                Ok(goes)
            })
        })
        .await
    }

    async fn end_cancelled(
        &self,
        after: Option<DuePlace>,
    ) -> Result<(u64, Option<DuePlace>), LedgerError> {
        let (rows, next) = self
            .read_long(move |session| ran_out(session, after))
            .await?;
        if rows.is_empty() {
            return Ok((0, next));
        }
        let mut ended = 0;
        for rows in rows.chunks(ROWS_MAX) {
            let rows = rows.to_vec();
            let end = self.write_long(move |session| {
                let mut write = session.prepare(&session.queries.save_brief)?;
                of_rows(session, &rows, |stored| {
                    let ends = stored.row.end_cancelled_run(session.now);
                    if ends {
                        rows::save_brief(&mut write, &stored.row)?;
                    }
                    Ok(ends)
                })
            });
            ended += end.await?;
        }
        Ok((ended, next))
    }

    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError> {
        let Some(status) = status_of(state) else {
            return Ok(None);
        };
        self.read(move |session| surplus(session, status, keep))
            .await
    }
}

/// Deletes the rows of a batch that are old enough, or surplus.
fn batch(session: &Session<'_>, prune: &Prune) -> Result<Pruned> {
    let Prune {
        state,
        age: age_min,
        surplus,
        after,
        limit,
        dry_run,
    } = *prune;
    let Some(status) = status_of(state) else {
        return Ok(Pruned::default());
    };
    let after = after.unwrap_or(PruneCursor::START);
    let is_surplus = |place: PruneCursor| surplus.is_some_and(|last| place <= last);
    // No row that is due later is old enough.
    let youngest = match (age_min, is_surplus(after)) {
        (Some(age), true) => age.min(Prune::AGE_MIN),
        (Some(age), false) => age,
        (None, true) => Prune::AGE_MIN,
        (None, false) => return Ok(Pruned::default()),
    };
    let found = finished(session, status, after, youngest, limit)?;
    let is_full = found.len() >= limit as usize;
    let last = found.last().map(|stored| place(stored, after.deleted));
    let next = match last {
        Some(last) if is_full => Some(last),
        // After the other rows come those that a program has deleted.
        _ if !after.deleted => Some(PruneCursor {
            deleted: true,
            ..PruneCursor::START
        }),
        _ => None,
    };
    let mut pruned = Pruned {
        next: next.filter(|next| age_min.is_some() || is_surplus(*next)),
        ..Pruned::default()
    };
    let mut delete = session.prepare(&session.queries.delete)?;
    for stored in found {
        let row = &stored.row;
        let aged = age(session.now, row.finished());
        let old = age_min.is_some_and(|least| aged >= Some(least));
        let spare = is_surplus(place(&stored, after.deleted)) && aged >= Some(Prune::AGE_MIN);
        if row.is_configured() || !(old || spare) {
            continue;
        }
        pruned.rows += 1;
        match dry_run {
            true => pruned.found.push((row.id, stored.key())),
            false => {
                delete.execute([id(row.id)])?;
            }
        }
    }
    Ok(pruned)
}

/// Reads a page of the deleted rows that are not finished. Returns those whose lease has run out, and the place of the last.
fn ran_out(session: &Session<'_>, after: Option<DuePlace>) -> Result<(Vec<u64>, Option<DuePlace>)> {
    let walk = Walk {
        status: Status::Unprocessed as u8,
        deleted: true,
        direction: Direction::Up,
        from: after.unwrap_or(START),
        to: UnixMs(i64::MAX),
    };
    let mut statement = session.prepare(walk.scan(session.queries))?;
    let mut walked = statement.query(walk.values())?;
    let (mut found, mut next) = (Vec::new(), None);
    for _ in 0..DELETED_ROWS {
        let Some(row) = walked.next()? else {
            return Ok((found, None));
        };
        next = Some((ms(row, 1)?, row_id(row, 0)?));
        let lease_until = ms(row, 4)?;
        if lease_until > UnixMs(0) && lease_until < session.now {
            found.push(row_id(row, 0)?);
        }
    }
    Ok((found, next))
}

/// Reads the next rows of a finished state that were due at least this long ago.
fn finished(
    session: &Session<'_>,
    status: Status,
    after: PruneCursor,
    youngest: Duration,
    limit: u32,
) -> Result<Vec<Stored>> {
    let youngest_ms = i64::try_from(youngest.as_millis()).unwrap_or(i64::MAX);
    let walk = Walk {
        status: status as u8,
        deleted: after.deleted,
        direction: Direction::Up,
        from: (after.due_at, after.row),
        to: UnixMs(session.now.0.saturating_sub(youngest_ms)),
    };
    let mut statement = session.prepare(&session.queries.list_by_due)?;
    let mut walked = statement.query(walk.values())?;
    let mut found = Vec::new();
    while found.len() < limit as usize {
        let Some(row) = walked.next()? else {
            break;
        };
        found.push(rows::read_some(row, true)?);
    }
    Ok(found)
}

/// Returns the row with `keep` others behind it.
fn surplus(session: &Session<'_>, status: Status, keep: u64) -> Result<Option<PruneCursor>> {
    let mut left = keep;
    for deleted in [true, false] {
        let mut find = session.prepare(&session.queries.from_end)?;
        let values = (status as u8, deleted, id(left));
        let place = find
            .query_row(values, |row| Ok((ms(row, 1)?, row_id(row, 0)?)))
            .optional()?;
        if let Some((due_at, row)) = place {
            return Ok(Some(PruneCursor {
                deleted,
                due_at,
                row,
            }));
        }
        if deleted {
            let mut count = session.prepare(&session.queries.count_due)?;
            let values = (status as u8, deleted, i64::MAX, id(left));
            let there: i64 = count.query_row(values, |row| row.get(0))?;
            left -= u64::try_from(there).unwrap_or_default().min(left);
        }
    }
    Ok(None)
}

fn place(stored: &Stored, deleted: bool) -> PruneCursor {
    PruneCursor {
        deleted,
        due_at: stored.row.due_at(),
        row: stored.row.id,
    }
}

/// Returns the time since a moment; `None` if it is in the future.
fn age(now: UnixMs, since: UnixMs) -> Option<Duration> {
    (since <= now).then(|| now.since(since))
}

/// Returns how long ago a deleted row must at least have finished.
fn least_age(age: Option<Duration>) -> Duration {
    Prune::AGE_MIN.min(age.unwrap_or(Duration::MAX))
}

/// Returns the status of a finished state. `None` for the others, which are never pruned.
fn status_of(state: State) -> Option<Status> {
    match state {
        State::Done => Some(Status::Processed),
        State::Dead => Some(Status::Dead),
        State::Cancelled => Some(Status::Cancelled),
        State::Pending | State::Waiting | State::Running => None,
    }
}
