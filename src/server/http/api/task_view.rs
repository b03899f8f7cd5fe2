//! Tasks as JSON.

use axum::http::HeaderValue;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use lapsed::client::{CreateResult, NotArmed, Receipt};
use lapsed::contract::kept_back;
use lapsed::ledger::{LatestOccurrence, MalformedRow, Progress, TaskRecord};
use lapsed::task::{BlockedBy, JsonText, Paused, State, TaskKey};

/// A task in a list: without payload, history and result.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskSummary {
    /// `<row id>-<due ms>`: names this arming. It is the value of the header `ETag`.
    #[schema(example = "42-1795291200250")]
    pub id: String,
    /// The key.
    #[schema(example = "Order@close@42")]
    pub key: String,
    /// `pending`, `waiting` (for a retry), `running`, `done`, `dead` or `cancelled`.
    #[schema(value_type = String, example = "pending")]
    pub state: State,
    /// The due time, RFC 3339.
    pub due: String,
    /// When it may start: `due`, or the time of the retry.
    pub due_at: String,
    /// When it was created.
    pub created: String,
    /// Runs started for this arming.
    pub attempt: u16,
    /// Leases of this arming that expired.
    pub crashes: u8,
    /// Its own limit of runs.
    pub max_attempts: Option<u16>,
    /// Name of the daemon that runs it or ran it last.
    pub daemon: String,
    /// When its latest run started. `null` if it has not run, or waits to run again.
    pub started: Option<String>,
    /// If it runs: how far it is, as its handler or its worker has reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// True if it is cancelled as soon as its run ends.
    pub cancel_requested: bool,
    /// Its tag.
    pub tag: Option<String>,
    /// Its recurrence.
    #[schema(value_type = Option<Object>)]
    pub recurrence: Option<Box<RawValue>>,
    /// The latest occurrence of a recurring task that has ended, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_occurrence: Option<LatestOccurrence>,
    /// Error of the latest run that failed.
    pub last_error: Option<String>,
    /// Why it is dead: `permanent`, `exhausted`, `deadline`, `poison` or `expired`.
    pub reason: Option<&'static str>,
    /// When it finished.
    pub finished: Option<String>,
    /// True if its due time comes from a key that another program armed.
    pub adopted: bool,
    /// True if retention has moved it to the archive; missing otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    pub archived: bool,
    /// Why it does not start though it may be due: `paused` or `held`.
    pub kept_back: Option<&'static str>,
}

/// A row whose key is not a task key: nothing can run it.
#[derive(Debug, Serialize, ToSchema)]
pub struct MalformedView {
    /// `<row id>-<due ms>`
    pub id: String,
    /// The key as it is.
    pub key: String,
    #[schema(value_type = String)]
    pub state: State,
    /// When it would be due.
    pub due_at: String,
}

/// The answer to the creation or the move of a task.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReceiptView {
    #[schema(example = "Order@close@42")]
    pub key: String,
    /// `<row id>-<due ms>`: names this arming. It is the value of the header `ETag`.
    #[schema(example = "42-1795291200250")]
    pub id: String,
    /// The due time, RFC 3339.
    pub due: String,
    /// `done` and `dead`: this same arming has run before, and does not run again.
    #[schema(value_type = String, example = "pending")]
    pub state: State,
    /// True if a task that existed was kept, as the request asks.
    pub kept: bool,
    /// True if its key is armed in Redis. If not, the daemon starts it from the ledger.
    pub armed: bool,
    /// Why it is not armed: `unreachable`, `beyond_horizon` or `left_as_it_is`.
    #[schema(value_type = Option<String>)]
    pub not_armed: Option<NotArmed>,
    /// True if an older arming of this key is running. Its result is discarded.
    pub older_run: bool,
}

impl ReceiptView {
    /// The receipt for a task that was created.
    pub fn new(key: &TaskKey, receipt: &Receipt) -> Self {
        Self {
            key: key.to_string(),
            id: receipt.id(),
            due: receipt.due().to_string(),
            state: receipt.state(),
            kept: receipt.result() == CreateResult::Kept,
            armed: receipt.armed,
            not_armed: receipt.not_armed(),
            older_run: receipt.older_run(),
        }
    }
}

impl TaskSummary {
    /// Without what is large. `paused` are the pauses in effect.
    pub fn new(task: &TaskRecord, paused: &Paused) -> Self {
        Self {
            id: task.id.clone(),
            key: task.key.to_string(),
            state: task.state,
            due: task.due.to_string(),
            due_at: task.due_at.to_string(),
            created: task.created.to_string(),
            attempt: task.attempt,
            crashes: task.crashes,
            max_attempts: task.max_attempts,
            daemon: task.daemon.clone(),
            started: task.started.map(|started| started.to_string()),
            progress: task.progress.clone(),
            cancel_requested: task.cancel_requested,
            tag: task.tag.clone(),
            recurrence: task.recurrence.as_deref().map(json),
            latest_occurrence: task.latest_occurrence.clone(),
            last_error: task.last_error.clone(),
            reason: task.reason.map(|reason| reason.as_str()),
            finished: task.finished.map(|finished| finished.to_string()),
            adopted: task.adopted,
            archived: task.archived,
            kept_back: kept_back(task, paused).map(BlockedBy::as_str),
        }
    }
}

impl MalformedView {
    /// As it is.
    pub fn new(row: &MalformedRow) -> Self {
        let MalformedRow {
            id,
            key,
            state,
            due_at,
        } = row;
        Self {
            id: id.clone(),
            key: key.clone(),
            state: *state,
            due_at: due_at.to_string(),
        }
    }
}

/// Stored JSON as it is; other text as a JSON string.
fn json(stored: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(&JsonText(stored)).expect("a text can be written as JSON")
}

/// The header `ETag` of an id.
pub fn etag(id: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{id}\"")).expect("an id has digits and a minus only")
}
