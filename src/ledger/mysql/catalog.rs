//! Looking at tasks and mending them.

use std::time::Duration;

use async_trait::async_trait;

use super::connection::{Conn, error, statement};
use super::{MysqlLedger, decode, queries, retried};
use crate::ledger::{
    Catalog, DetailedStats, DetailedStatsLimits, LedgerError, ListFilter, ListPage, Pauses, Picked,
    Prune, PruneCursor, Pruned, RunNowAnswer, TaskRecord,
};
use crate::task::{Paused, State, TaskKey};

#[async_trait]
impl Catalog for MysqlLedger {
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

    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        let paused = Paused::of(&Pauses::all(self).await?);
        let held_before = paused.held_before_of(key).unwrap_or_default().0;
        self.mend(queries::RUN_NOW, &[held_before; 2], key).await
    }

    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        self.mend(queries::REDRIVE, &[], key).await
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

    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        self.prune_batch(prune).await
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        self.prune_these(prune, rows).await
    }

    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError> {
        self.surplus_of(state, keep).await
    }
}

impl MysqlLedger {
    async fn mend(
        &self,
        template: &str,
        times: &[i64],
        key: &TaskKey,
    ) -> Result<RunNowAnswer, LedgerError> {
        retried!(self, |conn| self.mend_once(conn, template, times, key))
    }

    async fn mend_once(
        &self,
        conn: &mut Conn,
        template: &str,
        times: &[i64],
        key: &TaskKey,
    ) -> sqlx::Result<RunNowAnswer> {
        let update = statement(self.queries.plain(template));
        let update = times.iter().fold(update, |update, time| update.bind(*time));
        let (matched, lookup) = self.change(conn, update, key).await?;
        Ok(match lookup {
            None => RunNowAnswer::Unknown,
            Some(row) if matched => RunNowAnswer::Due(row.arming),
            Some(row) => RunNowAnswer::Refused(row.state()),
        })
    }
}
