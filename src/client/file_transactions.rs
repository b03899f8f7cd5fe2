//! A producer on an SQLite file: creates and cancels tasks in the caller's own transaction.

use std::ops::Deref;
use std::sync::Arc;

use rusqlite::Connection;

use super::{ClientError, IntoDue, IntoKey, IntoTask, Receipt, TaskClient};
use crate::ledger::sqlite::SqliteLedger;
use crate::ledger::{CancelAnswer, Ledger as _};
use crate::timer::AlarmStore;

/// A [`TaskClient`] whose ledger is in an SQLite file. It can also create and cancel tasks in the application's own
/// transaction on the same file. Cloning is cheap; clones share their connections.
///
/// The connection of the application comes from the crate [`rusqlite`](crate::rusqlite). Begin with `BEGIN IMMEDIATE`,
/// which waits for other transactions that write; those wait until the transaction ends, too.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use lapsed::rusqlite::{Connection, TransactionBehavior};
/// use lapsed::{Config, SqliteTaskClient, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
///
/// let tasks = SqliteTaskClient::connect(&Config::load(None)?).await?;
/// let mut shop = Connection::open("/var/lib/shop/shop.db")?;
/// let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// tx.execute("INSERT INTO orders (id) VALUES (42)", [])?;
/// tasks.create_in(&tx, CLOSE.args(42), Duration::from_secs(1800))?;
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteTaskClient {
    tasks: TaskClient,
    ledger: Arc<SqliteLedger>,
}

impl SqliteTaskClient {
    /// Creates a client from its parts.
    pub fn with_parts(ledger: Arc<SqliteLedger>, alarms: Arc<dyn AlarmStore>) -> Self {
        Self {
            tasks: TaskClient::with_parts(Arc::clone(&ledger) as _, alarms),
            ledger,
        }
    }

    /// Creates a task in the caller's own transaction on the ledger's file: the task exists if and only if that commits. A
    /// daemon notices the commit within some milliseconds.
    ///
    /// # Errors
    /// As [`create`](TaskClient::create). After [`ClientError::Exists`] nothing is written, and the transaction can go
    /// on. After any other error it can only be rolled back.
    pub fn create_in(
        &self,
        tx: &Connection,
        task: impl IntoTask,
        due: impl IntoDue,
    ) -> Result<Receipt, ClientError> {
        let task = task.into_task()?;
        let now = self.ledger.clock().now();
        // The span ends with this call, before the commit.
        let (tasks, _span) = self.tasks.resolve_at(now, vec![(task, due.into_due()?)])?;
        let created = self.ledger.create_in(tx, &tasks)?[0];
        match ClientError::if_refused(&tasks[0].key, &created) {
            Some(exists) => Err(exists),
            None => Ok(Receipt::new(created, None)),
        }
    }

    /// Cancels a task in the caller's own transaction on the ledger's file: it is cancelled if and only if that commits.
    /// [`CancelAnswer::Running`] means that a run has begun, and only its end decides.
    ///
    /// # Errors
    /// [`ClientError`]; the transaction can then only be rolled back.
    pub fn cancel_in(
        &self,
        tx: &Connection,
        key: impl IntoKey,
    ) -> Result<CancelAnswer, ClientError> {
        Ok(self.ledger.cancel_in(tx, &key.into_key()?)?)
    }
}

impl Deref for SqliteTaskClient {
    type Target = TaskClient;

    fn deref(&self) -> &TaskClient {
        &self.tasks
    }
}

impl From<SqliteTaskClient> for TaskClient {
    fn from(client: SqliteTaskClient) -> Self {
        client.tasks
    }
}
