//! Producing tasks: create, cancel, reschedule, ask. No daemon in this process.

mod arming;
mod batcher;
mod cancel_where;
mod error;
mod maintenance;
mod pace;
mod pauses;
mod pruning;
mod receipt;
mod recurring;
mod task;
mod task_type;
#[cfg(feature = "mysql")]
mod transactions;
mod unique;

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

pub use crate::ledger::Stands;
use crate::ledger::{CancelAnswer, Created, Ledger, NewTask, RescheduleAnswer};
use crate::task::{Arming, Due, State, TaskKey, Traceparent, UnixMs};
use crate::timer::Timer;
use crate::trace;

use self::arming::{arm, disarm_cancelled};
use self::batcher::Batcher;
pub use self::cancel_where::{CancelReport, WouldCancel};
pub use self::error::ClientError;
pub use self::maintenance::DeadCount;
pub use self::pace::Pace;
pub use self::pruning::Pruning;
pub use self::receipt::{NotArmed, Receipt};
pub use self::task::{IntoDue, Task};
pub use self::task_type::{IntoArg, IntoKey, IntoTask};
#[cfg(feature = "mysql")]
pub use self::transactions::{AfterCommit, Cancelled, MysqlTaskClient};

/// Creates tasks and asks about them. Cloning is cheap; clones share their connections, and what they create at the
/// same time goes into one statement.
///
/// ```no_run
/// # async fn example() -> Result<(), lapsed::ClientError> {
/// use std::time::Duration;
/// use lapsed::{Config, TaskClient, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
///
/// let tasks = TaskClient::connect(&Config::load(None)?).await?;
/// let made = tasks.create(CLOSE.args(42), Duration::from_secs(1800)).await?;
/// println!("task {} falls due at {}", made.id(), made.due());
/// tasks.cancel(CLOSE.args(42)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaskClient {
    ledger: Arc<dyn Ledger>,
    timer: Arc<dyn Timer>,
    batcher: Arc<Batcher>,
    /// Says which trace a call belongs to.
    tracer: Option<Arc<Tracer>>,
}

type Tracer = dyn Fn() -> Option<String> + Send + Sync;

impl TaskClient {
    /// A producer of these parts.
    pub fn with_parts(ledger: Arc<dyn Ledger>, timer: Arc<dyn Timer>) -> Self {
        let clock = ledger.clock().clone();
        let batcher = Batcher::new(Arc::clone(&ledger) as _, clock, Arc::clone(&timer));
        Self {
            ledger,
            timer,
            batcher: Arc::new(batcher),
            tracer: None,
        }
    }

    /// With a function that says which trace the caller is in, as a W3C `traceparent`: for whoever uses OpenTelemetry
    /// or another tracer. It is asked for each task that has none of its own ([`Task::traceparent`]); `None`, or a text
    /// that is no `traceparent`, leaves it at the trace of the run that creates the task, if any.
    ///
    /// ```
    /// # fn current_span() -> Option<(u128, u64)> { None }
    /// # fn example(tasks: lapsed::TaskClient) {
    /// let tasks = tasks.trace_with(|| {
    ///     let (trace, span) = current_span()?;
    ///     Some(format!("00-{trace:032x}-{span:016x}-01"))
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn trace_with<F>(self, traceparent: F) -> Self
    where
        F: Fn() -> Option<String> + Send + Sync + 'static,
    {
        Self {
            tracer: Some(Arc::new(traceparent)),
            ..self
        }
    }

    /// The trace that whoever calls is in.
    fn current_trace(&self) -> Option<Traceparent> {
        let told = self.tracer.as_ref().and_then(|tracer| tracer());
        let told = told.and_then(|text| {
            let parsed: Result<Traceparent, _> = text.parse();
            // A tracer that is broken must not keep a task from being created.
            parsed
                .inspect_err(
                    |error| tracing::debug!(%error, "the function of `trace_with` is wrong"),
                )
                .ok()
        });
        told.or_else(trace::current)
    }

    /// Creates a task, or moves the one of its key to this due time. The same due time again changes nothing.
    ///
    /// The task is named by a [`TaskType`](crate::TaskType) and its arguments, by texts, or is a [`Task`] with more to
    /// it; the due time is a delay or a moment ([`IntoDue`]).
    ///
    /// ```no_run
    /// # async fn example(tasks: lapsed::TaskClient) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use lapsed::TaskType;
    ///
    /// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
    ///
    /// tasks.create(CLOSE.args(42), Duration::from_secs(1800)).await?;
    /// tasks.create(CLOSE.args(43)?.tag("shop-7"), "2030-01-01T09:00[Europe/Berlin]".parse::<jiff::Zoned>()?).await?;
    /// tasks.create(("Order", "close", [44]), Duration::from_secs(1800)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]: a name or time that is refused, or the ledger. Redis being down is none: see [`Receipt::armed`].
    ///
    /// # Cancel safety
    /// Safe to drop; the task may or may not exist then.
    pub async fn create(
        &self,
        task: impl IntoTask,
        due: impl IntoDue,
    ) -> Result<Receipt, ClientError> {
        let task = task.into_task()?;
        let key = task.key.clone();
        let made = self.create_many(vec![(task, due.into_due()?)]).await?;
        let made = made.into_iter().next().expect("one answer for one task");
        match ClientError::if_refused(&key, &made.created) {
            Some(exists) => Err(exists),
            None => Ok(made),
        }
    }

