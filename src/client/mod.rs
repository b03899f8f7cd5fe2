//! The library of producers: creates, cancels, reschedules and looks up tasks. It needs no daemon in this process.
//!
//! [`TaskClient`] has the verbs of every ledger. `MysqlTaskClient` adds those that take a transaction.

mod arming;
mod batcher;
mod cancel_where;
mod changes;
mod conditional;
mod error;
#[cfg(feature = "sqlite")]
mod file_transactions;
mod maintenance;
mod pace;
mod pauses;
mod pruning;
mod receipt;
mod recurring;
mod request;
mod spans;
mod task;
mod task_type;
#[cfg(feature = "mysql")]
mod transactions;
mod unique;

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

pub use crate::ledger::CreateResult;
use crate::ledger::{CancelAnswer, Created, Ledger, LedgerError, NewTask, RescheduleAnswer};
use crate::task::{Arming, Due, State, TaskKey, Traceparent, UnixMs};
use crate::timer::AlarmStore;
use crate::trace::{self, Tracer};

use self::arming::{arm, disarm_cancelled};
use self::batcher::Batcher;
pub use self::cancel_where::{CancelReport, WouldCancel};
pub use self::conditional::{IfSame, Replaced};
pub use self::error::ClientError;
#[cfg(feature = "sqlite")]
pub use self::file_transactions::SqliteTaskClient;
pub use self::maintenance::DeadCount;
pub use self::pace::Pace;
pub use self::pruning::Pruning;
pub use self::receipt::{NotArmed, Receipt};
pub use self::request::Request;
use self::spans::CreateSpans;
pub use self::task::{IntoDue, Task};
pub use self::task_type::{IntoArg, IntoKey, IntoTask, TaskType};
#[cfg(feature = "mysql")]
pub use self::transactions::{AfterCommit, Cancelled, MysqlTaskClient};

/// Creates, cancels and looks up tasks. Cloning is cheap. Clones share their connections, and tasks that they create at
/// the same time share a statement.
///
/// ```no_run
/// # async fn example() -> Result<(), lapsed::ClientError> {
/// use std::time::Duration;
/// use lapsed::{Config, TaskClient, TaskType};
///
/// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
///
/// let tasks = TaskClient::connect(&Config::load(None)?).await?;
/// let receipt = tasks.create(CLOSE.args(42), Duration::from_secs(1800)).await?;
/// println!("task {} falls due at {}", receipt.id(), receipt.due());
/// tasks.cancel(CLOSE.args(42)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaskClient {
    ledger: Arc<dyn Ledger>,
    alarms: Arc<dyn AlarmStore>,
    batcher: Arc<Batcher>,
    /// Returns the trace that a call belongs to.
    caller_trace: Option<Arc<CallerTrace>>,
    /// Records the spans of created tasks.
    tracer: Option<Arc<dyn Tracer>>,
}

type CallerTrace = dyn Fn() -> Option<String> + Send + Sync;

