//! Producing tasks: create, cancel, reschedule, ask. No daemon in this process.

mod creations;
mod endings;
mod many;
mod pauses;
mod recurring;
mod task;
mod unique;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sqlx::MySqlConnection;

use crate::config::ConfigError;
pub use crate::ledger::Stands;
use crate::ledger::mysql::MysqlLedger;
use crate::ledger::{
    Arming, CancelAnswer, Catalog, Created, Ledger, LedgerError, NewTask, RescheduleAnswer,
};
use crate::task::{
    Due, KeyError, RecurrenceError, ScheduleError, ScopeError, State, TaskKey, Traceparent,
    TraceparentError, UnixMs,
};
use crate::timer::{Alarm, ArmMode, Timer};
use crate::trace;

use self::creations::Creations;
pub use self::endings::{Pace, Pruning};
pub use self::many::CancelReport;
pub use self::recurring::CalledOff;
pub use self::task::{IntoDue, Task};

/// Most keys that are armed in one call.
const ARM_BATCH: usize = 1_000;

/// Creates tasks and asks about them. Cloning is cheap; clones share their connections, and what they create at the
/// same time goes into one statement.
///
/// ```no_run
/// # async fn example() -> Result<(), lapsed::ClientError> {
/// use lapsed::{Config, TaskClient};
/// use std::time::Duration;
///
/// let tasks = TaskClient::connect(&Config::load(None)?).await?;
/// let made = tasks.create("Order", "close", [42], Duration::from_secs(1800)).await?;
/// println!("task {} falls due at {}", made.id(), made.due());
/// tasks.cancel("Order", "close", [42]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaskClient {
    ledger: Arc<dyn Ledger>,
    timer: Arc<dyn Timer>,
    creations: Arc<Creations>,
    /// Says which trace a call belongs to.
    tracer: Option<Arc<Tracer>>,
    /// For looking things up; producers can do without.
    catalog: Option<Arc<dyn Catalog>>,
}

type Tracer = dyn Fn() -> Option<String> + Send + Sync;

/// What creating a task came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    created: Created,
    /// Whether its key is armed in Redis too. If not, the task runs all the same: the daemon's look-ahead
    /// and sweep find it in the ledger. See [`not_armed`](Self::not_armed) for why.
    pub armed: bool,
    not_armed: Option<NotArmed>,
}

/// Why a task's key is not armed in Redis. The task runs all the same, at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotArmed {
    /// Redis did not take it.
    Unreachable,
    /// It falls due beyond `redis.arm_horizon`: a daemon arms it when that is nearer.
    BeyondHorizon,
    /// The task was there and is left as it is, its key too.
    LeftAsItIs,
}

impl Made {
    /// `<row id>-<due ms>`, the id that handlers and targets will see.
    pub fn id(&self) -> String {
        self.created.arming.to_string()
    }

    /// The arming that stands now.
    pub fn arming(&self) -> Arming {
        self.created.arming
    }

    /// When it falls due, on the ledger's clock.
    pub fn due(&self) -> UnixMs {
        self.created.arming.due
    }

    /// Its state now. Anything but `Pending` and `Waiting` says that this very arming existed before: a
    /// repeated request does not run a task twice.
    pub fn state(&self) -> State {
        self.created.state
    }

    /// Whether an older arming of the same key is being run now.
    pub fn older_run(&self) -> bool {
        self.created.older_run
    }

    /// Whether this is what was asked for, or what was there and kept or refused to give way.
    pub fn stands(&self) -> Stands {
        self.created.stands
    }

    /// Why its key is not armed; `None` if it is, or the task has finished.
    pub fn not_armed(&self) -> Option<NotArmed> {
        self.not_armed
    }

    /// What to say where this task of the key was in the way of another.
    pub fn exists(&self, key: TaskKey) -> ClientError {
        ClientError::exists(key, &self.created)
    }

    fn new(created: Created, not_armed: Option<NotArmed>) -> Self {
        Self {
            created,
            armed: not_armed.is_none(),
            not_armed,
        }
    }

    /// When the task that stands was created.
    pub fn since(&self) -> UnixMs {
        self.created.since
    }
}

/// A task created in the caller's own transaction: arm it after the commit.
#[must_use = "call `arm()` after the commit; without it the task starts up to 2 s late"]
#[derive(Clone)]
pub struct Unarmed {
    created: Created,
    key: TaskKey,
    timer: Arc<dyn Timer>,
    ledger: Arc<dyn Ledger>,
}

impl Unarmed {
    /// Arms the key. If this is never called (a crash after the commit), the daemon finds the row by itself;
    /// if the transaction was rolled back, the signal leads to nothing.
    pub async fn arm(self) -> Made {
        let not_armed = arm(&*self.timer, &*self.ledger, &[(self.key, self.created)]).await;
        Made::new(self.created, not_armed.into_iter().next().flatten())
    }

    /// The arming that stands once the transaction is committed.
    pub fn arming(&self) -> Arming {
        self.created.arming
    }
}