    /// Whether a task could be created as it is, seen from the ledger's clock as it is known here.
    ///
    /// # Errors
    /// [`ClientError`] says what is refused.
    pub fn check(&self, task: &Task, due: Due) -> Result<(), ClientError> {
        task.check()?;
        due.resolve_checked(self.ledger.clock().now())?;
        Ok(())
    }

    /// Creates many; answers in their order. All are checked before the first is written.
    ///
    /// A task that [refuses](crate::ledger::IfPending::Refuse) to take the place of another fails none of the others: see
    /// [`Receipt::stands`].
    ///
    /// # Errors
    /// As [`create`](Self::create); some may have been written when the ledger fails half-way.
    pub async fn create_many(&self, tasks: Vec<(Task, Due)>) -> Result<Vec<Receipt>, ClientError> {
        let mut tasks = self.resolve(tasks).await?;
        if tasks.len() <= batcher::BATCH_MAX {
            return Ok(self.batcher.make(tasks).await?);
        }
        let mut batches = Vec::with_capacity(tasks.len().div_ceil(batcher::BATCH_MAX));
        while !tasks.is_empty() {
            let later = tasks.split_off(tasks.len().min(batcher::BATCH_MAX));
            batches.push(std::mem::replace(&mut tasks, later));
        }
        let made = stream::iter(batches)
            .map(|batch| self.batcher.make(batch))
            .buffered(batcher::WRITERS_MAX);
        let made: Vec<Vec<Receipt>> = made.try_collect().await?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Cancels a task. One that is being run is not stopped, but not tried again either.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel(&self, key: impl IntoKey) -> Result<CancelAnswer, ClientError> {
        let key = &key.into_key()?;
        let answers = self.ledger.cancel(std::slice::from_ref(key)).await?;
        let answer = answers.into_iter().next().expect("one answer for one key");
        disarm_cancelled(&*self.timer, key, answer).await;
        Ok(answer)
    }

    /// Moves a pending task to another due time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reschedule(
        &self,
        key: impl IntoKey,
        due: impl IntoDue,
    ) -> Result<RescheduleAnswer, ClientError> {
        let (key, due) = (&key.into_key()?, due.into_due()?);
        let due = due.resolve_checked(self.now().await?)?;
        let answer = self.ledger.reschedule(key, due).await?;
        if let RescheduleAnswer::Moved(arming) = answer {
            self.arm_again(key, arming).await;
        }
        Ok(answer)
    }

    /// Seconds until the task may start, rounded up; 0 if it is due or running, `None` if it is finished or
    /// there is none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ttl(&self, key: impl IntoKey) -> Result<Option<u64>, ClientError> {
        Ok(self.pttl(key).await?.map(|ms| ms.div_ceil(1000)))
    }

    /// Milliseconds until the task may start; 0 if it is due or running, `None` if it is finished or there is none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pttl(&self, key: impl IntoKey) -> Result<Option<u64>, ClientError> {
        let key = &key.into_key()?;
        let now = self.now().await?;
        let lookup = self
            .ledger
            .look_up(std::slice::from_ref(key))
            .await?
            .into_iter()
            .next()
            .flatten();
        Ok(match lookup {
            None => None,
            Some(lookup) if lookup.state.is_finished() => None,
            Some(lookup) if lookup.state == State::Running => Some(0),
            Some(lookup) => u64::try_from(lookup.due_at.since(now).as_millis()).ok(),
        })
    }

    /// Arms a key whose row was just moved, so that every daemon hears of it. Never fails, since the ledger has it;
    /// says why the key is not armed, if it is not.
    pub async fn arm_again(&self, key: &TaskKey, arming: Arming) -> Option<NotArmed> {
        let created = Created {
            arming,
            state: State::Pending,
            older_run: false,
            since: arming.due,
            stands: Stands::Asked,
        };
        let not_armed = arm(&*self.timer, self.ledger.clock(), &[(key.clone(), created)]).await;
        not_armed.into_iter().next().flatten()
    }

    /// The ledger's time: what "in 30 minutes" is counted from.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn now(&self) -> Result<UnixMs, ClientError> {
        Ok(self.ledger.now().await?)
    }

    async fn resolve(&self, tasks: Vec<(Task, Due)>) -> Result<Vec<NewTask>, ClientError> {
        let now = self.now().await?;
        tasks
            .into_iter()
            .map(|(task, due)| {
                task.check()?;
                let due = due.resolve_checked(now)?;
                let Task {
                    key,
                    payload,
                    tag,
                    max_attempts,
                    mut travels,
                    if_pending,
                } = task;
                travels.traceparent = travels.traceparent.or_else(|| self.current_trace());
                let payload = travels.seal(&key, payload);
                Ok(NewTask {
                    key,
                    due,
                    payload,
                    tag,
                    max_attempts,
                    if_pending,
                    recurrence: None,
                })
            })
            .collect()
    }
}
