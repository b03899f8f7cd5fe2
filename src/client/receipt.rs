//! The receipt for a created task.

use super::ClientError;
use crate::ledger::{CreateResult, Created};
use crate::task::{Arming, State, TaskKey, UnixMs};

/// The receipt for a created task: its id, its due time, and whether its key is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub(super) created: Created,
    /// True if its key is armed in Redis. If not, the task runs all the same: a daemon finds its row. See
    /// [`not_armed`](Self::not_armed) for the reason.
    pub armed: bool,
    not_armed: Option<NotArmed>,
}

impl Receipt {
    /// `<row id>-<due ms>`, the id that handlers and targets receive.
    pub fn id(&self) -> String {
        self.created.arming.to_string()
    }

    /// The current arming of the task.
    pub fn arming(&self) -> Arming {
        self.created.arming
    }

    /// The due time, on the ledger's clock.
    pub fn due(&self) -> UnixMs {
        self.created.arming.due
    }

    /// The current state. A state other than `Pending` and `Waiting` means that this arming existed before: a repeated
    /// call does not run a task twice.
    pub fn state(&self) -> State {
        self.created.state
    }

    /// True if an older arming of the same key is running.
    pub fn older_run(&self) -> bool {
        self.created.older_run
    }

    /// Whether the task is the one of this call, or one that existed before and was kept: see [`CreateResult`].
    pub fn result(&self) -> CreateResult {
        self.created.result
    }

    /// The reason why the key is not armed; `None` if it is armed, or the task has finished.
    pub fn not_armed(&self) -> Option<NotArmed> {
        self.not_armed
    }

    /// The error of a call that was refused because this task exists.
    pub fn exists(&self, key: TaskKey) -> ClientError {
        ClientError::exists(key, &self.created)
    }

    pub(super) fn new(created: Created, not_armed: Option<NotArmed>) -> Self {
        Self {
            created,
            armed: not_armed.is_none(),
            not_armed,
        }
    }

    /// When the task was created.
    pub fn since(&self) -> UnixMs {
        self.created.since
    }
}

/// Why the key of a task is not armed in Redis. The task runs at its due time all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotArmed {
    /// Redis did not answer, or refused.
    Unreachable,
    /// The task falls due beyond `redis.arm_horizon`. A daemon arms the key later.
    BeyondHorizon,
    /// The task existed before, and is unchanged.
    LeftAsItIs,
    /// There is no such row: the transaction was rolled back, or is not committed.
    NotCommitted,
}
