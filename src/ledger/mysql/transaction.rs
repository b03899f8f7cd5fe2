//! Effects exactly once: a handler's own transaction, with the completion as its last statement.

use std::any::Any;

use async_trait::async_trait;
use sqlx::{Acquire, MySql, MySqlConnection, MySqlTransaction};

use super::connection::{Statement, error, statement};
use super::queries;
use super::rows::{SettledRow, StandingRow, cancel_answer};
use super::settle::GoingOn;
use super::{MysqlLedger, padded};
use crate::handler::{HandlerError, TaskContext};
use crate::ledger::{CancelAnswer, Created, Lease, LedgerError, NewTask};
use crate::task::{Due, Outcome, TaskKey, UnixMs};

/// A transaction on the ledger's database, begun by [`MysqlTask::begin`].
pub type TaskTransaction = MySqlTransaction<'static>;

/// What a handler can do in the ledger's own database.
#[async_trait]
pub trait MysqlTask {
    /// Begins a transaction on the ledger's database, for the handler's own statements.
    ///
    /// The session is the server's default in everything but the time zone, which is UTC.
    ///
    /// # Errors
    /// Retryable: the database did not answer, or the engine runs on another ledger.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&self) -> Result<TaskTransaction, HandlerError>;

    /// Completes the task as the last statement of `tx`, and commits: effects and completion happen
    /// together, once, or not at all. So does what [`keep_result`](TaskContext::keep_result) was given before. Of a
    /// task that comes again, its next arming takes the place of the completion.
    ///
    /// # Errors
    /// [`HandlerError::fenced`] if the claim is no longer ours: everything is rolled back. Retryable if
    /// the database does not answer; when the reply to the commit is lost, the row is read back and
    /// tells.
    ///
    /// # Cancel safety
    /// Not cancel safe in its result: the commit may or may not have happened. The row tells.
    async fn complete_in(&self, tx: TaskTransaction) -> Result<(), HandlerError>;

    /// As [`complete_in`](Self::complete_in), and in the same transaction makes the next arming of the same key. If the
    /// task was cancelled during the run it is only completed. Of a task that comes again, this is its next arming, and
    /// its series goes on behind it.
    ///
    /// # Errors
    /// As for `complete_in`; permanent if the due time is refused.
    async fn again_in(&self, tx: TaskTransaction, due: Due) -> Result<(), HandlerError>;
}

#[async_trait]
impl MysqlTask for TaskContext {
    async fn begin(&self) -> Result<TaskTransaction, HandlerError> {
        let pool = ledger(self)?.pools.handlers().clone();
        // The driver's `begin` is not cancel safe: a task of its own sees it through.
        let begun = tokio::spawn(async move { pool.begin().await }).await;
        let begun =
            begun.map_err(|error| HandlerError::new(format!("begin transaction: {error}")))?;
        begun.map_err(|error| HandlerError::new(format!("begin transaction: {error}")))
    }

    async fn complete_in(&self, tx: TaskTransaction) -> Result<(), HandlerError> {
        let ledger = ledger(self)?;
        match self.following(ledger.clock.now()) {
            Some(next) => {
                let sql = ledger.queries.plain(queries::GO_ON);
                let sql = ledger.in_handlers_session(sql).await?;
                let update = |cancelled| {
                    let done = GoingOn::succeeded(next, self.result());
                    done.bound(statement(sql.clone()), cancelled)
                };
                let goes_on = (update(false), Outcome::Again(next));
                self.settle_in(tx, [goes_on, (update(true), Outcome::Completed)])
                    .await
            }
            None => {
                let update = self.completion(ledger).await?;
                self.settle_in(tx, [(update, Outcome::Completed)]).await
            }
        }
    }

    async fn again_in(&self, tx: TaskTransaction, due: Due) -> Result<(), HandlerError> {
        let ledger = ledger(self)?;
        let now = ledger.clock.now();
        let due = due
            .resolve_checked(now)
            .map_err(|error| HandlerError::permanent(error.to_string()))?;
        // The same due time would be the same arming, which has just been completed.
        let due = if due == self.due() {
            UnixMs(due.0 + 1)
        } else {
            due
        };
        let sql = ledger.queries.plain(queries::AGAIN_IN);
        let update = statement(ledger.in_handlers_session(sql).await?)
            .bind(now.0)
            .bind(due.0);
        let ways = [
            (update, Outcome::Again(due)),
            (self.completion(ledger).await?, Outcome::Completed),
        ];
        self.settle_in(tx, ways).await
    }
}

