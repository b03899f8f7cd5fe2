//! Transactions of handlers and producers on the ledger's database.

use sqlx::{Acquire, MySql, MySqlConnection, MySqlTransaction};

use super::MysqlLedger;
use super::connection::{Statement, statement};
use super::decode::{LookupRow, SettledRow, cancel_answer};
use super::error::error;
use super::queries::{self, padded};
use super::settle::NextOccurrence;
use lapsed_core::ledger::{CancelAnswer, Created, Ending, Lease, LedgerError, NewTask};
use lapsed_core::task::{EndedOccurrence, OccurrenceEnd, Outcome, TaskKey};

/// A transaction on the ledger's database, begun by [`MysqlLedger::begin`].
pub type TaskTransaction = MySqlTransaction<'static>;

/// Reason why a handler's transaction did not settle its task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The transaction could not begin.
    #[error("begin transaction: {0}")]
    Begin(Box<dyn std::error::Error + Send + Sync>),
    /// The settling statement failed.
    #[error("complete task: {0}")]
    Settle(Box<dyn std::error::Error + Send + Sync>),
    /// The commit failed, and nothing was written.
    #[error("commit transaction: {0}")]
    Commit(sqlx::Error),
    /// The reply to the commit was lost, and the row could not be read back.
    #[error("commit transaction: {commit}; its result is not known: {read}")]
    Unknown {
        /// Why the commit failed.
        commit: sqlx::Error,
        /// Why the row could not be read.
        read: LedgerError,
    },
}

