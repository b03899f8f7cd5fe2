//! Whole rows, for people.

use std::fmt;

use crate::task::{JsonText, Mishap, Reason, State, TaskKey, Traceparent, UnixMs};

/// A whole row, for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TaskRecord {
    /// `<row id>-<end_time ms>`.
    pub id: String,
    /// The task.
    #[serde(serialize_with = "display")]
    pub key: TaskKey,
    /// Its state.
    pub state: State,
    /// `end_time`.
    #[serde(serialize_with = "display")]
    pub due: UnixMs,
    /// When it may start, if a retry lies ahead.
    #[serde(serialize_with = "display")]
    pub due_at: UnixMs,
    /// `start_time`.
    #[serde(serialize_with = "display")]
    pub created: UnixMs,
    /// Runs started, of this arming.
    pub attempt: u16,
    /// Leases that ran out, of this arming.
    pub crashes: u8,
    /// The task's own limit of runs.
    pub max_attempts: Option<u16>,
    /// Who holds or last held it.
    pub daemon: String,
    /// A cancellation waits for its run to end.
    pub cancel_requested: bool,
    /// For looking up many.
    pub tag: Option<String>,
    /// JSON.
    #[serde(serialize_with = "json_option")]
    pub payload: Option<String>,
    /// The trace that it was created in.
    #[serde(
        serialize_with = "display_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub traceparent: Option<Traceparent>,
    /// Its recurrence, JSON as stored.
    #[serde(serialize_with = "json_option")]
    pub recurrence: Option<String>,
    /// Of the latest run that failed.
    pub last_error: Option<String>,
    /// Why it is dead.
    pub reason: Option<Reason>,
    /// What went wrong before, the newest first; at most [`HISTORY_MAX`](crate::task::HISTORY_MAX) entries.
    pub history: Vec<Mishap>,
    /// JSON, of the run that succeeded, if it was kept.
    #[serde(serialize_with = "json_option")]
    pub result: Option<String>,
    /// When it finished.
    #[serde(serialize_with = "display_option")]
    pub finished: Option<UnixMs>,
    /// Its due time came from a key that some program armed.
    pub adopted: bool,
}

/// A row whose key is no task key. Only programs that write rows themselves can make one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MalformedRow {
    /// `<row id>-<end_time ms>`.
    pub id: String,
    /// The key as it is.
    pub key: String,
    /// Its state.
    pub state: State,
    /// When it would be due.
    #[serde(serialize_with = "display")]
    pub due_at: UnixMs,
}

fn display<T: fmt::Display, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn display_option<T: fmt::Display, S: serde::Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

fn json_option<S: serde::Serializer>(
    value: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(text) => serializer.serialize_some(&JsonText(text)),
        None => serializer.serialize_none(),
    }
}
