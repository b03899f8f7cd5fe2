//! Rows of recurring tasks.

use super::connection::{Conn, statement};
use super::error::error;
use super::error_numbers::is_duplicate;
use super::{MysqlLedger, decode, queries, retried};
use lapsed_core::ledger::{LedgerError, NewTask, RowSnapshot};
use lapsed_core::task::{Arming, State, TaskKey, row_due};

impl MysqlLedger {
    pub(super) async fn series_of(
        &self,
        key: &TaskKey,
    ) -> Result<Option<RowSnapshot>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        if !self.can_hold(&mut conn, key).await.map_err(error)? {
            return Ok(None);
        }
        let question = statement(self.queries.plain(queries::SERIES)).bind(key.to_string());
        let rows = conn.fetch(question).await.map_err(error)?;
        rows.first().map(decode::series).transpose().map_err(error)
    }

    pub(super) async fn mark_configured_of(&self, seen: &RowSnapshot) -> Result<bool, LedgerError> {
        let Some((stored, recurrence)) = seen.stored() else {
            return Ok(false);
        };
        let noted = recurrence.configured().to_string();
        retried!(self, |conn| {
            let update = statement(self.queries.plain(queries::MARK_CONFIGURED))
                .bind(noted.clone())
                .bind(seen.lookup.arming.row)
                .bind(stored.to_owned());
            conn.execute(update)
        })
        .map(|matched| matched > 0)
    }

    pub(super) async fn write_series_once(
        &self,
        conn: &mut Conn,
        task: &NewTask,
        over: Option<&RowSnapshot>,
    ) -> sqlx::Result<Option<Arming>> {
        match over {
            None => self.insert_series(conn, task).await,
            Some(seen) => self.update_series(conn, task, seen).await,
        }
    }

    async fn insert_series(&self, conn: &mut Conn, task: &NewTask) -> sqlx::Result<Option<Arming>> {
        let due = task.due;
        let insert = statement(self.queries.plain(queries::SERIES_NEW))
            .bind(task.key.to_string())
            .bind(row_due(self.clock.now()).0)
            .bind(due.0)
            .bind(task.contents.max_attempts)
            .bind(task.contents.tag.clone())
            .bind(task.contents.payload.clone())
            .bind(task.recurrence.as_ref().map(ToString::to_string));
        match conn.insert(insert).await {
            Ok(row) => Ok(Some(Arming { row, due })),
            Err(error) if is_duplicate(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Updates the row. Matches nothing if the row has changed since it was read.
    async fn update_series(
        &self,
        conn: &mut Conn,
        task: &NewTask,
        seen: &RowSnapshot,
    ) -> sqlx::Result<Option<Arming>> {
        let (lookup, due) = (&seen.lookup, task.due);
        let is_deleted = lookup.deleted || lookup.cancelling;
        let status = match lookup.state {
            State::Pending | State::Waiting | State::Running => 0i64,
            State::Cancelled if is_deleted => 0,
            State::Done => 1,
            State::Dead => 2,
            State::Cancelled => 3,
        };
        let open = status == 0 && !is_deleted;
        let template = match open && lookup.arming.due == due {
            true => queries::SERIES_SAME,
            false => queries::SERIES_OVER,
        };
        let update = statement(self.queries.plain(template))
            .bind(task.contents.max_attempts)
            .bind(task.contents.tag.clone())
            .bind(task.contents.payload.clone())
            .bind(task.recurrence.as_ref().map(ToString::to_string))
            .bind(due.0)
            .bind(lookup.arming.row)
            .bind(lookup.arming.due.0)
            .bind(status)
            .bind(i64::from(is_deleted || status == 3))
            .bind(seen.recurrence.clone())
            .bind(i64::from(lookup.state == State::Running));
        let row = lookup.arming.row;
        Ok((conn.execute(update).await? > 0).then_some(Arming { row, due }))
    }
}
