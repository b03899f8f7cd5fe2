//! The task that a handler runs.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Extensions, HandlerError};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use crate::ledger::Lease;
use crate::ledger::{Claim, Ledger, Progress, ProgressError, Renewal};
use crate::task::{
    Envelope, JsonText, Outcome, RESULT_BYTES_MAX, Recurrence, RetryPolicy, TaskJson, TaskKey,
    Traceparent, UnixMs,
};
use crate::trace;

/// The run of a task. Cloning is cheap.
#[derive(Clone)]
pub struct TaskContext(Arc<Run>);

struct Run {
    claim: Claim,
    /// The payload of the claim.
    envelope: Envelope,
    /// The span of this run; `None` if its task has no trace.
    trace: Option<Traceparent>,
    extensions: Extensions,
    lateness_ms: u64,
    /// `None` if neither the task nor a route says.
    max_attempts: Option<u16>,
    ledger: Arc<dyn Ledger>,
    stopping: CancellationToken,
    concluded: OnceLock<Outcome>,
    /// JSON that is stored if the run succeeds.
    result: Mutex<Option<String>>,
}

impl TaskContext {
    /// `retry` is the policy of the route, for a task without a limit of its own. `span` is the recorded span of the run, if there is
    /// one.
    pub(crate) fn new(
        mut claim: Claim,
        lateness_ms: u64,
        retry: Option<&RetryPolicy>,
        ledger: Arc<dyn Ledger>,
        stopping: CancellationToken,
        span: Option<Traceparent>,
    ) -> Self {
        let envelope = Envelope::open(claim.payload.take());
        let unrecorded = || {
            envelope
                .traceparent
                .map(|trace| trace.child(rand::random()))
        };
        let trace = span.or_else(unrecorded);
        Self(Arc::new(Run {
            max_attempts: (claim.attempt.max_attempts).or(retry.map(|retry| retry.max_attempts)),
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

    /// `<row id>-<due ms>`: the same over all attempts of this arming, for deduplication.
    pub fn id(&self) -> String {
        self.0.claim.lease.arming.to_string()
    }

    /// `Class@method@args`.
    pub fn key(&self) -> &TaskKey {
        &self.0.claim.key
    }

    /// The due time, on the ledger's clock.
    pub fn due(&self) -> UnixMs {
        self.0.claim.lease.arming.due
    }

    /// The number of this attempt; 1 is the first.
    pub fn attempt(&self) -> u16 {
        self.0.claim.attempt.number
    }

    /// Maximum number of attempts: the task's own, else that of its route. `None` for a task that is taken by hand and has
    /// none of its own.
    pub fn max_attempts(&self) -> Option<u16> {
        self.0.max_attempts
    }

    /// True if the task is dead should this attempt fail, because it is the last one. A retry policy with a deadline may end
    /// a task earlier.
    pub fn is_last_attempt(&self) -> bool {
        self.0.max_attempts.is_some_and(|max| self.attempt() >= max)
    }

    /// Milliseconds from the due time (or the creation or the retry time, if later) to the start of this run.
    pub fn lateness_ms(&self) -> u64 {
        self.0.lateness_ms
    }

    /// The recurrence of the task; `None` if it runs once. [`due`](Self::due) is the occurrence. Also `None` if the
    /// occurrence is a task of its own, because occurrences may overlap: then only its series recurs.
    pub fn recurrence(&self) -> Option<&Recurrence> {
        self.0.claim.recurrence.as_deref()?.as_ref().ok()
    }

    /// The task's tag.
    pub fn tag(&self) -> Option<&str> {
        self.0.claim.tag.as_deref()
    }

    /// The payload as it was given: JSON.
    pub fn payload_json(&self) -> Option<&str> {
        self.0.envelope.payload.as_deref()
    }

    /// Deserializes the payload.
    ///
    /// # Errors
    /// Permanent: the task has no payload, or it is not a `T`.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        let text = self
            .payload_json()
            .ok_or_else(|| HandlerError::permanent("task has no payload"))?;
        serde_json::from_str(text)
            .map_err(|error| HandlerError::permanent(format!("payload does not fit: {error}")))
    }

    /// The trace of this run: that of the creator, with a span of its own. Pass it on to services that the handler calls,
    /// as the header `traceparent`. Tasks that the handler creates belong to it automatically.
    pub fn traceparent(&self) -> Option<Traceparent> {
        self.0.trace
    }

    /// The trace of the creator: the parent of a span that is recorded for this run.
    pub fn creator_traceparent(&self) -> Option<Traceparent> {
        self.0.envelope.traceparent
    }

    /// Runs a part of this run in its trace: tasks that it creates belong to it.
    pub(crate) async fn in_trace<F: Future>(&self, part: F) -> F::Output {
        trace::within(self.0.trace, part).await
    }

    /// Values that middleware passes to the handler.
    pub fn extensions(&self) -> &Extensions {
        &self.0.extensions
    }

    /// Stores `value` as JSON with the task if this run succeeds. `lapsed show` prints it, and
    /// [`TaskRecord`](crate::ledger::TaskRecord) contains it. A later call replaces it. It is written together with the
    /// completion, also by [`complete_in`](super::MysqlTask::complete_in).
    ///
    /// # Errors
    /// Permanent: `value` cannot be serialized, or its JSON is longer than [`RESULT_BYTES_MAX`] bytes. A handler may
    /// ignore the error; then the task has no result.
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

    /// As [`keep_result`](Self::keep_result), for the output of a target: the JSON itself, or any other text as a JSON
    /// string, truncated to [`RESULT_BYTES_MAX`] bytes.
    pub fn keep_output(&self, output: &[u8]) {
        let text = String::from_utf8_lossy(output);
        let text = text.trim();
        if serde_json::from_str::<IgnoredAny>(text).is_ok()
            && self.keep_json(text.to_owned()).is_ok()
        {
            return;
        }
        // Quotes and escapes count, too: one byte may become six.
        let mut end = text.floor_char_boundary(RESULT_BYTES_MAX - 2);
        while self.keep_result(&text[..end]).is_err() {
            end = text.floor_char_boundary(end * 3 / 4);
        }
    }

    pub(crate) fn result(&self) -> Option<String> {
        let result = self.0.result.lock();
        result.expect("nothing panics while holding it").clone()
    }

    /// Resolves when the run is about to be interrupted: its lease is lost, or the drain timeout of a graceful stop has
    /// passed. The future of the handler is dropped right after.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stopping(&self) {
        self.0.stopping.cancelled().await;
    }

    /// The task as a JSON value with `id`, `key`, `class`, `method`, `args`, `due` (RFC 3339), `attempt`, `lateness_ms`,
    /// `payload` and `tag`; `max_attempts` and `last` if the number of attempts is known, and `traceparent` if it has one.
    ///
    /// Numbers of the payload are limited to those of a [`Value`]: 64-bit integers and `f64`.
    pub fn to_json(&self) -> Value {
        let task = TaskJson {
            payload: None,
            ..self.json()
        };
        let mut json = serde_json::to_value(task).expect("texts and numbers are JSON");
        let read = |text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        json["payload"] = self.payload_json().map_or(Value::Null, read);
        json
    }

    /// As [`to_json`](Self::to_json), as one line of text with the members in that order, as targets receive it. The
    /// payload is included as it was given, digit for digit.
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(&self.json()).expect("texts and numbers are JSON")
    }

    /// The task as handlers, targets and workers get it.
    pub fn json(&self) -> TaskJson<'_> {
        let key = self.key();
        TaskJson {
            id: self.id(),
            key: key.as_str(),
            class: key.class(),
            method: key.method(),
            args: key.args().collect(),
            due: self.due().to_string(),
            attempt: self.attempt(),
            lateness_ms: self.lateness_ms(),
            payload: self.payload_json().map(JsonText),
            tag: self.tag(),
            max_attempts: self.max_attempts(),
            last: self.max_attempts().map(|_| self.is_last_attempt()),
            traceparent: self.traceparent().map(|trace| trace.to_string()),
        }
    }

