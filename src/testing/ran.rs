//! What ran in a test.

use std::fmt;

use crate::ledger::TaskRecord;
use crate::task::{Outcome, TaskKey, UnixMs};

/// One run of one task, or what became of it instead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran {
    /// What ran.
    pub key: TaskKey,
    /// `<row id>-<due ms>`, the same over attempts.
    pub id: String,
    /// When.
    pub at: UnixMs,
    /// Which run it was: 1 for the first.
    pub attempt: u16,
    /// `Class@method` of the handler, or the expression of the route.
    pub route: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The task after that was settled; of an older arming if the key was created anew meanwhile.
    pub task: TaskRecord,
}

impl Ran {
    /// Whether its handler was called. It was not if the task came too late ([`Outcome::Expired`], [`Outcome::Missed`]), was taken
    /// to kill its daemon, or became a task of its own.
    pub fn reached_handler(&self) -> bool {
        !matches!(
            self.outcome,
            Outcome::Expired { .. } | Outcome::Missed | Outcome::Poisoned | Outcome::HandedOn
        )
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            id: _,
            at,
            attempt,
            route: _,
            outcome,
            task,
        } = self;
        write!(f, "{at}  {key}  run {attempt} {}, ", outcome.as_str())?;
        match &task.last_error {
            Some(error) if !task.state.is_finished() => {
                write!(f, "{} until {}: {error}", task.state, task.due_at)
            }
            Some(error) => write!(f, "{}: {error}", task.state),
            None => write!(f, "{}", task.state),
        }
    }
}
