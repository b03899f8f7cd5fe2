//! Retention: deletes or archives finished rows in bulk. Each statement names a few rows by primary key.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;

use super::connection::{Conn, about_rows, covered, statement};
use super::error::error;
use super::queries;
use super::scans::END;
use super::{BATCH_MAX, MysqlLedger, decode};
use lapsed_core::ledger::{
    ArchiveMaintenance, DuePlace, LedgerError, Prune, PruneCursor, Pruned, Retention,
};
use lapsed_core::task::{State, UnixMs};

/// Number of index entries that one statement skips on its way to the surplus.
const STRIDE: u64 = 50_000;

/// Number of rows of a page of [`end_cancelled`](Retention::end_cancelled).
const DELETED_ROWS: u32 = 10_000;

#[async_trait]
impl Retention for MysqlLedger {
    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        self.prune_batch(prune).await
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        self.prune_these(prune, rows).await
    }

    async fn end_cancelled(
        &self,
        after: Option<DuePlace>,
    ) -> Result<(u64, Option<DuePlace>), LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let ended = self.end_cancelled_on(&mut conn, after).await;
        ended.map_err(error)
    }

    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError> {
        self.surplus_of(state, keep).await
    }

    async fn maintain_archive(
        &self,
        keep: Option<Duration>,
    ) -> Result<ArchiveMaintenance, LedgerError> {
        self.maintain_partitions(keep).await
    }
}

impl MysqlLedger {
    async fn prune_batch(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let mut pruned = self.find_prunable(&mut conn, prune).await.map_err(error)?;
        drop(conn);
        if !prune.dry_run {
            let found = std::mem::take(&mut pruned.found).into_iter();
            let rows: Vec<u64> = found.map(|(row, _)| row).collect();
            pruned.rows = self.prune_these(prune, &rows).await?;
        }
        Ok(pruned)
    }

    /// Reads the next page, and returns those of its rows that are prunable.
    async fn find_prunable(&self, conn: &mut Conn, prune: &Prune) -> sqlx::Result<Pruned> {
        let Prune {
            state,
            age,
            surplus,
            after,
            limit,
            archive: _,
            dry_run: _,
        } = *prune;
        let Some(status) = status(state) else {
            return Ok(Pruned::default());
        };
        let after = after.unwrap_or(PruneCursor::START);
        // Surplus must have finished a while ago. Without an age, nothing else is deleted.
        let spare_ms = ms(Prune::AGE_MIN);
        let age_ms = age.map_or(i64::MAX / 2_000_000, ms);
        let is_surplus = |place: PruneCursor| surplus.is_some_and(|last| place <= last);
        let youngest_ms = match is_surplus(after) {
            true => spare_ms.min(age_ms),
            false => age_ms,
        };
        let question = statement(self.queries.plain(queries::FINISHED))
            .bind(age_ms)
            .bind(spare_ms)
            .bind(status)
            .bind(i64::from(after.deleted))
            .bind(youngest_ms)
            .bind(after.due_at.0)
            .bind(after.row)
            .bind(after.due_at.0)
            .bind(limit);
        let found = conn.fetch(question).await?;
        let found: Vec<decode::Finished> = found
            .iter()
            .map(decode::Finished::read)
            .collect::<Result<_, _>>()?;
        let deletable = deletable(&found, age.is_some(), |row| {
            is_surplus(PruneCursor {
                deleted: after.deleted,
                due_at: row.due_at,
                row: row.row,
            })
        });
        // Without an age, nothing after the last surplus row is deleted.
        let next = behind(&found, after, limit);
        let rows = deletable.len() as u64;
        let deletable: HashSet<u64> = deletable.into_iter().collect();
        let goes = found.into_iter().filter(|row| deletable.contains(&row.row));
        Ok(Pruned {
            rows,
            found: goes.map(|row| (row.row, row.key)).collect(),
            next: next.filter(|next| age.is_some() || is_surplus(*next)),
        })
    }

    async fn end_cancelled_on(
        &self,
        conn: &mut Conn,
        after: Option<DuePlace>,
    ) -> sqlx::Result<(u64, Option<DuePlace>)> {
        let (due, row) = after.unwrap_or_default();
        let question = statement(self.queries.plain(queries::CANCELLED_RUNS));
        let question = question
            .bind(due.0)
            .bind(due.0)
            .bind(row)
            .bind(DELETED_ROWS);
        let found = conn.fetch(question).await?;
        let mut rows = Vec::new();
        for row in &found {
            if decode::has_run_out(row)? {
                rows.push(decode::id(row)?);
            }
        }
        let mut ended = 0;
        for batch in rows.chunks(BATCH_MAX) {
            let act = |ids: &[u64]| about_rows(&self.queries, queries::END_CANCELLED, ids);
            let done = self.locks.skip_locked(
                conn,
                &self.queries,
                batch,
                |id| *id,
                |conn, ids| Box::pin(conn.execute(act(ids))),
            );
            ended += done.await?.matched;
        }
        let next = match found.last() {
            Some(last) if found.len() >= DELETED_ROWS as usize => Some(decode::place(last)?),
            _ => None,
        };
        Ok((ended, next))
    }

    async fn prune_these(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        let Some(status) = status(prune.state).filter(|_| !rows.is_empty()) else {
            return Ok(0);
        };
        let youngest = youngest_ms_of(prune.age);
        if prune.archive {
            return self.archive_rows(rows, status, youngest).await;
        }
        let mut conn = self.pools.acquire().await?;
        let deleted = self.delete(&mut conn, rows, status, youngest).await;
        deleted.map_err(error)
    }