    /// The signature of the producer.
    pub(super) fn signature(&self) -> Option<&str> {
        self.0.envelope.signature.as_deref()
    }

    /// Reports how far the run is: a percentage, and a text of up to 200 characters, or an empty one. A longer text is cut.
    ///
    /// It costs no statement: the renewal of the lease writes the latest report, after a third of `engine.lease` each time. So
    /// a run that is shorter shows none. What the handler reports last is not written if the run ends before the next renewal;
    /// nothing shows the progress of a task that does not run. For a task that was taken from a pull queue,
    /// [`PullQueues::report`](crate::engine::PullQueues::report) writes it.
    ///
    /// # Errors
    /// The percentage is more than 100.
    pub fn progress(&self, percent: u8, text: &str) -> Result<(), ProgressError> {
        let progress = Progress::new(percent.into(), text)?;
        self.0.claim.progress.set(progress);
        Ok(())
    }

    /// Asks the ledger whether this run still holds its claim, and extends the lease to this length.
    ///
    /// # Errors
    /// Fenced: the lease is lost. Retryable: the row is locked, or the ledger does not answer.
    pub(super) async fn confirm(&self, length: Duration) -> Result<(), HandlerError> {
        let renewed = self.0.ledger.renew(&[self.0.claim.lease], length).await?;
        match renewed.first() {
            Some(Renewal::Held) => Ok(()),
            Some(Renewal::Locked) => Err(HandlerError::new("another session has locked the row")),
            Some(Renewal::Lost) | None => Err(HandlerError::fenced()),
        }
    }

    pub(crate) fn concluded(&self) -> Option<Outcome> {
        self.0.concluded.get().cloned()
    }
}

/// Access for transactions of the handler.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
impl TaskContext {
    /// Returns the next occurrence of the series after `now`.
    pub(super) fn following(&self, now: UnixMs) -> Option<UnixMs> {
        self.0.claim.occurrence(now)?.following(now)
    }

    pub(super) fn lease(&self) -> Lease {
        self.0.claim.lease
    }

    pub(super) fn ledger(&self) -> &dyn Ledger {
        &*self.0.ledger
    }

    /// Records that the handler's own transaction has settled the task. Its return value is ignored then.
    pub(super) fn conclude(&self, outcome: Outcome) {
        // Only the first of two transactions can have matched the claim.
        let _ = self.0.concluded.set(outcome);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Task;
    use crate::testing::TestRun;

    #[tokio::test]
    async fn a_claim_is_confirmed_until_its_lease_ends() {
        let context = TestRun::of(Task::new("Order", "close", [1]).unwrap())
            .context()
            .await;
        let length = Duration::from_secs(30);
        context.confirm(length).await.unwrap();
        let clock = context.0.ledger.clock();
        clock.set(clock.now().plus(length + Duration::from_secs(1)));
        assert!(context.confirm(length).await.unwrap_err().is_fenced());
    }
}