impl TaskClient {
    /// A producer of these parts.
    pub fn with_parts(ledger: Arc<dyn Ledger>, timer: Arc<dyn Timer>) -> Self {
        let creations = Creations::new(Arc::clone(&ledger), Arc::clone(&timer));
        Self {
            ledger,
            timer,
            creations: Arc::new(creations),
            tracer: None,
            catalog: None,
        }
    }

    /// With a function that says which trace the caller is in, as a W3C `traceparent`: for whoever uses OpenTelemetry or
    /// another tracer. It is asked for each task that has none of its own ([`Task::traceparent`]); `None`, or a text that is
    /// no `traceparent`, leaves it at the trace of the run that creates the task, if any.
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

    /// Creates `Class@method@args`, due after `delay`, or moves it there. The same due time again changes nothing.
    ///
    /// # Errors
    /// [`ClientError`]: a name or delay that is refused, or the ledger. Redis being down is none: see [`Made::armed`].
    ///
    /// # Cancel safety
    /// Safe to drop; the task may or may not exist then.
    pub async fn create<A>(
        &self,
        class: &str,
        method: &str,
        args: A,
        delay: Duration,
    ) -> Result<Made, ClientError>
    where
        A: IntoIterator,
        A::Item: ToString,
    {
        self.create_task(Task::new(class, method, args)?, delay)
            .await
    }

    /// As [`create`](Self::create), due after `delay_ms` milliseconds; zero or less is due now.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_ms<A>(
        &self,
        class: &str,
        method: &str,
        args: A,
        delay_ms: i64,
    ) -> Result<Made, ClientError>
    where
        A: IntoIterator,
        A::Item: ToString,
    {
        self.create_task(Task::new(class, method, args)?, Due::after_ms(delay_ms)?)
            .await
    }

    /// Creates one task with everything that can be said of it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_task(&self, task: Task, due: impl IntoDue) -> Result<Made, ClientError> {
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
    /// [`Made::stands`].
    ///
    /// # Errors
    /// As [`create`](Self::create); some may have been written when the ledger fails half-way.
    pub async fn create_many(&self, tasks: Vec<(Task, Due)>) -> Result<Vec<Made>, ClientError> {
        let mut tasks = self.resolve(tasks).await?;
        if tasks.len() <= creations::BATCH_MAX {
            return Ok(self.creations.make(tasks).await?);
        }
        let mut batches = Vec::with_capacity(tasks.len().div_ceil(creations::BATCH_MAX));
        while !tasks.is_empty() {
            let later = tasks.split_off(tasks.len().min(creations::BATCH_MAX));
            batches.push(std::mem::replace(&mut tasks, later));
        }
        let made = stream::iter(batches)
            .map(|batch| self.creations.make(batch))
            .buffered(creations::WRITERS_MAX);
        let made: Vec<Vec<Made>> = made.try_collect().await?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Creates a task in the caller's own transaction on the ledger's database: it exists if and only if that commits.
    ///
    /// # Errors
    /// As [`create`](Self::create); the transaction can then only be rolled back, but after [`ClientError::Exists`], which
    /// has written nothing.
    pub async fn create_in(
        &self,
        tx: &mut MySqlConnection,
        task: Task,
        due: impl IntoDue,
    ) -> Result<Unarmed, ClientError> {
        let any: &dyn Any = &*self.ledger;
        let mysql: &MysqlLedger = any
            .downcast_ref()
            .ok_or_else(|| ClientError::Invalid("`create_in` needs the MySQL ledger".to_owned()))?;
        let tasks = self.resolve(vec![(task, due.into_due()?)]).await?;
        let created = mysql.create_in(tx, &tasks).await?;
        let (task, created) = tasks
            .into_iter()
            .zip(created)
            .next()
            .expect("one answer for one task");
        if let Some(exists) = ClientError::if_refused(&task.key, &created) {
            return Err(exists);
        }
        Ok(Unarmed {
            created,
            key: task.key,
            timer: Arc::clone(&self.timer),
            ledger: Arc::clone(&self.ledger),
        })
    }

    /// Calls a task off. One that is being run is not stopped, but not tried again either.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel<A>(
        &self,
        class: &str,
        method: &str,
        args: A,
    ) -> Result<CancelAnswer, ClientError>
    where
        A: IntoIterator,
        A::Item: ToString,
    {
        self.cancel_key(&key(class, method, args)?).await
    }

    /// As [`cancel`](Self::cancel), by key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel_key(&self, key: &TaskKey) -> Result<CancelAnswer, ClientError> {
        let answers = self.ledger.cancel(std::slice::from_ref(key)).await?;
        let answer = answers.into_iter().next().expect("one answer for one key");
        if answer == CancelAnswer::Cancelled
            && let Err(error) = self.timer.disarm(std::slice::from_ref(key)).await
        {
            tracing::debug!(%error, "could not delete the key of a cancelled task: its event will lead to nothing");
        }
        Ok(answer)
    }

    /// Moves a pending task to another due time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reschedule(
        &self,
        key: &TaskKey,
        due: Due,
    ) -> Result<RescheduleAnswer, ClientError> {
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
    pub async fn ttl(&self, key: &TaskKey) -> Result<Option<u64>, ClientError> {
        Ok(self.pttl(key).await?.map(|ms| ms.div_ceil(1000)))
    }

    /// Milliseconds until the task may start; 0 if it is due or running, `None` if it is finished or there is none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pttl(&self, key: &TaskKey) -> Result<Option<u64>, ClientError> {
        let now = self.now().await?;
        let standing = self
            .ledger
            .look_up(std::slice::from_ref(key))
            .await?
            .into_iter()
            .next()
            .flatten();
        Ok(match standing {
            None => None,
            Some(standing) if standing.state.is_finished() => None,
            Some(standing) if standing.state == State::Running => Some(0),
            Some(standing) => u64::try_from(standing.due_at.since(now).as_millis()).ok(),
        })
    }

    /// Arms a key whose row was just moved, so that every daemon hears of it. Never fails, since the ledger has it; says why the
    /// key is not armed, if it is not.
    pub async fn arm_again(&self, key: &TaskKey, arming: Arming) -> Option<NotArmed> {
        let created = Created {
            arming,
            state: State::Pending,
            older_run: false,
            since: arming.due,
            stands: Stands::Asked,
        };
        let not_armed = arm(&*self.timer, &*self.ledger, &[(key.clone(), created)]).await;
        not_armed.into_iter().next().flatten()
    }

    /// The ledger's time: what "in 30 minutes" is counted from.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn now(&self) -> Result<UnixMs, ClientError> {
        let any: &dyn Any = &*self.ledger;
        match any.downcast_ref::<MysqlLedger>() {
            Some(mysql) => Ok(mysql.now().await?),
            None => Ok(self.ledger.clock().now()),
        }
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

