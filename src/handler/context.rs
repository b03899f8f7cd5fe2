//! What a handler knows of the task it runs.

use std::sync::{Arc, Mutex, OnceLock};

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Extensions, HandlerError};
use crate::ledger::{Claim, Lease, Ledger};
use crate::task::{
    Envelope, JsonText, Outcome, RESULT_BYTES_MAX, Recurrence, TaskKey, Traceparent, UnixMs,
};

/// The members of a task's JSON, in their order.
#[derive(Serialize)]
struct Described<'a, P> {
    id: String,
    key: &'a str,
    class: &'a str,
    method: &'a str,
    args: Vec<&'a str>,
    due: String,
    attempt: u16,
    lateness_ms: u64,
    payload: Option<P>,
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// One run of one task. Cloning is cheap.
#[derive(Clone)]
pub struct TaskContext(Arc<Run>);

struct Run {
    claim: Claim,
    /// Taken out of the claim.
    envelope: Envelope,
    /// The span of this run, if its task has a trace.
    trace: Option<Traceparent>,
    extensions: Extensions,
    lateness_ms: u64,
    ledger: Arc<dyn Ledger>,
    stopping: CancellationToken,
    concluded: OnceLock<Outcome>,
    /// JSON that is kept if the run succeeds.
    result: Mutex<Option<String>>,
}

impl TaskContext {
    pub(crate) fn new(
        mut claim: Claim,
        lateness_ms: u64,
        ledger: Arc<dyn Ledger>,
        stopping: CancellationToken,
    ) -> Self {
        let envelope = Envelope::open(claim.payload.take());
        let trace = envelope
            .traceparent
            .map(|trace| trace.child(rand::random()));
        Self(Arc::new(Run {
            claim,
            envelope,
            trace,
            extensions: Extensions::default(),
            lateness_ms,
            ledger,
            stopping,
            concluded: OnceLock::new(),
            result: Mutex::default(),
        }))
    }

    /// `<row id>-<due ms>`: the same over all attempts of this arming. Deduplicate by it.
    pub fn id(&self) -> String {
        self.0.claim.lease.arming.to_string()
    }

    /// `Class@method@args`.
    pub fn key(&self) -> &TaskKey {
        &self.0.claim.key
    }

    /// When the task fell due, on the ledger's clock.
    pub fn due(&self) -> UnixMs {
        self.0.claim.lease.arming.due
    }

    /// Which run this is: 1 for the first.
    pub fn attempt(&self) -> u16 {
        self.0.claim.attempt.number
    }

    /// How long after its due time (or its creation or retry time, if later) this run began, in milliseconds.
    pub fn lateness_ms(&self) -> u64 {
        self.0.lateness_ms
    }

    /// How the task comes again; `None` if it runs once. [`due`](Self::due) says which occurrence this is. One that is
    /// a task of its own, because they may overlap, does not come again itself: it is its series that does.
    pub fn recurrence(&self) -> Option<&Recurrence> {
        self.0.claim.recurrence.as_deref()?.as_ref().ok()
    }

    /// The next occurrence of its series, seen from `now`.
    pub(crate) fn following(&self, now: UnixMs) -> Option<UnixMs> {
        self.0.claim.occurrence(now)?.following(now)
    }

    /// The task's tag.
    pub fn tag(&self) -> Option<&str> {
        self.0.claim.tag.as_deref()
    }

    /// The payload as it was given, JSON.
    pub fn payload_json(&self) -> Option<&str> {
        self.0.envelope.payload.as_deref()
    }

