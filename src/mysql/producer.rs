//! Creation, rescheduling and cancellation by key.

use std::sync::Arc;

use async_trait::async_trait;

use super::connection::{Conn, statement};
use super::queries::{self, padded};
use super::{BATCH_MAX, MysqlLedger, decode, retried, sizes};
use lapsed_core::ledger::{
    CancelAnswer, CancelPage, Changed, Created, Decide, LedgerError, ListFilter, NewTask, Producer,
    RescheduleAnswer, RowSnapshot, See,
};
use lapsed_core::task::{Arming, State, TaskKey, UnixMs};

#[async_trait]
impl Producer for MysqlLedger {
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        self.now().await?;
        let keys: Vec<&TaskKey> = tasks.iter().map(|task| &task.key).collect();
        self.refuse_unfit(&keys).await?;
        let mut created = Vec::with_capacity(tasks.len());
        let tasks: Vec<&NewTask> = tasks.iter().collect();
        let packet_max = self.pools.acquire().await?.packet_max();
        for task in &tasks {
            packet_max.check(&format!("task `{}`", task.key), sizes::of_task(task))?;
        }
        for batch in packet_max.parts(&tasks, BATCH_MAX, |task| sizes::of_task(task)) {
            created.extend(retried!(self, batch.len(), |conn| self.create_batch(conn, batch))?);
        }
        Ok(created)
    }

    async fn read_row(&self, key: &TaskKey) -> Result<Option<RowSnapshot>, LedgerError> {
        self.now().await?;
        self.series_of(key).await
    }

    async fn read_rows(&self, keys: &[TaskKey], see: Arc<dyn See>) -> Result<(), LedgerError> {
        self.now().await?;
        self.rows_of(keys, &*see).await
    }

    async fn change(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>, LedgerError> {
        self.change_in_one(keys, see, decide).await
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&RowSnapshot>,
    ) -> Result<Option<Arming>, LedgerError> {
        self.refuse_unfit(&[&task.key]).await?;
        retried!(self, |conn| self.write_series_once(conn, task, over))
    }

    async fn mark_configured(&self, seen: &RowSnapshot) -> Result<bool, LedgerError> {
        self.mark_configured_of(seen).await
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        retried!(self, |conn| self.reschedule_once(conn, key, due))
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        let mut answers = Vec::with_capacity(keys.len());
        let texts: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
        for batch in texts.chunks(BATCH_MAX) {
            answers.extend(retried!(self, |conn| self.cancel_once(conn, batch))?);
        }
        Ok(answers)
    }

    async fn cancel_page(
        &self,
        filter: &ListFilter,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        self.cancel_one_page(filter, dry_run).await
    }
}

impl MysqlLedger {
    async fn reschedule_once(
        &self,
        conn: &mut Conn,
        key: &TaskKey,
        due: UnixMs,
    ) -> sqlx::Result<RescheduleAnswer> {
        let update = || statement(self.queries.plain(queries::RESCHEDULE)).bind(due.0);
        let (matched, lookup) = self.change(conn, update, key, State::is_pending).await?;
        let Some(row) = lookup else {
            return Ok(RescheduleAnswer::Unknown);
        };
        Ok(match row.state() {
            _ if matched => RescheduleAnswer::Moved(row.arming),
            // Runs that begin and end between the updates and the looks are running, as far as the producer is concerned.
            State::Running | State::Pending | State::Waiting => RescheduleAnswer::Running,
            state => RescheduleAnswer::Finished(state),
        })
    }

    async fn cancel_once(&self, conn: &mut Conn, keys: &[&str]) -> sqlx::Result<Vec<CancelAnswer>> {
        let charset = self.charset_for(conn, keys).await?;
        let fitting = keys.iter().copied().filter(|key| charset.holds(key));
        let mut sorted: Vec<&str> = fitting.collect();
        if sorted.is_empty() {
            return Ok(vec![CancelAnswer::Unknown; keys.len()]);
        }
        sorted.sort_unstable();
        let sorted = padded(&sorted);
        let update = statement(self.queries.with_keys(queries::CANCEL, sorted.len()));
        conn.execute(
            sorted
                .iter()
                .fold(update, |update, key| update.bind((*key).to_owned())),
        )
        .await?;
        let lookups = self.look_up_rows(conn, keys).await?;
        Ok(keys
            .iter()
            .map(|key| decode::cancel_answer(lookups.get(*key)))
            .collect())
    }
}
