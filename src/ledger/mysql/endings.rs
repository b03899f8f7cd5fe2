//! What people and daemons do with many finished rows at once: bring them back, throw them away, forget them. Always
//! few rows to a statement, by primary key.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::Row as _;

use super::connection::{Conn, about_rows, error, statement};
use super::filter::Conditions;
use super::queries;
use super::{BATCH_MAX, MysqlLedger, rows};
use crate::ledger::{LedgerError, ListFilter, Picked, Prune, PruneCursor, Pruned};
use crate::task::{State, UnixMs};

impl MysqlLedger {
    pub(super) async fn pick(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        let conditions = Conditions::but_state(filter);
        let question = format!(
            "{}id > ?{} ORDER BY id LIMIT ?",
            self.queries.plain(queries::PICK_DEAD),
            conditions.text()
        );
        let question = statement(question).bind(filter.cursor.unwrap_or(0));
        let question = conditions.bind(question).bind(filter.limit);
        let mut conn = self.pools.acquire().await?;
        let found = conn.fetch(question).await.map_err(error)?;
        let rows = found
            .iter()
            .map(|row| row.try_get_unchecked::<u64, _>("id"));
        let rows: Vec<u64> = rows.collect::<Result<_, _>>().map_err(error)?;
        let next = rows
            .last()
            .copied()
            .filter(|_| rows.len() == filter.limit as usize);
        Ok(Picked { rows, next })
    }

    /// A statement over rows, leaving out those that another session has locked; tells how many matched.
    pub(super) async fn over_rows(
        &self,
        template: &'static str,
        rows: &[u64],
    ) -> Result<u64, LedgerError> {
        let mut matched = 0;
        let mut conn = self.pools.acquire().await?;
        for batch in rows.chunks(BATCH_MAX) {
            let act = |ids: &[u64]| about_rows(&self.queries, template, ids);
            let past = self
                .locks
                .get_past(
                    &mut conn,
                    &self.queries,
                    batch,
                    |id| *id,
                    |conn, ids| Box::pin(conn.execute(act(ids))),
                )
                .await
                .map_err(error)?;
            matched += past.matched;
        }
        Ok(matched)
    }

    pub(super) async fn prune_batch(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        self.prune_on(&mut conn, prune).await.map_err(error)
    }

    async fn prune_on(&self, conn: &mut Conn, prune: &Prune) -> sqlx::Result<Pruned> {
        let Prune {
            state,
            age,
            surplus,
            after,
            limit,
            dry_run,
        } = *prune;
        let Some(status) = status(state) else {
            return Ok(Pruned::default());
        };
        let after = after.unwrap_or(PruneCursor {
            deleted: false,
            due_at: UnixMs(0),
            row: 0,
        });
        // Whatever is surplus must have been finished for a while; and without an age nothing else goes.
        let spare_ms = ms(Prune::AGE_MIN);
        let age_ms = age.map_or(i64::MAX / 2_000_000, ms);
        let youngest_ms = match (age, surplus) {
            (Some(_), 0) => age_ms,
            _ => spare_ms.min(age_ms),
        };
        let question = statement(self.queries.plain(queries::FINISHED))
            .bind(age_ms)
            .bind(spare_ms)
            .bind(status)
            .bind(i64::from(after.deleted))
            .bind(youngest_ms)
            .bind(after.due_at.0)
            .bind(after.due_at.0)
            .bind(after.row)
            .bind(limit);
        let found = conn.fetch(question).await?;
        let found: Vec<rows::Finished> = found
            .iter()
            .map(rows::Finished::read)
            .collect::<Result<_, _>>()?;
        let (doomed, as_surplus) = doomed(&found, age.is_some(), surplus);
        let mut pruned = Pruned {
            rows: doomed.len() as u64,
            surplus: as_surplus,
            next: behind(&found, after, limit),
            found: Vec::new(),
        };
        if dry_run {
            let doomed: HashSet<u64> = doomed.into_iter().collect();
            let goes = found.into_iter().filter(|row| doomed.contains(&row.row));
            pruned.found = goes.map(|row| (row.row, row.key)).collect();
        } else if !doomed.is_empty() {
            let youngest = youngest_ms_of(age);
            pruned.rows = self.delete(conn, &doomed, status, youngest).await?;
        }
        Ok(pruned)
    }

    pub(super) async fn prune_these(
        &self,
        prune: &Prune,
        rows: &[u64],
    ) -> Result<u64, LedgerError> {
        let Some(status) = status(prune.state).filter(|_| !rows.is_empty()) else {
            return Ok(0);
        };
        let youngest = youngest_ms_of(prune.age);
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
        let past = self
            .locks
            .get_past(
                conn,
                &self.queries,
                rows,
                |id| *id,
                |conn, ids| Box::pin(conn.execute(act(ids))),
            )
            .await?;
        Ok(past.matched)
    }

    pub(super) async fn count(&self, state: State) -> Result<u64, LedgerError> {
        let Some(status) = status(state) else {
            return Ok(0);
        };
        let mut conn = self.pools.acquire().await?;
        let question = statement(self.queries.plain(queries::COUNT_FINISHED)).bind(status);
        let found = conn.fetch(question).await.map_err(error)?;
        let count = rows::first_i64(&found).map_err(error)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

/// Which of these go, old ones or as surplus; and how many of them as surplus.
fn doomed(found: &[rows::Finished], with_age: bool, surplus: u64) -> (Vec<u64>, u64) {
    let mut left = surplus;
    let goes = |row: &&rows::Finished| {
        if left > 0 && row.spare {
            left -= 1;
            return true;
        }
        row.old && with_age
    };
    let doomed = found.iter().filter(goes).map(|row| row.row).collect();
    (doomed, surplus - left)
}

/// Where the page behind these begins.
fn behind(found: &[rows::Finished], after: PruneCursor, limit: u32) -> Option<PruneCursor> {
    match found.last() {
        Some(last) if found.len() == limit as usize => Some(PruneCursor {
            deleted: after.deleted,
            due_at: last.due_at,
            row: last.row,
        }),
        // Behind the live rows come those that somebody has deleted.
        _ if !after.deleted => Some(PruneCursor {
            deleted: true,
            due_at: UnixMs(0),
            row: 0,
        }),
        _ => None,
    }
}

/// The column's value for a finished state; none for the others, which must never be pruned.
fn status(state: State) -> Option<i64> {
    match state {
        State::Done => Some(1),
        State::Dead => Some(2),
        State::Cancelled => Some(3),
        State::Pending | State::Waiting | State::Running => None,
    }
}

/// How long ago what is deleted must have finished: as surplus, or by its age.
fn youngest_ms_of(age: Option<Duration>) -> i64 {
    age.map_or(i64::MAX / 2_000_000, ms).min(ms(Prune::AGE_MIN))
}

fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 2_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(row: u64, old: bool, spare: bool) -> rows::Finished {
        rows::Finished {
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
        assert_eq!(doomed(&rows, true, 0), (vec![1, 2], 0));
        assert_eq!(doomed(&rows, false, 0), (vec![], 0));
        assert_eq!(doomed(&rows, false, 3), (vec![1, 2, 3], 3));
        assert_eq!(doomed(&rows, true, 1), (vec![1, 2], 1));
        assert_eq!(doomed(&rows, true, 9), (vec![1, 2, 3], 3));
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
