//! Whole rows, for display.

use std::fmt;

#[cfg(feature = "resp")]
use super::transfer;
use crate::task::{HIDDEN, JsonText, Mishap, Reason, State, TaskKey, Traceparent, UnixMs};

/// All data of a task, for display.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TaskRecord {
    /// `<row id>-<end_time ms>`.
    pub id: String,
    /// Its key.
    #[serde(serialize_with = "display")]
    pub key: TaskKey,
    /// Its state.
    pub state: State,
    /// `end_time`.
    #[serde(serialize_with = "display")]
    pub due: UnixMs,
    /// When it may start: `due`, or the time of the retry.
    #[serde(serialize_with = "display")]
    pub due_at: UnixMs,
    /// `start_time`.
    #[serde(serialize_with = "display")]
    pub created: UnixMs,
    /// Runs started for this arming.
    pub attempt: u16,
    /// Leases of this arming that expired.
    pub crashes: u8,
    /// Its own limit of runs.
    pub max_attempts: Option<u16>,
    /// Name of the daemon that runs it or ran it last.
    pub daemon: String,
    /// True if it is cancelled as soon as its run ends.
    pub cancel_requested: bool,
    /// Its tag.
    pub tag: Option<String>,
    /// Its payload, JSON.
    #[serde(serialize_with = "json_option")]
    pub payload: Option<String>,
    /// The trace in which it was created.
    #[serde(
        serialize_with = "display_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub traceparent: Option<Traceparent>,
    /// Its recurrence, JSON as stored.
    #[serde(serialize_with = "json_option")]
    pub recurrence: Option<String>,
    /// Error of the latest run that failed.
    pub last_error: Option<String>,
    /// Reason why it is dead.
    pub reason: Option<Reason>,
    /// Earlier failures, newest first; at most [`HISTORY_MAX`](crate::task::HISTORY_MAX) entries.
    pub history: Vec<Mishap>,
    /// Result of the run that succeeded, JSON, if it was kept.
    #[serde(serialize_with = "json_option")]
    pub result: Option<String>,
    /// When it finished.
    #[serde(serialize_with = "display_option")]
    pub finished: Option<UnixMs>,
    /// True if its due time comes from a key that another program armed.
    pub adopted: bool,
}

impl TaskRecord {
    /// True if the task will start: it is pending, waits for a retry, or was armed anew while an older arming runs.
    #[cfg(feature = "resp")]
    pub(crate) fn has_not_started(&self) -> bool {
        match self.state {
            State::Pending | State::Waiting => true,
            // A claim counts its attempt, so this arming has not been claimed.
            State::Running => {
                self.attempt == 0 && !self.cancel_requested && self.daemon != transfer::MOVER
            }
            State::Done | State::Dead | State::Cancelled => false,
        }
    }

    /// Takes out payload and result, and the texts of errors.
    pub fn hide_payload(&mut self) {
        self.payload = None;
        self.result = None;
        self.last_error = self.last_error.take().map(|_| HIDDEN.to_owned());
        for mishap in &mut self.history {
            HIDDEN.clone_into(&mut mishap.error);
        }
    }
}

/// A row whose key is not a task key. Only programs that write rows themselves can create one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MalformedRow {
    /// `<row id>-<end_time ms>`.
    pub id: String,
    /// Its key.
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