    async fn delete(
        &self,
        conn: &mut Conn,
        rows: &[u64],
        status: i64,
        age_ms: i64,
    ) -> sqlx::Result<u64> {
        let act = |ids: &[u64]| {
            let delete = about_rows(&self.queries, queries::PRUNE_ROWS, ids);
            delete.bind(status).bind(age_ms)
        };
        let done = self
            .locks
            .skip_locked(
                conn,
                &self.queries,
                rows,
                |id| *id,
                |conn, ids| Box::pin(conn.execute(act(ids))),
            )
            .await?;
        Ok(done.matched)
    }

    async fn surplus_of(
        &self,
        state: State,
        keep: u64,
    ) -> Result<Option<PruneCursor>, LedgerError> {
        let Some(status) = status(state) else {
            return Ok(None);
        };
        let mut conn = self.pools.acquire().await?;
        let mut left = keep;
        for deleted in [true, false] {
            let place = self
                .place_from_end(&mut conn, status, deleted, &mut left)
                .await;
            if let Some((due_at, row)) = place.map_err(error)? {
                return Ok(Some(PruneCursor {
                    deleted,
                    due_at,
                    row,
                }));
            }
        }
        Ok(None)
    }

    /// Returns the row with `left` others behind it, found in strides from the end. If there is none, subtracts the number of
    /// rows from `left`.
    async fn place_from_end(
        &self,
        conn: &mut Conn,
        status: i64,
        deleted: bool,
        left: &mut u64,
    ) -> sqlx::Result<Option<(UnixMs, u64)>> {
        let mut from = END;
        loop {
            let about = |template| {
                let question = covered(self.queries.plain(template));
                let question = question.bind(status).bind(i64::from(deleted));
                question.bind(from.0.0).bind(from.1).bind(from.0.0)
            };
            let steps = (*left).min(STRIDE);
            let found = conn.fetch(about(queries::FROM_END).bind(steps)).await?;
            let Some(place) = found.first().map(decode::place).transpose()? else {
                let counted = conn
                    .fetch(about(queries::COUNT_BEFORE).bind(STRIDE + 1))
                    .await?;
                let there = u64::try_from(decode::first_i64(&counted)?).unwrap_or(0);
                *left = left.saturating_sub(there);
                return Ok(None);
            };
            if *left <= STRIDE {
                return Ok(Some(place));
            }
            *left -= STRIDE + 1;
            from = place;
        }
    }
}

/// Returns the rows to delete: old, or surplus.
fn deletable(
    found: &[decode::Finished],
    with_age: bool,
    is_surplus: impl Fn(&decode::Finished) -> bool,
) -> Vec<u64> {
    let goes = |row: &&decode::Finished| (row.spare && is_surplus(row)) || (row.old && with_age);
    found.iter().filter(goes).map(|row| row.row).collect()
}

/// Returns where the next page begins.
fn behind(found: &[decode::Finished], after: PruneCursor, limit: u32) -> Option<PruneCursor> {
    match found.last() {
        Some(last) if found.len() == limit as usize => Some(PruneCursor {
            deleted: after.deleted,
            due_at: last.due_at,
            row: last.row,
        }),
        // After the other rows come those that a program has deleted.
        _ if !after.deleted => Some(PruneCursor {
            deleted: true,
            due_at: UnixMs(0),
            row: 0,
        }),
        _ => None,
    }
}

/// Returns the value of `status` for a finished state. `None` for the others, which are never pruned.
fn status(state: State) -> Option<i64> {
    match state {
        State::Done => Some(1),
        State::Dead => Some(2),
        State::Cancelled => Some(3),
        State::Pending | State::Waiting | State::Running => None,
    }
}

/// Returns how long ago a deleted row must at least have finished, in milliseconds.
fn youngest_ms_of(age: Option<Duration>) -> i64 {
    age.map_or(i64::MAX / 2_000_000, ms).min(ms(Prune::AGE_MIN))
}

fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 2_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(row: u64, old: bool, spare: bool) -> decode::Finished {
        decode::Finished {
            row,
            key: None,
            due_at: UnixMs(row as i64),
            old,
            spare,
        }
    }

    #[test]
    fn surplus_goes_first_and_old_ones_only_where_an_age_is_said() {
        let rows = [
            found(1, true, true),
            found(2, true, true),
            found(3, false, true),
            found(4, false, false),
        ];
        let deletable = |with_age, surplus| deletable(&rows, with_age, |row| row.row <= surplus);
        assert_eq!(deletable(true, 0), [1, 2]);
        assert!(deletable(false, 0).is_empty());
        assert_eq!(deletable(false, 3), [1, 2, 3]);
        assert_eq!(deletable(true, 1), [1, 2]);
        assert_eq!(deletable(true, 9), [1, 2, 3]);
    }

    #[test]
    fn behind_the_last_live_row_come_the_deleted_ones() {
        let cursor = |deleted, row: u64| PruneCursor {
            deleted,
            due_at: UnixMs(row as i64),
            row,
        };
        let rows = [found(1, true, true), found(2, true, true)];
        assert_eq!(behind(&rows, cursor(false, 0), 2), Some(cursor(false, 2)));
        assert_eq!(behind(&rows, cursor(false, 0), 3), Some(cursor(true, 0)));
        assert_eq!(behind(&[], cursor(true, 7), 3), None);
    }
}
