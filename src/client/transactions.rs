//! A producer on MySQL: creates and cancels tasks in the caller's own transaction.

use std::ops::Deref;
use std::sync::Arc;

use sqlx::MySqlConnection;

use super::arming::{arm, disarm_cancelled};
use super::{ClientError, IntoDue, IntoKey, IntoTask, NotArmed, Receipt, TaskClient};
use crate::ledger::mysql::MysqlLedger;
use crate::ledger::{CancelAnswer, Claims as _, Created, Ledger as _};
use crate::task::{Arming, TaskKey};
use crate::timer::AlarmStore;

/// A [`TaskClient`] whose ledger is in MySQL or MariaDB. It can also create and cancel tasks in the application's own
/// transaction on the ledger's database. Cloning is cheap; clones share their connections.
///
/// Code that does not need a transaction takes a `&TaskClient`, which a reference to this coerces to, and can be tested
/// in memory. An owned `TaskClient` is `client.into()`.
///
/// ```no_run
/// # async fn example(pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use lapsed::{Config, MysqlTaskClient, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
///
/// let tasks = MysqlTaskClient::connect(&Config::load(None)?).await?;
/// let mut tx = pool.begin().await?;
/// sqlx::query("INSERT INTO orders (id) VALUES (42)").execute(&mut *tx).await?;
/// let closing = tasks.create_in(&mut tx, CLOSE.args(42), Duration::from_secs(1800)).await?;
/// tx.commit().await?;
/// closing.arm().await;
/// # Ok(())
/// # }
/// ```
///
/// A client on another ledger has no such methods:
///
/// ```compile_fail,E0599
/// # async fn example(tx: &mut sqlx::MySqlConnection) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use lapsed::{Config, Handlers};
///
/// let (_engine, tasks) = lapsed::in_memory(&Config::default(), Handlers::new());
/// tasks.create_in(tx, ("Order", "close", [42]), Duration::from_secs(1800)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MysqlTaskClient {
    tasks: TaskClient,
    ledger: Arc<MysqlLedger>,
}

impl MysqlTaskClient {
    /// Creates a client from its parts.
    pub fn with_parts(ledger: Arc<MysqlLedger>, alarms: Arc<dyn AlarmStore>) -> Self {
        Self {
            tasks: TaskClient::with_parts(Arc::clone(&ledger) as _, alarms),
            ledger,
        }
    }

    /// As [`TaskClient::trace_with`].
    #[must_use]
    pub fn trace_with<F>(self, trace: F) -> Self
    where
        F: Fn() -> Option<String> + Send + Sync + 'static,
    {
        Self {
            tasks: self.tasks.trace_with(trace),
            ..self
        }
    }

    /// Creates a task in the caller's own transaction on the ledger's database: the task exists if and only if that
    /// commits. After the commit, call [`arm`](AfterCommit::arm) on what this returns.
    ///
    /// # Errors
    /// As [`create`](TaskClient::create). After [`ClientError::Exists`] nothing is written, and the transaction can go
    /// on. After any other error it can only be rolled back.
    ///
    /// # Cancel safety
    /// Not cancel safe: roll the transaction back if the future is dropped.
    pub async fn create_in(
        &self,
        tx: &mut MySqlConnection,
        task: impl IntoTask,
        due: impl IntoDue,
    ) -> Result<AfterCommit, ClientError> {
        let task = task.into_task()?;
        // The span ends with this call, before the commit.
        let (tasks, _span) = self.tasks.resolve(vec![(task, due.into_due()?)]).await?;
        let created = self.ledger.create_in(tx, &tasks).await?;
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
            alarms: Arc::clone(&self.tasks.alarms),
            ledger: Arc::clone(&self.ledger),
        })
    }

    /// Cancels a task in the caller's own transaction on the ledger's database: it is cancelled if and only if that
    /// commits. After the commit, call [`disarm`](Cancelled::disarm) on what this returns.
    ///
    /// The row is locked until the transaction ends. A daemon does not start the task before that.
    ///
    /// # Errors
    /// [`ClientError`]; the transaction can then only be rolled back.
    ///
    /// # Cancel safety
    /// Not cancel safe: roll the transaction back if the future is dropped.
    pub async fn cancel_in(
        &self,
        tx: &mut MySqlConnection,
        key: impl IntoKey,
    ) -> Result<Cancelled, ClientError> {
        let key = key.into_key()?;
        Ok(Cancelled {
            answer: self.ledger.cancel_in(tx, &key).await?,
            key,
            alarms: Arc::clone(&self.tasks.alarms),
        })
    }
}

impl Deref for MysqlTaskClient {
    type Target = TaskClient;

    fn deref(&self) -> &TaskClient {
        &self.tasks
    }
}

impl From<MysqlTaskClient> for TaskClient {
    fn from(client: MysqlTaskClient) -> Self {
        client.tasks
    }
}

/// A task created in the caller's own transaction: arm it after the commit.
#[must_use = "call `arm()` after the commit; without it the task starts up to 2 s late"]
#[derive(Clone)]
pub struct AfterCommit {
    created: Created,
    key: TaskKey,
    alarms: Arc<dyn AlarmStore>,
    ledger: Arc<MysqlLedger>,
}

impl AfterCommit {
    /// Arms the key, if the row is there. Without this, for example after a crash behind the commit, a daemon finds the
    /// row by itself.
    ///
    /// After a rollback there is no row, and no key is armed: a daemon would take it for a program's, and run it. The
    /// receipt then says [`NotArmed::NotCommitted`].
    ///
    /// # Cancel safety
    /// Cancel safe: the key may or may not be armed.
    pub async fn arm(self) -> Receipt {
        let found = self.ledger.look_up(std::slice::from_ref(&self.key)).await;
        let found = found.map(|rows| rows.into_iter().next().flatten());
        let not_armed = match found {
            Ok(Some(row)) if row.arming == self.created.arming => None,
            Ok(_) => Some(NotArmed::NotCommitted),
            Err(_) => Some(NotArmed::Unreachable),
        };
        if not_armed.is_some() {
            return Receipt::new(self.created, not_armed);
        }
        let not_armed = arm(
            &*self.alarms,
            self.ledger.clock(),
            &[(self.key, self.created)],
        )
        .await;
        Receipt::new(self.created, not_armed.into_iter().next().flatten())
    }

    /// The arming of the task once the transaction is committed.
    pub fn arming(&self) -> Arming {
        self.created.arming
    }
}

/// A task cancelled in the caller's own transaction: disarm it after the commit.
#[must_use = "call `disarm()` after the commit; without it the key expires without effect"]
#[derive(Clone)]
pub struct Cancelled {
    answer: CancelAnswer,
    key: TaskKey,
    alarms: Arc<dyn AlarmStore>,
}

impl Cancelled {
    /// The result once the transaction is committed. [`CancelAnswer::Running`] means that a run has begun, and only its
    /// end decides: roll back if the task must not have run.
    pub fn answer(&self) -> CancelAnswer {
        self.answer
    }

    /// Deletes the key. Without this it expires when the task would have fallen due, without effect.
    ///
    /// # Cancel safety
    /// Cancel safe: the key may or may not be deleted.
    pub async fn disarm(self) -> CancelAnswer {
        disarm_cancelled(&*self.alarms, &self.key, self.answer).await;
        self.answer
    }
}
