//! Why a producer's call failed.

use crate::config::ConfigError;
use crate::ledger::{CreateResult, Created, LedgerError};
use crate::task::{
    KeyError, RecurrenceError, ScheduleError, ScopeError, State, TaskKey, TraceparentError, UnixMs,
};
use crate::timer::TimerError;

/// Why a producer's call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The key does not fit the grammar of keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The due time is invalid.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The scope of a pause is invalid.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The trace context is invalid.
    #[error(transparent)]
    Trace(#[from] TraceparentError),
    /// The recurrence is invalid.
    #[error(transparent)]
    Recurrence(#[from] RecurrenceError),
    /// Another property of the task is invalid.
    #[error("{0}")]
    Invalid(String),
    /// An unfinished task of this key exists, and [`IfPending::Refuse`](crate::ledger::IfPending::Refuse) was set.
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
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The timer cannot answer whether keys are gone.
    #[error("finished tasks are kept while their keys cannot be asked for: {0}")]
    Timer(#[from] TimerError),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ClientError {
    pub(super) fn if_refused(key: &TaskKey, created: &Created) -> Option<Self> {
        (created.result == CreateResult::Refused).then(|| Self::exists(key.clone(), created))
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
