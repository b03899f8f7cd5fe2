//! Changes of several tasks in one transaction, decided by what is there.

use std::sync::{Arc, Mutex};

use super::arming::{arm, disarm_cancelled};
use super::{ClientError, Task, TaskClient};
use crate::ledger::{CancelAnswer, Change, Changed, Created, SeriesRow, Stands};
use crate::task::{State, TaskKey, UnixMs};

/// What becomes of a task: see [`TaskClient::change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// It stays as it is.
    Keep,
    /// This task takes its place, even if the due time stays the same.
    Write(Box<Task>, UnixMs),
    /// A pending task gets another due time.
    Move(UnixMs),
    /// It is cancelled.
    Cancel,
}

impl TaskClient {
    /// Reads tasks, in the order of `keys`. `None` for a key without a row.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn standing(&self, keys: &[TaskKey]) -> Result<Vec<Option<SeriesRow>>, ClientError> {
        Ok(self.ledger.standing(keys).await?)
    }

    /// Reads tasks of different keys and changes them as `decide` says, in one transaction: nothing else changes them in
    /// between. Returns what `decide` has returned beside the wishes.
    ///
    /// `decide` gets the ledger's time and the rows in the order of `keys`. It may be called more than once; only its last
    /// result counts. Tasks are not checked: call [`check`](Self::check) before.
    ///
    /// # Errors
    /// [`ClientError`]: nothing is changed, unless the ledger did not answer.
    ///
    /// # Cancel safety
    /// Safe to drop: all changes are made, or none.
    pub async fn change<T, F>(&self, keys: &[TaskKey], decide: F) -> Result<T, ClientError>
    where
        T: Send + 'static,
        F: Fn(UnixMs, &[Option<SeriesRow>]) -> (Vec<Wish>, T) + Send + Sync + 'static,
    {
        let said = Arc::new(Mutex::new(None));
        let says = Arc::clone(&said);
        let decide = move |now, rows: &[Option<SeriesRow>]| {
            let (wishes, beside) = decide(now, rows);
            *says.lock().expect("nothing panics while holding it") = Some(beside);
            wishes.into_iter().map(into_change).collect()
        };
        let changed = self.ledger.change(keys, Arc::new(decide)).await?;
        let done = keys.iter().zip(changed);
        let mut armed = Vec::new();
        for (key, changed) in done {
            match changed {
                Changed::Kept => {}
                Changed::Armed(arming) => {
                    let created = Created {
                        arming,
                        state: State::Pending,
                        older_run: false,
                        since: arming.due,
                        stands: Stands::Asked,
                    };
                    armed.push((key.clone(), created));
                }
                Changed::Cancelled => {
                    disarm_cancelled(&*self.timer, key, CancelAnswer::Cancelled).await;
                }
            }
        }
        arm(&*self.timer, self.ledger.clock(), &armed).await;
        let said = said.lock().expect("nothing panics while holding it").take();
        Ok(said.expect("the ledger has asked"))
    }

    /// Returns the local estimate of the ledger's time, without a statement.
    pub fn clock_now(&self) -> UnixMs {
        self.ledger.clock().now()
    }
}

fn into_change(wish: Wish) -> Change {
    match wish {
        Wish::Keep => Change::Keep,
        Wish::Move(due) => Change::Move(due),
        Wish::Cancel => Change::Cancel,
        Wish::Write(task, due) => Change::Write(Box::new(task.due_at(due))),
    }
}
