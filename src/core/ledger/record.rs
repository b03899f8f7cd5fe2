//! Whole rows, for display.

use std::fmt;

use super::Progress;
use super::hold::MOVER;
use crate::access::Masks;
use crate::task::{
    After, Arming, AttemptError, Contents, EndedOccurrence, Envelope, HIDDEN, JsonText,
    OccurrenceOutcome, Reason, Recurrence, State, TaskKey, Traceparent, UnixMs,
};

/// All data of a task, for display.
// The comments of the members are their descriptions in `openapi.json`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskRecord {
    /// `<row id>-<due ms>`: names this arming. It is the value of the header `ETag`.
    #[cfg_attr(feature = "openapi", schema(example = "42-1795291200250"))]
    pub id: String,
    /// The key.
    #[serde(serialize_with = "display")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "Order@close@42"))]
    pub key: TaskKey,
    /// `pending`, `waiting` (for a retry), `running`, `done`, `dead` or `cancelled`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "pending"))]
    pub state: State,
    /// The due time, RFC 3339.
    #[serde(serialize_with = "display")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub due: UnixMs,
    /// When it may start: `due`, or the time of the retry.
    #[serde(serialize_with = "display")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub due_at: UnixMs,
    /// When it was created.
    #[serde(serialize_with = "display")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created: UnixMs,
    /// Runs started for this arming.
    pub attempt: u16,
    /// Leases of this arming that expired.
    pub crashes: u8,
    /// Its own limit of runs.
    pub max_attempts: Option<u16>,
    /// Name of the daemon that runs it or ran it last.
    pub daemon: String,
    /// If it runs: when another daemon may take it over, unless the lease is renewed.
    #[serde(skip)]
    pub lease_until: Option<UnixMs>,
    /// When its latest run started: since then it runs, or from then on it ran. `null` if it has not run, or waits to run again.
    #[serde(serialize_with = "display_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub started: Option<UnixMs>,
    /// If it runs: how far it is, as its handler or its worker has reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// True if it is cancelled as soon as its run ends.
    pub cancel_requested: bool,
    /// Its tag.
    pub tag: Option<String>,
    /// What has to end before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
    /// The payload, as it was given; `null` if there is none. Masked payloads are `null`, too.
    #[serde(serialize_with = "json_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<String>,
    /// The trace in which it was created.
    #[serde(
        serialize_with = "display_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub traceparent: Option<Traceparent>,
    /// Its recurrence.
    #[serde(serialize_with = "json_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub recurrence: Option<String>,
    /// The latest occurrence of a recurring task that has ended; missing if it is not known, and of a series that is done or
    /// dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_occurrence: Option<LatestOccurrence>,
    /// Error of the latest run that failed.
    pub last_error: Option<String>,
    /// Why it is dead: `permanent`, `exhausted`, `deadline`, `poison` or `expired`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Option<Reason>,
    /// Earlier failures, newest first; at most ten.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub history: Vec<AttemptError>,
    /// The result of the run that succeeded, if its route keeps results.
    #[serde(serialize_with = "json_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<String>,
    /// When it finished.
    #[serde(serialize_with = "display_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub finished: Option<UnixMs>,
    /// True if its due time comes from a key that another program armed.
    pub adopted: bool,
    /// True if retention has moved it to the archive; missing otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    pub archived: bool,
}

impl TaskRecord {
    /// When the latest run started, if the row says it: `claimed` is its latest claim, and 0 if that is not known.
    ///
    /// A task that waits has no run now. One that was cancelled may have been claimed before, for a run that failed.
    pub fn started(&self, claimed: UnixMs) -> Option<UnixMs> {
        let is_of_run = match self.state {
            State::Running | State::Done => true,
            State::Dead => !self.reason.is_some_and(Reason::is_without_run),
            State::Pending | State::Waiting | State::Cancelled => false,
        };
        let is_run = is_of_run && self.attempt > 0 && self.daemon != MOVER;
        (is_run && claimed.0 > 0).then_some(claimed)
    }

