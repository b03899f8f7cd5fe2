//! A task to create: its key and options, and its due time.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{ClientError, unique};
use crate::config::Secret;
use crate::ledger::{IfPending, NewTask};
use crate::task::{
    After, Contents, Due, Envelope, KeyError, Recurrence, SECRET_BYTES_MIN, ScheduleError, TaskKey,
    Traceparent, TraceparentError, UnixMs, sign,
};

/// A task to create: its key and its options. Its due time is passed beside it, as a [`Due`].
///
/// ```
/// use lapsed::Task;
///
/// let task = Task::new("Order", "close", [42])?.tag("shop-7").payload(r#"{"reason":"unpaid"}"#);
/// assert_eq!(task.key().as_str(), "Order@close@42");
/// # Ok::<(), lapsed::task::KeyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub(super) key: TaskKey,
    pub(super) contents: Contents,
    pub(super) attempts: u16,
    pub(super) envelope: EnvelopeParts,
    pub(super) if_pending: IfPending,
    /// Replaces a task with the same due time and other contents, too.
    pub(super) replaces: bool,
    /// The payload need not be JSON.
    pub(super) is_text: bool,
}

/// The contents of the payload's envelope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EnvelopeParts {
    pub after: Option<After>,
    pub traceparent: Option<Traceparent>,
    secret: Option<Secret>,
}

impl EnvelopeParts {
    /// Returns the payload for the ledger: as it was given, or in an envelope if anything is put into one.
    pub fn seal(self, key: &TaskKey, payload: Option<String>) -> Option<String> {
        let Self {
            after,
            traceparent,
            secret,
        } = self;
        let signature =
            secret.map(|secret| sign(secret.expose().as_bytes(), key, payload.as_deref()));
        Envelope {
            payload,
            after,
            traceparent,
            signature,
        }
        .seal()
    }
}

impl Task {
    /// A task with the key `Class@method@args`, and default options.
    ///
    /// # Errors
    /// [`KeyError`] names the part that does not fit the grammar.
    pub fn new<A>(class: &str, method: &str, args: A) -> Result<Self, KeyError>
    where
        A: IntoIterator,
        A::Item: ToString,
    {
        let args = args.into_iter().map(|arg| arg.to_string());
        TaskKey::build(class, method, args).map(Self::from)
    }

    /// Sets the payload: JSON of at most [`PAYLOAD_BYTES_MAX`](crate::task::PAYLOAD_BYTES_MAX) bytes. The member `$lapsed` of an object is
    /// [reserved](crate::task::Envelope).
    #[must_use]
    pub fn payload(mut self, json: impl Into<String>) -> Self {
        self.contents.payload = Some(json.into());
        self
    }

    /// Sets the payload to a text that may be JSON. Another text is a JSON string to targets, as one that a program has
    /// written into the column. It cannot be signed, and has no trace.
    #[must_use]
    pub fn payload_or_text(self, text: impl Into<String>) -> Self {
        Self {
            is_text: true,
            ..self.payload(text)
        }
    }

    /// Sets the payload to a value that can be serialized as JSON.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if it cannot, such as a map whose keys are not strings.
    pub fn payload_json(self, value: &impl Serialize) -> Result<Self, ClientError> {
        let json = serde_json::to_string(value);
        let json = json.map_err(|error| {
            ClientError::Invalid(format!("payload cannot be written as JSON: {error}"))
        })?;
        Ok(self.payload(json))
    }

