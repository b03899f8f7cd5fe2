//! Creating and cancelling tasks in the caller's own transaction on the ledger's database.

use std::sync::Arc;

use sqlx::MySqlConnection;

use super::arming::arm;
use super::{ClientError, IntoDue, IntoKey, IntoTask, Receipt, TaskClient};
use crate::clock::LedgerClock;
use crate::ledger::{CancelAnswer, Created};
use crate::task::{Arming, TaskKey};
use crate::timer::Timer;

impl TaskClient {
    /// Creates a task in the caller's own transaction on the ledger's database: it exists if and only if that commits.
    ///
    /// # Errors
    /// As [`create`](Self::create); the transaction can then only be rolled back, but after [`ClientError::Exists`], which
    /// has written nothing.
    pub async fn create_in(
        &self,
        tx: &mut MySqlConnection,
        task: impl IntoTask,
        due: impl IntoDue,
    ) -> Result<AfterCommit, ClientError> {
        let task = task.into_task()?;
        let transactions = self
            .ledger
            .transactions()
            .ok_or_else(|| ClientError::Invalid("`create_in` needs the MySQL ledger".to_owned()))?;
        let tasks = self.resolve(vec![(task, due.into_due()?)]).await?;
        let created = transactions.create_in(tx, &tasks).await?;
        let (task, created) = tasks
            .into_iter()
            .zip(created)
            .next()
            .expect("one answer for one task");
        if let Some(exists) = ClientError::if_refused(&task.key, &created) {
            return Err(exists);
        }
        Ok(AfterCommit {
            created,
            key: task.key,
            timer: Arc::clone(&self.timer),
            clock: self.ledger.clock().clone(),
        })
    }

    /// Calls a task off in the caller's own transaction on the ledger's database: it is off if and only if that
    /// commits. Ask the answer to [`disarm`](Cancelled::disarm) its key then.
    ///
    /// The row is locked until the transaction ends: a daemon that wants to run the task waits for that, or lets it be
    /// until then.
    ///
    /// # Errors
    /// [`ClientError`]; the transaction can then only be rolled back.
    pub async fn cancel_in(
        &self,
        tx: &mut MySqlConnection,
        key: impl IntoKey,
    ) -> Result<Cancelled, ClientError> {
        let key = key.into_key()?;
        let transactions = self
            .ledger
            .transactions()
            .ok_or_else(|| ClientError::Invalid("`cancel_in` needs the MySQL ledger".to_owned()))?;
        Ok(Cancelled {
            answer: transactions.cancel_in(tx, &key).await?,
            key,
            timer: Arc::clone(&self.timer),
        })
    }
}

/// A task created in the caller's own transaction: arm it after the commit.
#[must_use = "call `arm()` after the commit; without it the task starts up to 2 s late"]
#[derive(Clone)]
pub struct AfterCommit {
    created: Created,
    key: TaskKey,
    timer: Arc<dyn Timer>,
    clock: LedgerClock,
}

impl AfterCommit {
    /// Arms the key. If this is never called (a crash after the commit), the daemon finds the row by itself;
    /// if the transaction was rolled back, the signal leads to nothing.
    pub async fn arm(self) -> Receipt {
        let not_armed = arm(&*self.timer, &self.clock, &[(self.key, self.created)]).await;
        Receipt::new(self.created, not_armed.into_iter().next().flatten())
    }

    /// The arming that stands once the transaction is committed.
    pub fn arming(&self) -> Arming {
        self.created.arming
    }
}

/// A task called off in the caller's own transaction: disarm it after the commit.
#[must_use = "call `disarm()` after the commit; without it the key expires in vain"]
#[derive(Clone)]
pub struct Cancelled {
    answer: CancelAnswer,
    key: TaskKey,
    timer: Arc<dyn Timer>,
}

impl Cancelled {
    /// What it comes to once the transaction is committed. [`CancelAnswer::Running`] says that a run of it has begun:
    /// whoever must not lose against that rolls back.
    pub fn answer(&self) -> CancelAnswer {
        self.answer
    }

    /// Deletes the key. If this is never called, it expires when the task would have fallen due, and leads to nothing.
    pub async fn disarm(self) -> CancelAnswer {
        if matches!(self.answer, CancelAnswer::Cancelled | CancelAnswer::Running)
            && let Err(error) = self.timer.disarm(std::slice::from_ref(&self.key)).await
        {
            tracing::debug!(%error, "could not delete the key of a cancelled task: its event will lead to nothing");
        }
        self.answer
    }
}