impl MysqlLedger {
    /// Begins a transaction in a session with the server's defaults, except for the time zone, which is UTC.
    ///
    /// # Errors
    /// [`TransactionError::Begin`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn begin(&self) -> Result<TaskTransaction, TransactionError> {
        let pool = self.pools.handlers().clone();
        // The driver's `begin` is not cancel safe, so it runs to its end in a task of its own.
        let transaction = tokio::spawn(async move { pool.begin().await }).await;
        let transaction = transaction.map_err(|error| TransactionError::Begin(error.into()))?;
        transaction.map_err(|error| TransactionError::Begin(error.into()))
    }

    /// Settles a run as the last statement of `tx`, and commits. `None`: the claim is lost, and all is rolled back.
    ///
    /// # Errors
    /// [`TransactionError`]; nothing is written, except after [`TransactionError::Unknown`].
    pub async fn settle_in(
        &self,
        tx: TaskTransaction,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
    ) -> Result<Option<Outcome>, TransactionError> {
        match ending {
            Ending::Complete { next: None } => {
                let update = self.completion(result).await?;
                self.settle_by(tx, lease, [(update, Outcome::Completed)])
                    .await
            }
            Ending::Complete { next: Some(next) } => {
                let sql = self.queries.plain(queries::NEXT_OCCURRENCE);
                let sql = self.in_handlers_session(sql).await?;
                let update = |cancelled| {
                    let done = NextOccurrence::succeeded(next, result.clone());
                    done.bound(statement(sql.clone()), lease.arming.due, cancelled)
                };
                let advances = (update(false), Outcome::Again(next));
                self.settle_by(tx, lease, [advances, (update(true), Outcome::Completed)])
                    .await
            }
            Ending::Again { now, due } => {
                let sql = self.queries.plain(queries::AGAIN_IN);
                let ended = EndedOccurrence::new(lease.arming.due, &OccurrenceEnd::Succeeded);
                let update = statement(self.in_handlers_session(sql).await?)
                    .bind(ended.to_string())
                    .bind(now.0)
                    .bind(now.0)
                    .bind(due.0);
                let ways = [
                    (update, Outcome::Again(due)),
                    (self.completion(result).await?, Outcome::Completed),
                ];
                self.settle_by(tx, lease, ways).await
            }
        }
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
        let lookups = self.look_up_rows_in(connection, &keys).await?;
        tasks
            .iter()
            .map(|task| {
                lookups
                    .iter()
                    .find(|row| row.key == task.key.as_str())
                    .map(|row| row.created(task))
            })
            .map(|created| created.ok_or_else(|| error(sqlx::Error::RowNotFound)))
            .collect()
    }

    /// Cancels a task in the caller's own transaction: it is cancelled if and only if that commits.
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
        let lookups = self.look_up_rows_in(tx, &[key.as_str()]).await?;
        Ok(cancel_answer(lookups.first()))
    }

    async fn completion(
        &self,
        result: Option<String>,
    ) -> Result<Statement<'static>, TransactionError> {
        let sql = self.queries.plain(queries::COMPLETE_IN);
        let sql = self.in_handlers_session(sql).await?;
        Ok(statement(sql).bind(result))
    }

    /// Adapts a statement to a session that is not the engine's.
    ///
    /// Under `innodb_snapshot_isolation`, a row that has changed since the transaction first read anything cannot be locked
    /// (error 1020, which rolls back everything), and the daemon itself changes the row of a run when it renews its lease. The
    /// ledger's statements carry their own guards, so they read the current row; the transaction's own statements are not
    /// affected. The number of decimals of a division (`div_precision_increment`) must not cut milliseconds either.
    async fn in_others_session(&self, sql: String) -> Result<String, LedgerError> {
        let sql = sql.replace("AS SIGNED) / 1000", "AS SIGNED) * 0.001");
        Ok(match self.facts().await?.snapshot_isolation {
            true => format!("SET STATEMENT innodb_snapshot_isolation = OFF FOR {sql}"),
            false => sql,
        })
    }

    async fn in_handlers_session(&self, sql: String) -> Result<String, TransactionError> {
        let sql = self.in_others_session(sql).await;
        sql.map_err(|error| TransactionError::Settle(error.into()))
    }

    /// Runs the first of these statements that matches the fence of the run, whose three values come last. The second one is
    /// for a task that was cancelled during the run.
    async fn settle_by<const N: usize>(
        &self,
        mut tx: TaskTransaction,
        lease: Lease,
        ways: [(Statement<'static>, Outcome); N],
    ) -> Result<Option<Outcome>, TransactionError> {
        let Lease { arming, owner } = lease;
        for (update, outcome) in ways {
            let update = update
                .bind(arming.row)
                .bind(arming.due.0)
                .bind(owner.0.to_vec());
            let matched = update
                .execute(&mut *tx)
                .await
                .map_err(|error| TransactionError::Settle(error.into()))?;
            if matched.rows_affected() > 0 {
                return self.commit(tx, lease, outcome).await.map(Some);
            }
        }
        Ok(None)
    }

    /// Commits. If the reply is lost, reads the row.
    async fn commit(
        &self,
        tx: TaskTransaction,
        lease: Lease,
        outcome: Outcome,
    ) -> Result<Outcome, TransactionError> {
        let Err(commit) = tx.commit().await else {
            return Ok(outcome);
        };
        match self.was_settled(lease, &outcome).await {
            Ok(true) => Ok(outcome),
            Ok(false) => Err(TransactionError::Commit(commit)),
            Err(read) => Err(TransactionError::Unknown { commit, read }),
        }
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

    /// Looks up keys in the caller's transaction. Locks the rows: the transaction may have read before, and would see them as
    /// they were then, or not at all.
    async fn look_up_rows_in(
        &self,
        tx: &mut MySqlConnection,
        keys: &[&str],
    ) -> Result<Vec<LookupRow>, LedgerError> {
        let keys = padded(keys);
        let question = self.queries.with_keys(queries::LOOKUP, keys.len()) + queries::AS_IT_IS_NOW;
        let question = statement(self.in_others_session(question).await?);
        let question = keys
            .iter()
            .fold(question, |question, key| question.bind((*key).to_owned()));
        let rows = question.fetch_all(tx).await.map_err(error)?;
        let lookups = rows.iter().map(LookupRow::read);
        lookups.collect::<Result<_, _>>().map_err(error)
    }
}