    /// Sets a tag, by which tasks can be listed and cancelled: at most [`TAG_CHARS_MAX`](crate::task::TAG_CHARS_MAX) characters, the last of which is
    /// not a space.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.contents.tag = Some(tag.into());
        self
    }

    /// Lets the task start only when every task with a tag has ended. Create those tasks before: without any, it starts when
    /// it is due.
    ///
    /// Until then, a daemon looks for them again after a tenth of the time that it has waited, after a second at least and a
    /// minute at most. No attempt is counted.
    ///
    /// ```
    /// use lapsed::Task;
    /// use lapsed::task::{After, IfDead};
    ///
    /// let after = After { tag: "import-7".to_owned(), if_dead: IfDead::Wait };
    /// let report = Task::new("Import", "report", [7])?.after(after);
    /// # Ok::<(), lapsed::task::KeyError>(())
    /// ```
    #[must_use]
    pub fn after(self, after: After) -> Self {
        let envelope = EnvelopeParts {
            after: Some(after),
            ..self.envelope
        };
        Self { envelope, ..self }
    }

    /// Sets the maximum number of runs, the first one included, over the retry policy.
    #[must_use]
    pub fn max_attempts(mut self, runs: u16) -> Self {
        self.contents.max_attempts = Some(runs);
        self
    }

    /// Sets payload, tag and maximum number of runs together.
    #[must_use]
    pub fn contents(self, contents: Contents) -> Self {
        Self { contents, ..self }
    }

    /// Sets the number of runs that the task had before, in another system. The next run is the one after these, for the
    /// retry policy and for the maximum number of runs. The default is 0.
    #[must_use]
    pub fn attempts(self, runs: u16) -> Self {
        Self {
            attempts: runs,
            ..self
        }
    }

    /// Sets the trace as a W3C `traceparent`. The run of the task, and tasks that it creates, belong to it as well.
    ///
    /// The default is the trace of [`TaskClient::trace_with`](super::TaskClient::trace_with), else that of the run that
    /// creates the task.
    ///
    /// # Errors
    /// [`TraceparentError`] if it is not a `traceparent`.
    pub fn traceparent(self, traceparent: &str) -> Result<Self, TraceparentError> {
        let traceparent = Some(traceparent.parse()?);
        let envelope = EnvelopeParts {
            traceparent,
            ..self.envelope
        };
        Ok(Self { envelope, ..self })
    }

    pub(super) fn trace(&self) -> Option<Traceparent> {
        self.envelope.traceparent
    }

    pub(super) fn set_trace(&mut self, trace: Option<Traceparent>) {
        self.envelope.traceparent = trace;
    }

    /// Signs key and payload with a secret of at least [`SECRET_BYTES_MIN`] bytes, for daemons that run only signed tasks
    /// ([`VerifyPayload`](crate::handler::VerifyPayload)).
    #[must_use]
    pub fn sign(self, secret: impl Into<Secret>) -> Self {
        let secret = Some(secret.into());
        let envelope = EnvelopeParts {
            secret,
            ..self.envelope
        };
        Self { envelope, ..self }
    }

    /// Sets the policy for the case that an unfinished task of this key exists. By default, that task is moved.
    #[must_use]
    pub fn if_pending(self, policy: IfPending) -> Self {
        Self {
            if_pending: policy,
            ..self
        }
    }

    /// Adds a unique suffix to the key, so that many tasks can have the same class, method and arguments: `~` and 26
    /// characters that sort by time. The suffix is not an argument.
    ///
    /// ```
    /// use lapsed::Task;
    ///
    /// let task = Task::new("Mail", "send", [42])?.unique()?;
    /// assert!(task.key().as_str().starts_with("Mail@send@42@~"));
    /// assert_eq!(task.key().args().collect::<Vec<_>>(), ["42"]);
    /// # Ok::<(), lapsed::task::KeyError>(())
    /// ```
    ///
    /// # Errors
    /// [`KeyError::TooLong`]: the suffix counts towards the length.
    pub fn unique(self) -> Result<Self, KeyError> {
        Ok(Self {
            key: self.key.with_suffix(&unique::ulid())?,
            ..self
        })
    }

    /// The key.
    pub fn key(&self) -> &TaskKey {
        &self.key
    }

    /// The payload as it was given.
    pub fn payload_text(&self) -> Option<&str> {
        self.contents.payload.as_deref()
    }

    /// Leaves a task with the same due time as it is, whatever its payload, tag and limit are, in whatever state. Otherwise
    /// one that is not running and has not ended gets those of this task.
    pub fn keep_same_due(self) -> Self {
        Self {
            replaces: false,
            ..self
        }
    }

    /// Returns the task for the ledger, with its payload in an envelope if it has a trace or is signed.
    pub fn due_at(self, due: UnixMs) -> NewTask {
        let Self {
            key,
            mut contents,
            attempts,
            envelope,
            if_pending,
            replaces,
            is_text: _,
        } = self;
        contents.payload = envelope.seal(&key, contents.payload);
        NewTask {
            key,
            due,
            contents,
            attempts,
            if_pending,
            replaces,
            recurrence: None,
        }
    }

    /// Returns the recurring task for the ledger, which decides when it is due.
    pub(super) fn recurring(self, recurrence: Recurrence, now: UnixMs) -> NewTask {
        NewTask {
            attempts: 0,
            recurrence: Some(recurrence),
            ..self.due_at(now)
        }
    }

    pub(super) fn check_recurring(&self) -> Result<(), ClientError> {
        self.check()?;
        if self.envelope.after.is_some() {
            return Err(ClientError::Invalid(
                "`after` is for a task that runs once, and this one recurs".to_owned(),
            ));
        }
        match self.if_pending {
            IfPending::Move => Ok(()),
            policy => Err(ClientError::Invalid(format!(
                "`if_pending` is `{}`, expected none for a recurring task: an existing one is changed if it differs, and kept if not",
                policy.as_str()
            ))),
        }
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        let refuse = |what: String| Err(ClientError::Invalid(what));
        let problems = self.contents.problems(self.is_text);
        if let Some((_, problem)) = problems.into_iter().next() {
            return refuse(problem);
        }
        if self.is_text && self.envelope != EnvelopeParts::default() {
            return refuse(
                "payload may be no JSON, so it has neither `after` nor trace nor signature"
                    .to_owned(),
            );
        }
        let after = self.envelope.after.as_ref();
        let own_tag = self.contents.tag.as_deref();
        if let Some(problem) = after.and_then(|after| after.problem(own_tag)) {
            return refuse(problem);
        }
        if let Some(secret) = &self.envelope.secret
            && secret.expose().len() < SECRET_BYTES_MIN
        {
            return refuse(format!(
                "the secret to sign with has {} bytes, expected at least {SECRET_BYTES_MIN}",
                secret.expose().len()
            ));
        }
        Ok(())
    }
}