    /// The payload, read as `T`.
    ///
    /// # Errors
    /// Permanent: there is none, or it is something else.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        let text = self
            .payload_json()
            .ok_or_else(|| HandlerError::permanent("task has no payload"))?;
        serde_json::from_str(text)
            .map_err(|error| HandlerError::permanent(format!("payload does not fit: {error}")))
    }

    /// The trace of this run: that of the creator, with a span of its own. Hand it on to whatever is called, as the
    /// header `traceparent`; tasks that are created while the handler runs belong to it by themselves.
    pub fn traceparent(&self) -> Option<Traceparent> {
        self.0.trace
    }

    /// Where the task was created, as its creator said: the parent of a span that is recorded for this run.
    pub fn creator_traceparent(&self) -> Option<Traceparent> {
        self.0.envelope.traceparent
    }

    /// Values that middleware has for the handler.
    pub fn extensions(&self) -> &Extensions {
        &self.0.extensions
    }

    /// Keeps `value`, as JSON, with the task if this run succeeds: `lapsed show` prints it,
    /// [`TaskRecord`](crate::ledger::TaskRecord) has it. The last one given counts. Written together with the
    /// completion, also by [`complete_in`](super::MysqlTask::complete_in).
    ///
    /// # Errors
    /// Permanent: it cannot be written as JSON, or as no more than [`RESULT_BYTES_MAX`] bytes. Nothing is kept then, and
    /// a handler that can do without it need not fail.
    pub fn keep_result(&self, value: impl Serialize) -> Result<(), HandlerError> {
        let json = serde_json::to_string(&value)
            .map_err(|error| HandlerError::permanent(format!("result is not JSON: {error}")))?;
        self.keep_json(json)
    }

    fn keep_json(&self, json: String) -> Result<(), HandlerError> {
        if json.len() > RESULT_BYTES_MAX {
            return Err(HandlerError::permanent(format!(
                "result has {} bytes of JSON, expected at most {RESULT_BYTES_MAX}",
                json.len()
            )));
        }
        let mut result = self
            .0
            .result
            .lock()
            .expect("nothing panics while holding it");
        *result = Some(json);
        Ok(())
    }

    /// As [`keep_result`](Self::keep_result), for what a target answered: JSON if it is some, else a JSON string, cut
    /// to what fits.
    pub fn keep_output(&self, output: &[u8]) {
        let text = String::from_utf8_lossy(output);
        let text = text.trim();
        if serde_json::from_str::<IgnoredAny>(text).is_ok()
            && self.keep_json(text.to_owned()).is_ok()
        {
            return;
        }
        // Quotes and escapes take room as well: two, six or more bytes for one at worst.
        let mut end = text.floor_char_boundary(RESULT_BYTES_MAX - 2);
        while self.keep_result(&text[..end]).is_err() {
            end = text.floor_char_boundary(end * 3 / 4);
        }
    }

    pub(crate) fn result(&self) -> Option<String> {
        let result = self.0.result.lock();
        result.expect("nothing panics while holding it").clone()
    }

    /// Resolves when the run is about to be ended from outside: its lease is lost, or the daemon's
    /// patience at shutdown is over. The future of the handler is dropped right after.
    pub async fn stopping(&self) {
        self.0.stopping.cancelled().await;
    }

    /// The task as a value: `id`, `key`, `class`, `method`, `args`, `due` (RFC 3339), `attempt`,
    /// `lateness_ms`, `payload`, `tag`; and `traceparent`, if there is one.
    ///
    /// Numbers of the payload are what a [`Value`] can hold: an integer of 64 bits, or an `f64`.
    pub fn to_json(&self) -> Value {
        let read = |text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let task = self.described(self.payload_json().map(read));
        serde_json::to_value(task).expect("texts and numbers are JSON")
    }

    /// The same members in that order on one line, as targets get them. The payload is in it as it was given, digit for
    /// digit.
    pub fn to_json_line(&self) -> String {
        let task = self.described(self.payload_json().map(JsonText));
        serde_json::to_string(&task).expect("texts and numbers are JSON")
    }

    fn described<P>(&self, payload: Option<P>) -> Described<'_, P> {
        let key = self.key();
        Described {
            id: self.id(),
            key: key.as_str(),
            class: key.class(),
            method: key.method(),
            args: key.args().collect(),
            due: self.due().to_string(),
            attempt: self.attempt(),
            lateness_ms: self.lateness_ms(),
            payload,
            tag: self.tag(),
            traceparent: self.traceparent().map(|trace| trace.to_string()),
        }
    }

    /// What the task's producer signed it with.
    pub(super) fn signature(&self) -> Option<&str> {
        self.0.envelope.signature.as_deref()
    }

    pub(crate) fn lease(&self) -> Lease {
        self.0.claim.lease
    }

    pub(crate) fn ledger(&self) -> &dyn Ledger {
        &*self.0.ledger
    }

    /// The handler's own transaction has settled the task; whatever it returns now changes nothing.
    pub(crate) fn conclude(&self, outcome: Outcome) {
        // Only the first of two transactions can have matched the claim.
        let _ = self.0.concluded.set(outcome);
    }

    pub(crate) fn concluded(&self) -> Option<Outcome> {
        self.0.concluded.get().cloned()
    }
}

impl std::fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskContext")
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
