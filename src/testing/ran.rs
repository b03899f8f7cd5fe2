//! The runs of a test.

use std::fmt;

use crate::ledger::TaskRecord;
use crate::task::{Outcome, TaskKey, UnixMs};

/// One run of a task, or the reason why it was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran {
    /// The key of the task.
    pub key: TaskKey,
    /// `<row id>-<due ms>`, the same over attempts.
    pub id: String,
    /// The time of the run.
    pub at: UnixMs,
    /// The number of the attempt; 1 is the first.
    pub attempt: u16,
    /// `Class@method` of the handler, or the expression of the route.
    pub route: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The task after the outcome was settled. It has another arming if it was created again meanwhile.
    pub task: TaskRecord,
}

impl Ran {
    /// True if its handler was called. It was not if the task started too late ([`Outcome::Expired`],
    /// [`Outcome::Missed`]), repeatedly killed its daemon ([`Outcome::Poisoned`]), became a task of its own
    /// ([`Outcome::HandedOn`]), or waits for others ([`Outcome::Postponed`]).
    pub fn reached_handler(&self) -> bool {
        !matches!(
            self.outcome,
            Outcome::Expired { .. }
                | Outcome::Missed
                | Outcome::Poisoned
                | Outcome::HandedOn
                | Outcome::Postponed { .. }
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
