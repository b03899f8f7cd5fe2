//! A task as JSON.

use serde::Serialize;

use crate::ledger::TaskRecord;
use crate::task::{BlockedBy, Paused, State};

/// Number of occurrences of a recurring task that are shown.
const OCCURRENCES: usize = 3;

/// A task with all its data.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskView<'a> {
    /// The task.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(value_type = TaskRecord))]
    pub task: &'a TaskRecord,
    /// Why it does not start though it may be due: `paused` or `held`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub kept_back: Option<BlockedBy>,
    /// The next occurrences of an unfinished recurring task, RFC 3339; at most three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrences: Option<Vec<String>>,
    /// True if payload, result and errors are masked, by `http.mask_payloads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool))]
    pub masked: Option<bool>,
}

impl<'a> TaskView<'a> {
    /// A task of a list. `paused` are the pauses and holds in effect.
    pub fn listed(task: &'a TaskRecord, paused: &Paused) -> Self {
        Self {
            task,
            kept_back: kept_back(task, paused),
            occurrences: None,
            masked: None,
        }
    }

    /// A single task, with its next occurrences if it recurs.
    pub fn single(task: &'a TaskRecord, paused: &Paused) -> Self {
        let occurrences = task.recurrence.is_some().then(|| {
            let occurrences = task.occurrences(OCCURRENCES).into_iter();
            occurrences.map(|due| due.to_string()).collect()
        });
        Self {
            occurrences,
            ..Self::listed(task, paused)
        }
    }
}

/// Returns why a task does not start though it may be due. Running and finished tasks are never kept back.
pub fn kept_back(task: &TaskRecord, paused: &Paused) -> Option<BlockedBy> {
    match task.state {
        State::Pending | State::Waiting => paused.blocks(&task.key, task.due),
        _ => None,
    }
}
