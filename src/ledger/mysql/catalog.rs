//! Looking at tasks and mending them.

use async_trait::async_trait;
use sqlx::Row;

use super::connection::{Conn, error, statement};
use super::{MysqlLedger, queries, retried, rows};
use crate::ledger::{
    Catalog, LedgerError, ListFilter, ListPage, NudgeAnswer, Pauses, StateFilter, Stats, TaskRecord,
};
use crate::task::{Paused, State, TaskKey};

#[async_trait]
impl Catalog for MysqlLedger {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let question = self.queries.plain(queries::RECORD) + queries::RECORD_BY_KEY;
        let rows = conn
            .fetch(statement(question).bind(key.to_string()))
            .await
            .map_err(error)?;
        rows.first().map_or(Ok(None), rows::record).map_err(error)
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        let ListFilter {
            states,
            class,
            method,
            tag,
            due_after,
            due_before,
            cursor,
            limit,
        } = filter;
        let mut wheres = vec!["id > ?".to_owned()];
        if !states.is_empty() {
            wheres.push(format!(
                "({})",
                states
                    .iter()
                    .map(|state| condition(*state))
                    .collect::<Vec<_>>()
                    .join(" OR ")
            ));
        }
        let texts: Vec<String> = [
            class
                .as_ref()
                .map(|class| ("`key` LIKE ?", format!("{}@%", like_literal(class)))),
            method.as_ref().map(|method| {
                (
                    "SUBSTRING_INDEX(SUBSTRING_INDEX(`key`, '@', 2), '@', -1) = ?",
                    method.clone(),
                )
            }),
            tag.as_ref().map(|tag| ("tag = ?", tag.clone())),
        ]
        .into_iter()
        .flatten()
        .map(|(condition, text)| {
            wheres.push(condition.to_owned());
            text
        })
        .collect();
        let times: Vec<i64> = [
            due_after.map(|due| ("end_time >= CAST(? AS SIGNED) / 1000", due.0)),
            due_before.map(|due| ("end_time < CAST(? AS SIGNED) / 1000", due.0)),
        ]
        .into_iter()
        .flatten()
        .map(|(condition, time)| {
            wheres.push(condition.to_owned());
            time
        })
        .collect();
        let question = format!(
            "{}{} ORDER BY id LIMIT ?",
            self.queries.plain(queries::RECORD),
            wheres.join(" AND ")
        );
        let question = statement(question).bind(cursor.unwrap_or(0));
        let question = texts
            .into_iter()
            .fold(question, |question, text| question.bind(text));
        let question = times
            .into_iter()
            .fold(question, |question, time| question.bind(time));
        let mut conn = self.pools.acquire().await?;
        let rows = conn.fetch(question.bind(*limit)).await.map_err(error)?;
        let next = match rows.last() {
            Some(last) if rows.len() == *limit as usize => {
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

    async fn run_now(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError> {
        let paused = Paused::of(&Pauses::all(self).await?);
        let held_before = paused.held_before_of(key).unwrap_or_default().0;
        self.mend(queries::RUN_NOW, &[held_before; 2], key).await
    }

    async fn redrive(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError> {
        self.mend(queries::REDRIVE, &[], key).await
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

fn condition(filter: StateFilter) -> &'static str {
    match filter {
        StateFilter::Is(State::Pending) => {
            "(status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AND NOT (run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3))))"
        }
        StateFilter::Is(State::Waiting) => {
            "(status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AND run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)))"
        }
        StateFilter::Is(State::Running) => "(status = 0 AND lease_until >= UNIX_TIMESTAMP(NOW(3)))",
        StateFilter::Is(State::Done) => "(status = 1)",
        StateFilter::Is(State::Dead) => "(status = 2)",
        StateFilter::Is(State::Cancelled) => {
            "(status = 3 OR (status = 0 AND sts = 1 AND lease_until < UNIX_TIMESTAMP(NOW(3))))"
        }
        StateFilter::Overdue => {
            "(status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AND due_at <= UNIX_TIMESTAMP(NOW(3)))"
        }
    }
}

/// A class name as a `LIKE` pattern that matches only itself.
fn like_literal(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('_', "\\_")
        .replace('%', "\\%")
}
