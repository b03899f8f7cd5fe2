//! Why a producer's call failed.

use crate::config::ConfigError;
use crate::ledger::{Created, LedgerError, Stands};
use crate::task::{
    KeyError, RecurrenceError, ScheduleError, ScopeError, State, TaskKey, TraceparentError, UnixMs,
};
use crate::timer::TimerError;

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
    /// The timer could not say whether keys are gone.
    #[error("finished tasks are kept while their keys cannot be asked for: {0}")]
    Timer(#[from] TimerError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ClientError {
    pub(super) fn if_refused(key: &TaskKey, created: &Created) -> Option<Self> {
        (created.stands == Stands::Refused).then(|| Self::exists(key.clone(), created))
    }

    pub(super) fn exists(key: TaskKey, created: &Created) -> Self {
        Self::Exists {
            key,
            state: created.state,
            since: created.since,
            due: created.arming.due,
        }
    }
}