impl TaskContext {
    async fn completion(&self, ledger: &MysqlLedger) -> Result<Statement<'static>, HandlerError> {
        let sql = ledger.queries.plain(queries::COMPLETE_IN);
        let sql = ledger.in_handlers_session(sql).await?;
        Ok(statement(sql).bind(self.result()))
    }

    /// Runs the first of these that matches as the last statement of `tx`: the last three values of each are the fence of
    /// this run. The second is for a task that was cancelled meanwhile.
    async fn settle_in<const N: usize>(
        &self,
        mut tx: TaskTransaction,
        ways: [(Statement<'static>, Outcome); N],
    ) -> Result<(), HandlerError> {
        let Lease { arming, owner } = self.lease();
        for (update, outcome) in ways {
            let update = update
                .bind(arming.row)
                .bind(arming.due.0)
                .bind(owner.0.to_vec());
            let matched = update
                .execute(&mut *tx)
                .await
                .map_err(|error| HandlerError::new(format!("complete task: {error}")))?;
            if matched.rows_affected() > 0 {
                return self.close(tx, outcome).await;
            }
        }
        Err(HandlerError::fenced())
    }

    /// Commits; a lost reply is resolved by reading the row.
    async fn close(&self, tx: TaskTransaction, outcome: Outcome) -> Result<(), HandlerError> {
        let Err(commit_error) = tx.commit().await else {
            self.conclude(outcome);
            return Ok(());
        };
        match ledger(self)?.was_settled(self.lease(), &outcome).await {
            Ok(true) => {
                self.conclude(outcome);
                Ok(())
            }
            Ok(false) => Err(HandlerError::new(format!(
                "commit transaction: {commit_error}"
            ))),
            Err(error) => Err(HandlerError::new(format!(
                "commit transaction: {commit_error}; its result is not known: {error}"
            ))),
        }
    }
}

fn ledger(context: &TaskContext) -> Result<&MysqlLedger, HandlerError> {
    let any: &dyn Any = context.ledger();
    any.downcast_ref().ok_or_else(|| {
        HandlerError::new("transactions need the MySQL ledger, this engine runs on another one")
    })
}

impl MysqlLedger {
    async fn in_handlers_session(&self, sql: String) -> Result<String, HandlerError> {
        let sql = self.in_others_session(sql).await;
        sql.map_err(|error| HandlerError::new(format!("complete task: {error}")))
    }

    async fn was_settled(&self, lease: Lease, outcome: &Outcome) -> Result<bool, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let rows = conn
            .fetch(statement(self.queries.with_rows(queries::SETTLED, 1)).bind(lease.arming.row))
            .await
            .map_err(error)?;
        let Some(row) = rows.first() else {
            return Ok(false);
        };
        let row = SettledRow::read(row).map_err(error)?;
        let done = row.status == 1 && row.owner == Some(lease.owner) && row.arming == lease.arming;
        Ok(match outcome {
            Outcome::Again(due) => done || row.arming.due == *due,
            _ => done,
        })
    }

    /// Creates tasks in the caller's own transaction: they exist if and only if it commits.
    ///
    /// # Errors
    /// [`LedgerError`]; the transaction can then only be rolled back.
    pub async fn create_in(
        &self,
        tx: &mut MySqlConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Created>, LedgerError> {
        let keys: Vec<&TaskKey> = tasks.iter().map(|task| &task.key).collect();
        self.refuse_unfit(&keys).await?;
        let connection = tx.acquire().await.map_err(error)?;
        let refs: Vec<&NewTask> = tasks.iter().collect();
        for (sql, tasks) in self.creations(&refs) {
            let sql = self.in_others_session(sql).await?;
            sqlx::query::Query::<MySql, _>::execute(self.creation(sql, &tasks), &mut *connection)
                .await
                .map_err(error)?;
        }
        let keys: Vec<&str> = keys.into_iter().map(TaskKey::as_str).collect();
        let standings = self.standings_in(connection, &keys).await?;
        tasks
            .iter()
            .map(|task| {
                standings
                    .iter()
                    .find(|row| row.key == task.key.as_str())
                    .map(|row| row.created(task))
            })
            .map(|created| created.ok_or_else(|| error(sqlx::Error::RowNotFound)))
            .collect()
    }

    /// Calls a task off in the caller's own transaction: it is off if and only if that commits.
    ///
    /// # Errors
    /// [`LedgerError`]; the transaction can then only be rolled back.
    pub async fn cancel_in(
        &self,
        tx: &mut MySqlConnection,
        key: &TaskKey,
    ) -> Result<CancelAnswer, LedgerError> {
        if !key.as_str().is_ascii() && !self.facts().await?.key_charset.holds(key.as_str()) {
            return Ok(CancelAnswer::Unknown);
        }
        let update = self.queries.with_keys(queries::CANCEL, 1);
        let update = statement(self.in_others_session(update).await?).bind(key.to_string());
        update.execute(&mut *tx).await.map_err(error)?;
        let standings = self.standings_in(tx, &[key.as_str()]).await?;
        Ok(cancel_answer(standings.first()))
    }

    /// Where keys stand, in the caller's own transaction. The rows are locked: the transaction may have read before, and
    /// would see them as they were then, or not at all.
    async fn standings_in(
        &self,
        tx: &mut MySqlConnection,
        keys: &[&str],
    ) -> Result<Vec<StandingRow>, LedgerError> {
        let keys = padded(keys);
        let question =
            self.queries.with_keys(queries::STANDING, keys.len()) + queries::AS_IT_IS_NOW;
        let question = statement(self.in_others_session(question).await?);
        let question = keys
            .iter()
            .fold(question, |question, key| question.bind((*key).to_owned()));
        let rows = question.fetch_all(tx).await.map_err(error)?;
        let standings = rows.iter().map(StandingRow::read);
        standings.collect::<Result<_, _>>().map_err(error)
    }
}