    /// The latest occurrence that has ended, if the row states one. A series that is done or dead states its own end.
    pub fn latest_occurrence(&self, ended: EndedOccurrence) -> Option<LatestOccurrence> {
        let is_over = matches!(self.state, State::Done | State::Dead);
        if self.recurrence.is_none() || is_over {
            return None;
        }
        let runs_first = self.state == State::Running && self.attempt == 1;
        let is_its_error = self.attempt == 0 || runs_first || ended.due == self.due;
        let reason = match ended.outcome {
            OccurrenceOutcome::Failed(reason) => Some(reason),
            _ => None,
        };
        Some(LatestOccurrence {
            due: ended.due,
            outcome: ended.outcome,
            reason,
            error: reason
                .filter(|_| is_its_error)
                .and_then(|_| self.last_error.clone()),
        })
    }

    /// True if the task will start: it is pending, waits for a retry, or was armed anew while an older arming runs.
    pub fn has_not_started(&self) -> bool {
        match self.state {
            State::Pending | State::Waiting => true,
            // A claim counts its attempt, so this arming has not been claimed.
            State::Running => self.attempt == 0 && !self.cancel_requested && self.daemon != MOVER,
            State::Done | State::Dead | State::Cancelled => false,
        }
    }

    /// The row of the task, as its id says it.
    pub fn row(&self) -> Option<u64> {
        let arming = self.id.parse::<Arming>();
        arming.ok().map(|arming| arming.row)
    }

    /// The record of a task that carries this, with its payload as it was given. What its row says is still to be set.
    pub fn of(key: TaskKey, contents: Contents) -> Self {
        let Contents {
            payload,
            tag,
            max_attempts,
        } = contents;
        let Envelope {
            payload,
            after,
            traceparent,
            signature: _,
        } = Envelope::open(payload);
        Self {
            id: String::new(),
            key,
            state: State::Pending,
            due: UnixMs(0),
            due_at: UnixMs(0),
            created: UnixMs(0),
            attempt: 0,
            crashes: 0,
            max_attempts,
            daemon: String::new(),
            lease_until: None,
            started: None,
            progress: None,
            cancel_requested: false,
            tag,
            after,
            payload,
            traceparent,
            recurrence: None,
            latest_occurrence: None,
            last_error: None,
            reason: None,
            history: Vec::new(),
            result: None,
            finished: None,
            adopted: false,
            archived: false,
        }
    }

    /// The next occurrences of an unfinished recurring task, at most this many; none of another task.
    pub fn occurrences(&self, most: usize) -> Vec<UnixMs> {
        let recurrence = self.recurrence.as_deref().map(str::parse::<Recurrence>);
        let Some(Ok(recurrence)) = recurrence else {
            return Vec::new();
        };
        if self.state.is_finished() {
            return Vec::new();
        }
        let mut occurrences = vec![self.due];
        let mut last = recurrence.continues_after(self.due);
        while occurrences.len() < most
            && let Some(next) = recurrence.next(last)
        {
            occurrences.push(next);
            last = next;
        }
        occurrences
    }

    /// Takes out what these masks hide from a reader who knows the key.
    pub fn mask(&mut self, masks: &Masks) {
        if masks.hides_payload(&self.key) {
            self.hide_payload();
        }
    }

    /// Takes out payload and result, and the texts of errors.
    fn hide_payload(&mut self) {
        self.payload = None;
        self.result = None;
        if let Some(progress) = &mut self.progress {
            progress.hide_text();
        }
        self.last_error = self.last_error.take().map(|_| HIDDEN.to_owned());
        if let Some(latest) = &mut self.latest_occurrence {
            latest.error = latest.error.take().map(|_| HIDDEN.to_owned());
        }
        for attempt_error in &mut self.history {
            HIDDEN.clone_into(&mut attempt_error.error);
        }
    }
}

/// What became of the latest occurrence of a recurring task.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatestOccurrence {
    /// When it was due, RFC 3339.
    #[serde(serialize_with = "display")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub due: UnixMs,
    /// `succeeded`, `failed` for good, `skipped` (not run) or `handed_on` to a separate task, where occurrences may overlap.
    #[serde(serialize_with = "display")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "succeeded"))]
    pub outcome: OccurrenceOutcome,
    /// Why it failed: `permanent`, `exhausted`, `deadline` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Option<Reason>,
    /// The error of a failed one; missing if an attempt of the next occurrence has failed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl fmt::Display for LatestOccurrence {
    /// What became of it, without its due time and its error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.outcome {
            OccurrenceOutcome::Skipped => "skipped: not run",
            OccurrenceOutcome::HandedOn => "handed on to a separate task",
            outcome => outcome.as_str(),
        })?;
        match self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
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