/// Arms what is pending; tells of each why it is not, in their order.
async fn arm(
    timer: &dyn Timer,
    ledger: &dyn Ledger,
    made: &[(TaskKey, Created)],
) -> Vec<Option<NotArmed>> {
    let now = ledger.clock().now();
    let horizon = timer.horizon().map(|horizon| now.plus(horizon));
    let mut not_armed = Vec::with_capacity(made.len());
    let mut alarms = Vec::with_capacity(made.len());
    for (key, created) in made {
        not_armed.push(match created.stands {
            Stands::Kept | Stands::Refused => Some(NotArmed::LeftAsItIs),
            Stands::Asked => None,
        });
        if created.stands != Stands::Asked || created.state.is_finished() {
            continue;
        }
        let due = created.arming.due;
        if horizon.is_some_and(|horizon| due > horizon) {
            *not_armed.last_mut().expect("just pushed") = Some(NotArmed::BeyondHorizon);
        }
        // Even what is due now: its event is how every daemon hears of it. And what lies beyond the horizon: an older
        // key of it may be armed.
        alarms.push(Alarm {
            key: key.clone(),
            due: due.max(now),
            arming: Some(created.arming),
        });
    }
    for alarms in alarms.chunks(ARM_BATCH) {
        if let Err(error) = timer.arm(alarms, ArmMode::Replace).await {
            tracing::debug!(%error, keys = alarms.len(), "could not arm; the daemon finds the tasks in the ledger");
            for why in &mut not_armed {
                why.get_or_insert(NotArmed::Unreachable);
            }
            break;
        }
    }
    not_armed
}

fn key<A>(class: &str, method: &str, args: A) -> Result<TaskKey, KeyError>
where
    A: IntoIterator,
    A::Item: ToString,
{
    TaskKey::build(class, method, args.into_iter().map(|arg| arg.to_string()))
}

/// Why a producer's call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The key does not fit the grammar.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The time is refused.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// What is to be paused is.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The trace is.
    #[error(transparent)]
    Trace(#[from] TraceparentError),
    /// How it is to come again is.
    #[error(transparent)]
    Recurrence(#[from] RecurrenceError),
    /// Something else about the task is.
    #[error("{0}")]
    Invalid(String),
    /// There is such a task, which has not finished, and the new one was not to take its place.
    #[error("`{key}` is {state} since {since}, due {due}: not created again")]
    Exists {
        /// Its key.
        key: TaskKey,
        /// Its state: `Pending`, `Waiting` or `Running`.
        state: State,
        /// When it was created.
        since: UnixMs,
        /// When it falls due.
        due: UnixMs,
    },
    /// The ledger could not do it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ClientError {
    fn if_refused(key: &TaskKey, created: &Created) -> Option<Self> {
        (created.stands == Stands::Refused).then(|| Self::exists(key.clone(), created))
    }

    fn exists(key: TaskKey, created: &Created) -> Self {
        Self::Exists {
            key,
            state: created.state,
            since: created.since,
            due: created.arming.due,
        }
    }
}