impl From<TaskKey> for Task {
    fn from(key: TaskKey) -> Self {
        Self {
            key,
            contents: Contents::default(),
            attempts: 0,
            envelope: EnvelopeParts::default(),
            if_pending: IfPending::Move,
            replaces: true,
            is_text: false,
        }
    }
}

/// A due time: a [`Due`], a delay as a [`Duration`], or a moment as [`UnixMs`], [`jiff::Timestamp`], [`jiff::Zoned`] or
/// [`SystemTime`].
///
/// A moment is truncated to whole milliseconds.
pub trait IntoDue {
    /// The due time.
    ///
    /// # Errors
    /// [`ScheduleError`] if it is out of range.
    fn into_due(self) -> Result<Due, ScheduleError>;
}

impl IntoDue for Due {
    fn into_due(self) -> Result<Due, ScheduleError> {
        Ok(self)
    }
}

impl IntoDue for Duration {
    fn into_due(self) -> Result<Due, ScheduleError> {
        Due::after(self)
    }
}

impl IntoDue for UnixMs {
    fn into_due(self) -> Result<Due, ScheduleError> {
        Due::at(self)
    }
}

impl IntoDue for Result<Due, ScheduleError> {
    fn into_due(self) -> Result<Due, ScheduleError> {
        self
    }
}

impl IntoDue for jiff::Timestamp {
    fn into_due(self) -> Result<Due, ScheduleError> {
        Due::at(UnixMs(self.as_millisecond()))
    }
}

impl IntoDue for jiff::Zoned {
    fn into_due(self) -> Result<Due, ScheduleError> {
        self.timestamp().into_due()
    }
}

impl IntoDue for &jiff::Zoned {
    fn into_due(self) -> Result<Due, ScheduleError> {
        self.timestamp().into_due()
    }
}

impl IntoDue for SystemTime {
    fn into_due(self) -> Result<Due, ScheduleError> {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Due::at(UnixMs(match self.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => ms(after),
            Err(before) => -ms(before.duration()),
        }))
    }
}
