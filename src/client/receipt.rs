//! The answer to creating a task.

use super::ClientError;
use crate::ledger::{Created, Stands};
use crate::task::{Arming, State, TaskKey, UnixMs};

/// The answer to creating a task: its id, its due time, and whether its key is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub(super) created: Created,
    /// Whether its key is armed in Redis too. If not, the task runs all the same: the daemon's look-ahead
    /// and sweep find it in the ledger. See [`not_armed`](Self::not_armed) for why.
    pub armed: bool,
    not_armed: Option<NotArmed>,
}

impl Receipt {
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

    pub(super) fn new(created: Created, not_armed: Option<NotArmed>) -> Self {
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
