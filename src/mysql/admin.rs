//! Administration: find, list, count, run now, and dead letters.

use std::time::Duration;

use async_trait::async_trait;

use sqlx::Row as _;

use super::connection::{Conn, about_rows, covered, statement};
use super::error::error;
use super::{BATCH_MAX, MysqlLedger, decode, queries, retried};
use lapsed_core::ledger::{
    Admin, DetailedStats, DetailedStatsLimits, Forecast, ForecastRange, LedgerError, ListFilter,
    ListPage, Pauses, Picked, RunNowAnswer, TaskRecord,
};
use lapsed_core::task::{Paused, State, TaskKey};

#[async_trait]
impl Admin for MysqlLedger {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        if !self.can_hold(&mut conn, key).await.map_err(error)? {
            return Ok(None);
        }
        let question = self.queries.record_by_key();
        let rows = conn
            .fetch(statement(question).bind(key.to_string()))
            .await
            .map_err(error)?;
        rows.first().map_or(Ok(None), decode::record).map_err(error)
    }

    async fn find_archived(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let question = statement(self.archive.archived_by_key()).bind(key.to_string());
        let rows = conn.fetch(question).await;
        let rows = rows.map_err(|error| self.archive_error(error))?;
        let found = rows.first().map_or(Ok(None), decode::record);
        let archived = |task| TaskRecord {
            archived: true,
            ..task
        };
        Ok(found.map_err(error)?.map(archived))
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        self.list_page(filter).await
    }

    async fn overdue_for(&self) -> Result<Duration, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let oldest = self.oldest_overdue(&mut conn).await.map_err(error)?;
        Ok(Duration::from_millis(oldest.overdue_ms_max))
    }

    async fn detailed_stats(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, LedgerError> {
        self.detailed_stats_of(limits).await
    }

    async fn forecast(&self, range: ForecastRange) -> Result<Forecast, LedgerError> {
        let count = covered(self.queries.plain(queries::COUNT_BY_DUE))
            .bind(range.from.0)
            .bind(range.step_ms())
            .bind(range.from.0)
            .bind(range.until().0)
            .bind(u64::from(range.entries) + 1);
        let mut conn = self.pools.acquire().await?;
        let rows = conn.fetch(count).await.map_err(error)?;
        let counted = rows.iter().map(|row| {
            let step: i64 = row.try_get("step")?;
            let tasks: i64 = row.try_get("tasks")?;
            Ok((step.unsigned_abs(), tasks.unsigned_abs()))
        });
        let counted: sqlx::Result<Vec<(u64, u64)>> = counted.collect();
        Ok(Forecast::of(&range, &counted.map_err(error)?))
    }

    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        let paused = Paused::of(&self.pauses().await?);
        let held_before = paused.held_before_of(key).unwrap_or_default().0;
        self.make_due(queries::RUN_NOW, &[held_before; 2], key, State::is_pending)
            .await
    }

    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        let is_dead = |state| state == State::Dead;
        self.make_due(queries::REDRIVE, &[], key, is_dead).await
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        self.pick(filter).await
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        self.over_rows(queries::REDRIVE_ROWS, rows).await
    }

    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError> {
        self.keys_of_dead(rows).await
    }

    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        self.over_rows(queries::DISCARD_ROWS, rows).await
    }
}

impl MysqlLedger {
    /// Runs an update that makes a task due, with `times` and the key as its values.
    async fn make_due(
        &self,
        template: &str,
        times: &[i64],
        key: &TaskKey,
        is_meant_for: fn(State) -> bool,
    ) -> Result<RunNowAnswer, LedgerError> {
        retried!(self, |conn| self.make_due_once(
            conn,
            template,
            times,
            key,
            is_meant_for
        ))
    }

    async fn make_due_once(
        &self,
        conn: &mut Conn,
        template: &str,
        times: &[i64],
        key: &TaskKey,
        is_meant_for: fn(State) -> bool,
    ) -> sqlx::Result<RunNowAnswer> {
        let update = || {
            let update = statement(self.queries.plain(template));
            times.iter().fold(update, |update, time| update.bind(*time))
        };
        let (matched, lookup) = self.change(conn, update, key, is_meant_for).await?;
        Ok(match lookup {
            None => RunNowAnswer::Unknown,
            Some(row) if matched => RunNowAnswer::Due(row.arming),
            Some(row) => RunNowAnswer::Refused(row.state()),
        })
    }

    /// Runs a statement over rows, without those that another session has locked. Returns how many matched.
    async fn over_rows(&self, template: &'static str, rows: &[u64]) -> Result<u64, LedgerError> {
        let mut matched = 0;
        let mut conn = self.pools.acquire().await?;
        for batch in rows.chunks(BATCH_MAX) {
            let act = |ids: &[u64]| about_rows(&self.queries, template, ids);
            let done = self
                .locks
                .skip_locked(
                    &mut conn,
                    &self.queries,
                    batch,
                    |id| *id,
                    |conn, ids| Box::pin(conn.execute(act(ids))),
                )
                .await
                .map_err(error)?;
            matched += done.matched;
        }
        Ok(matched)
    }

    async fn keys_of_dead(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError> {
        let mut keys = Vec::with_capacity(rows.len());
        let mut conn = self.pools.acquire().await?;
        for batch in rows.chunks(BATCH_MAX) {
            let question = about_rows(&self.queries, queries::DEAD_KEYS, batch);
            for row in conn.fetch(question).await.map_err(error)? {
                keys.extend(decode::key(&row).map_err(error)?);
            }
        }
        Ok(keys)
    }
}
