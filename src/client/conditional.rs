//! Changes of one task that depend on what it is: replaced if it differs, moved or cancelled if it is still the same arming.

use std::sync::Arc;

use super::arming::arm;
use super::receipt::{NotArmed, Receipt};
use super::{ClientError, IntoDue, Task, TaskClient};
use crate::ledger::{
    CancelAnswer, Change, Changed, CreateResult, Created, RescheduleAnswer, RowSnapshot, by_rows,
};
use crate::task::{Arming, State, TaskKey, UnixMs};

/// Result of [`TaskClient::replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The task was written: it is new, or takes the place of another.
    Written(Receipt),
    /// The same task was there before. Also one that has run at this due time, whatever its payload: no arming runs twice.
    Same(Receipt),
    /// The task runs at this due time, with another payload, tag or limit. It is unchanged.
    Running,
}

/// Result of a change of a task that has to be of a given arming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfSame<T> {
    /// It was of this arming.
    Same(T),
    /// It has another arming, or there is no such task.
    Other,
}

impl TaskClient {
    /// Creates a task, or replaces the one of its key, so that due time, payload, tag and limit are these. To repeat the call
    /// changes nothing. Unlike [`create`](Self::create), it reads the row first: a task with the same due time and another
    /// payload is replaced, too. The policy of the task for a pending one is ignored.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be written.
    pub async fn replace(&self, task: Task, due: impl IntoDue) -> Result<Replaced, ClientError> {
        let due = due.into_due()?;
        self.check(&task, due)?;
        let (new, spans) = self.resolve(vec![(task, due)]).await?;
        let new = new.into_iter().next().expect("one task for one");
        let key = new.key.clone();
        let found = Arc::new(std::sync::Mutex::new((None, false)));
        let says = Arc::clone(&found);
        let decide = move |_: UnixMs, rows: &[Option<RowSnapshot>]| {
            let row = rows.first().and_then(Option::as_ref);
            let runs = row.is_some_and(|row| row.lookup.state == State::Running);
            let row = row.filter(|row| row.lookup.arming.due == new.due && !row.lookup.deleted);
            let (change, said) = match row {
                Some(row) if row.lookup.state == State::Cancelled => (None, None),
                Some(row) => {
                    let state = row.lookup.state;
                    let is_same =
                        row.recurrence.is_none() && row.contents.is_same_as(&new.contents);
                    match state {
                        State::Running if !is_same && !row.lookup.older_run => {
                            (Some(Change::Keep), Some(Replaced::Running))
                        }
                        _ if is_same || state.is_finished() => {
                            (Some(Change::Keep), Some(Replaced::Same(unchanged(row))))
                        }
                        _ => (None, None),
                    }
                }
                None => (None, None),
            };
            *says.lock().expect("nothing panics while holding it") = (said, runs);
            vec![change.unwrap_or_else(|| Change::Write(Box::new(new.clone())))]
        };
        let keys = std::slice::from_ref(&key);
        let (see, decide) = by_rows(keys, decide);
        let changed = self.ledger.change(keys, see, decide).await;
        spans.end(changed.as_ref().err());
        let changed = changed?.into_iter().next();
        let (said, older_run) = *found.lock().expect("nothing panics while holding it");
        match (said, changed) {
            (Some(said), _) => Ok(said),
            (None, Some(Changed::Armed(arming))) => {
                Ok(Replaced::Written(self.armed(key, arming, older_run).await))
            }
            (None, _) => Err(ClientError::Ledger(
                crate::ledger::LedgerError::Unavailable {
                    message: "the row was not written".to_owned(),
                    source: None,
                },
            )),
        }
    }

    /// Moves a pending task to another due time, if it is still of this arming.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be moved.
    pub async fn reschedule_if(
        &self,
        key: &TaskKey,
        due: impl IntoDue,
        arming: Arming,
    ) -> Result<IfSame<RescheduleAnswer>, ClientError> {
        let due = due.into_due()?.resolve_checked(self.now().await?)?;
        self.change(std::slice::from_ref(key), move |_, rows| {
            match rows.first().and_then(Option::as_ref) {
                Some(row) if row.lookup.arming == arming => {
                    let answer = match row.lookup.state {
                        State::Running if !row.lookup.older_run || row.lookup.cancelling => {
                            RescheduleAnswer::Running
                        }
                        state if state.is_finished() => RescheduleAnswer::Finished(state),
                        _ => RescheduleAnswer::Moved(Arming { due, ..arming }),
                    };
                    let change = match answer {
                        RescheduleAnswer::Moved(_) => Change::Move(due),
                        _ => Change::Keep,
                    };
                    (vec![change], IfSame::Same(answer))
                }
                _ => (vec![Change::Keep], IfSame::Other),
            }
        })
        .await
    }

    /// Cancels those of these tasks that are still of these armings, in one transaction. Returns the results in the order of
    /// `tasks`.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: all of them are cancelled, or none.
    pub async fn cancel_if(
        &self,
        tasks: &[(TaskKey, Arming)],
    ) -> Result<Vec<IfSame<CancelAnswer>>, ClientError> {
        let (keys, armings): (Vec<TaskKey>, Vec<Arming>) = tasks.iter().cloned().unzip();
        let decide = move |_, rows: Vec<Option<RowSnapshot>>| {
            let answers = rows.iter().zip(&armings).map(|(row, arming)| match row {
                Some(row) if row.lookup.arming == *arming => IfSame::Same(match row.lookup.state {
                    State::Running => CancelAnswer::Running,
                    State::Done | State::Dead => CancelAnswer::Finished(row.lookup.state),
                    _ => CancelAnswer::Cancelled,
                }),
                _ => IfSame::Other,
            });
            let answers: Vec<_> = answers.collect();
            let change = |answer: &IfSame<CancelAnswer>| match answer {
                IfSame::Same(CancelAnswer::Cancelled | CancelAnswer::Running) => Change::Cancel,
                _ => Change::Keep,
            };
            (answers.iter().map(change).collect(), answers)
        };
        self.change_seen(&keys, u64::MAX, |_| false, |_, row| row, decide)
            .await
    }

    async fn armed(&self, key: TaskKey, arming: Arming, older_run: bool) -> Receipt {
        let created = Created {
            arming,
            state: State::Pending,
            older_run,
            since: self.clock_now(),
            result: CreateResult::Written,
        };
        let not_armed = arm(&*self.alarms, self.ledger.clock(), &[(key, created)]).await;
        Receipt::new(created, not_armed.into_iter().next().flatten())
    }
}

/// The receipt for a task that was there before.
fn unchanged(row: &RowSnapshot) -> Receipt {
    let created = Created {
        arming: row.lookup.arming,
        state: row.lookup.state,
        older_run: false,
        since: row.lookup.stamp.created,
        result: CreateResult::Written,
    };
    Receipt::new(created, Some(NotArmed::LeftAsItIs))
}