impl TaskClient {
    /// The ledger of the tasks.
    pub fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger)
    }

    /// Creates a client from its parts.
    pub fn with_parts(ledger: Arc<dyn Ledger>, alarms: Arc<dyn AlarmStore>) -> Self {
        let clock = ledger.clock().clone();
        let batcher = Batcher::new(Arc::clone(&ledger) as _, clock, Arc::clone(&alarms));
        Self {
            ledger,
            alarms,
            batcher: Arc::new(batcher),
            caller_trace: None,
            tracer: None,
        }
    }

    /// Sets a function that returns the caller's trace as the text of a [`Traceparent`], for
    /// programs that use OpenTelemetry or another tracer. It is called for each task without a trace of its own. If it
    /// returns `None` or an invalid text, a task that is created by a handler belongs to the trace of that run, and any
    /// other task to none.
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
    pub fn trace_with<F>(self, trace: F) -> Self
    where
        F: Fn() -> Option<String> + Send + Sync + 'static,
    {
        Self {
            caller_trace: Some(Arc::new(trace)),
            ..self
        }
    }

    /// Sets a recorder of spans. A task with a trace then gets a span for its creation, which is the parent of its runs. A
    /// task without a trace gets none.
    #[must_use]
    pub fn with_tracer(self, tracer: Arc<dyn Tracer>) -> Self {
        Self {
            tracer: Some(tracer),
            ..self
        }
    }

    /// Returns the caller's trace.
    fn current_trace(&self) -> Option<Traceparent> {
        let given = self.caller_trace.as_ref().and_then(|trace| trace());
        let given = given.and_then(|text| {
            let parsed: Result<Traceparent, _> = text.parse();
            // A broken tracer must not prevent the creation of a task.
            parsed
                .inspect_err(
                    |error| tracing::debug!(%error, "the function of `trace_with` is wrong"),
                )
                .ok()
        });
        given.or_else(trace::current)
    }

    /// Creates a task. If there is an unfinished task of the same key, it is moved to this due time, unless
    /// the task has another [`IfPending`](crate::ledger::IfPending) policy. To repeat a call with the same due time changes nothing. A task with the same
    /// due time and another payload, tag or limit gets the new ones, unless it runs or has ended.
    ///
    /// The task is a [`TaskType`] with its arguments, a class, a method and arguments as texts, or a
    /// [`Task`] with more options. The due time is a delay or a moment ([`IntoDue`]).
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
    /// [`ClientError`]: an invalid name or due time, or a failure of the ledger. An unreachable Redis is not an error: see
    /// [`Receipt::armed`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be created.
    pub async fn create(
        &self,
        task: impl IntoTask,
        due: impl IntoDue,
    ) -> Result<Receipt, ClientError> {
        let task = task.into_task()?;
        let key = task.key.clone();
        let receipts = self.create_many(vec![(task, due.into_due()?)]).await?;
        let receipt = receipts
            .into_iter()
            .next()
            .expect("one receipt for one task");
        match ClientError::if_refused(&key, &receipt.created) {
            Some(exists) => Err(exists),
            None => Ok(receipt),
        }
    }

    /// Checks whether [`create`](Self::create) would accept a task, without a statement. The due time is checked against
    /// the local estimate of the ledger's clock.
    ///
    /// # Errors
    /// [`ClientError`] names the first problem.
    pub fn check(&self, task: &Task, due: Due) -> Result<(), ClientError> {
        task.check()?;
        due.resolve_checked(self.ledger.clock().now())?;
        Ok(())
    }

    /// Creates many tasks. Returns their receipts in the same order. All tasks are checked before the first is written.
    ///
    /// A task that exists is no error, even with [`IfPending::Refuse`](crate::ledger::IfPending::Refuse): see
    /// [`Receipt::result`].
    ///
    /// # Errors
    /// As [`create`](Self::create). If the ledger fails midway, some tasks may be created.
    ///
    /// # Cancel safety
    /// Safe to drop: some tasks may be created.
    pub async fn create_many(&self, tasks: Vec<(Task, Due)>) -> Result<Vec<Receipt>, ClientError> {
        let (mut tasks, spans) = self.resolve(tasks).await?;
        if batcher::first_part(&tasks) == tasks.len() {
            let answer = self.batcher.create(tasks).await;
            spans.end(answer.as_ref().err());
            return Ok(answer?);
        }
        let mut batches = Vec::with_capacity(tasks.len().div_ceil(batcher::BATCH_MAX));
        while !tasks.is_empty() {
            let later = tasks.split_off(batcher::first_part(&tasks));
            batches.push(std::mem::replace(&mut tasks, later));
        }
        let receipts = stream::iter(batches)
            .map(|batch| self.batcher.create(batch))
            .buffered(batcher::WRITERS_MAX);
        let answer: Result<Vec<Vec<Receipt>>, LedgerError> = receipts.try_collect().await;
        spans.end(answer.as_ref().err());
        let receipts = answer?;
        Ok(receipts.into_iter().flatten().collect())
    }

    /// Cancels a task. A run that has begun is not stopped, but the task is not tried again.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be cancelled.
    pub async fn cancel(&self, key: impl IntoKey) -> Result<CancelAnswer, ClientError> {
        let key = &key.into_key()?;
        let answers = self.ledger.cancel(std::slice::from_ref(key)).await?;
        let answer = answers.into_iter().next().expect("one answer for one key");
        disarm_cancelled(&*self.alarms, key, answer).await;
        Ok(answer)
    }

    /// Moves a pending task to another due time.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be moved.
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

    /// Returns the time until a task may start, in seconds, rounded up. 0 if it is due or running, `None` if it is
    /// finished or does not exist.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ttl(&self, key: impl IntoKey) -> Result<Option<u64>, ClientError> {
        Ok(self.pttl(key).await?.map(|ms| ms.div_ceil(1000)))
    }

    /// As [`ttl`](Self::ttl), in milliseconds.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
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
            Some(lookup) if lookup.state == State::Running && !lookup.older_run => Some(0),
            Some(lookup) => u64::try_from(lookup.due_at.since(now).as_millis()).ok(),
        })
    }

    /// Arms the key of a task whose row was just moved, so that every daemon learns of it. Returns the reason if the key is
    /// not armed. That is not an error, since the row exists.
    ///
    /// # Cancel safety
    /// Safe to drop: the key may or may not be armed.
    pub async fn arm_again(&self, key: &TaskKey, arming: Arming) -> Option<NotArmed> {
        let created = Created {
            arming,
            state: State::Pending,
            older_run: false,
            since: arming.due,
            result: CreateResult::Written,
        };
        let not_armed = arm(
            &*self.alarms,
            self.ledger.clock(),
            &[(key.clone(), created)],
        )
        .await;
        not_armed.into_iter().next().flatten()
    }

    /// Returns the ledger's time, to which delays are added.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn now(&self) -> Result<UnixMs, ClientError> {
        Ok(self.ledger.now().await?)
    }

    async fn resolve(
        &self,
        tasks: Vec<(Task, Due)>,
    ) -> Result<(Vec<NewTask>, CreateSpans), ClientError> {
        self.resolve_at(self.now().await?, tasks)
    }

    /// Returns the tasks as the ledger takes them, and the spans of their creation.
    fn resolve_at(
        &self,
        now: UnixMs,
        tasks: Vec<(Task, Due)>,
    ) -> Result<(Vec<NewTask>, CreateSpans), ClientError> {
        let mut spans = CreateSpans::default();
        let tasks: Result<Vec<NewTask>, ClientError> = tasks
            .into_iter()
            .map(|(mut task, due)| {
                task.check()?;
                let due = due.resolve_checked(now)?;
                let trace = match task.is_text {
                    true => task.trace(),
                    false => task.trace().or_else(|| self.current_trace()),
                };
                task.set_trace(match (&self.tracer, trace) {
                    (Some(tracer), Some(caller)) => spans.start(&**tracer, &task.key, caller),
                    _ => trace,
                });
                Ok(task.due_at(due))
            })
            .collect();
        Ok((tasks?, spans))
    }
}
