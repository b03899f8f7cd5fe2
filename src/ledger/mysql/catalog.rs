//! Looking at tasks and mending them.

use async_trait::async_trait;
use sqlx::Row;

use super::connection::{Conn, error, statement};
use super::filter::Conditions;
use super::{MysqlLedger, queries, retried, rows};
use crate::ledger::{
    Catalog, LedgerError, ListFilter, ListPage, NudgeAnswer, Pauses, Picked, Prune, Pruned, Stats,
    Survey, SurveyLimits, TaskRecord,
};
use crate::task::{Paused, State, TaskKey};

#[async_trait]
impl Catalog for MysqlLedger {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        if !self.can_hold(&mut conn, key).await.map_err(error)? {
            return Ok(None);
        }
        let question = self.queries.plain(queries::RECORD) + queries::RECORD_BY_KEY;
        let rows = conn
            .fetch(statement(question).bind(key.to_string()))
            .await
            .map_err(error)?;
        rows.first().map_or(Ok(None), rows::record).map_err(error)
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        let conditions = Conditions::of(filter);
        let question = format!(
            "{}id > ?{} ORDER BY id LIMIT ?",
            self.queries.records(filter.tag.is_some()),
            conditions.text()
        );
        let question = statement(question).bind(filter.cursor.unwrap_or(0));
        let question = conditions.bind(question).bind(filter.limit);
        let mut conn = self.pools.acquire().await?;
        let rows = conn.fetch(question).await.map_err(error)?;
        let next = match rows.last() {
            Some(last) if rows.len() == filter.limit as usize => {
                Some(last.try_get_unchecked::<u64, _>("id").map_err(error)?)
            }
            _ => None,
        };
        let tasks = rows
            .iter()
            .filter_map(|row| rows::record(row).transpose())
            .collect::<Result<_, _>>()
            .map_err(error)?;
        Ok(ListPage { tasks, next })
    }

    async fn stats(&self) -> Result<Stats, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let rows = conn
            .fetch(statement(self.queries.plain(queries::STATS)))
            .await
            .map_err(error)?;
        let row = rows
            .first()
            .ok_or_else(|| error(sqlx::Error::RowNotFound))?;
        let count = |column: &str| {
            row.try_get::<i64, _>(column)
                .map(|count| u64::try_from(count).unwrap_or(0))
                .map_err(error)
        };
        Ok(Stats {
            pending: count("pending")?,
            waiting: count("waiting")?,
            running: count("running")?,
            done: count("done")?,
            dead: count("dead")?,
            cancelled: count("cancelled")?,
            overdue: count("overdue")?,
            overdue_ms_max: count("overdue_ms")?,
        })
    }

    async fn survey(&self, limits: SurveyLimits) -> Result<Survey, LedgerError> {
        self.survey_of(limits).await
    }

    async fn run_now(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError> {
        let paused = Paused::of(&Pauses::all(self).await?);
        let held_before = paused.held_before_of(key).unwrap_or_default().0;
        self.mend(queries::RUN_NOW, &[held_before; 2], key).await
    }

    async fn redrive(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError> {
        self.mend(queries::REDRIVE, &[], key).await
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        self.pick(filter).await
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        self.over_rows(queries::REDRIVE_ROWS, rows).await
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

    async fn count_finished(&self, state: State) -> Result<u64, LedgerError> {
        self.count(state).await
    }
}

impl MysqlLedger {
    async fn mend(
        &self,
        template: &str,
        times: &[i64],
        key: &TaskKey,
    ) -> Result<NudgeAnswer, LedgerError> {
        retried!(self, |conn| self.mend_once(conn, template, times, key))
    }

    async fn mend_once(
        &self,
        conn: &mut Conn,
        template: &str,
        times: &[i64],
        key: &TaskKey,
    ) -> sqlx::Result<NudgeAnswer> {
        let update = statement(self.queries.plain(template));
        let update = times.iter().fold(update, |update, time| update.bind(*time));
        let (matched, standing) = self.change(conn, update, key).await?;
        Ok(match standing {
            None => NudgeAnswer::Unknown,
            Some(row) if matched => NudgeAnswer::Due(row.arming),
            Some(row) => NudgeAnswer::Refused(row.state()),
        })
    }
}
