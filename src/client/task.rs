//! What is to be run, and when.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{ClientError, unique};
use crate::config::Secret;
use crate::ledger::IfPending;
use crate::task::{
    Due, Envelope, KeyError, PAYLOAD_BYTES_MAX, RESERVED_MEMBER, SECRET_BYTES_MIN, ScheduleError,
    TAG_CHARS_MAX, TaskKey, Traceparent, TraceparentError, UnixMs, has_reserved_member, sign,
};

/// What is to be run: its key, and everything else that can be said of it. When is a [`Due`].
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
    pub(super) payload: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) max_attempts: Option<u16>,
    pub(super) travels: Travels,
    pub(super) if_pending: IfPending,
}

/// What goes into the envelope of a payload, if there is to be one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Travels {
    pub traceparent: Option<Traceparent>,
    secret: Option<Secret>,
}

impl Travels {
    /// What the ledger gets: the payload as it was given, unless something travels with it.
    pub fn seal(self, key: &TaskKey, payload: Option<String>) -> Option<String> {
        let Self {
            traceparent,
            secret,
        } = self;
        let signature =
            secret.map(|secret| sign(secret.expose().as_bytes(), key, payload.as_deref()));
        Envelope {
            payload,
            traceparent,
            signature,
        }
        .seal()
    }
}

impl Task {
    /// `Class@method@args`.
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

    /// With a payload: JSON, at most [`PAYLOAD_BYTES_MAX`] bytes. An object may not have a member `$lapsed`, which is
    /// [reserved](crate::task::Envelope).
    #[must_use]
    pub fn payload(self, json: impl Into<String>) -> Self {
        Self {
            payload: Some(json.into()),
            ..self
        }
    }

    /// With a payload: anything that can be written as JSON.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if it cannot, such as a map whose keys are no strings.
    pub fn payload_json(self, value: &impl Serialize) -> Result<Self, ClientError> {
        let json = serde_json::to_string(value);
        let json = json.map_err(|error| {
            ClientError::Invalid(format!("payload cannot be written as JSON: {error}"))
        })?;
        Ok(self.payload(json))
    }

    /// With a tag, to look up many by; at most [`TAG_CHARS_MAX`] characters, the last of which is no space.
    #[must_use]
    pub fn tag(self, tag: impl Into<String>) -> Self {
        Self {
            tag: Some(tag.into()),
            ..self
        }
    }

    /// With a limit of its own: runs, not retries.
    #[must_use]
    pub fn max_attempts(self, runs: u16) -> Self {
        Self {
            max_attempts: Some(runs),
            ..self
        }
    }

    /// As part of this trace, which its run and what that creates belong to as well: a W3C `traceparent`.
    ///
    /// Without one a task belongs to what [`TaskClient::trace_with`](super::TaskClient::trace_with) says, else to the
    /// trace of the run that creates it, if it is created by a handler.
    ///
    /// # Errors
    /// [`TraceparentError`] says what was expected.
    pub fn traceparent(self, traceparent: &str) -> Result<Self, TraceparentError> {
        let traceparent = Some(traceparent.parse()?);
        let travels = Travels {
            traceparent,
            ..self.travels
        };
        Ok(Self { travels, ..self })
    }

    /// Signed with a secret of at least [`SECRET_BYTES_MIN`] bytes, for daemons that run nothing else
    /// ([`VerifyPayload`](crate::handler::VerifyPayload)). Key and payload are signed, and nothing else.
    #[must_use]
    pub fn sign(self, secret: impl Into<Secret>) -> Self {
        let secret = Some(secret.into());
        let travels = Travels {
            secret,
            ..self.travels
        };
        Self { travels, ..self }
    }

    /// What becomes of a task of this key that has not finished: it is moved unless this says otherwise.
    #[must_use]
    pub fn if_pending(self, policy: IfPending) -> Self {
        Self {
            if_pending: policy,
            ..self
        }
    }

    /// One of many with the same class, method and arguments: its key gets a suffix, `~` and 26 characters that sort by
    /// time, which is no argument.
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
    /// [`KeyError::TooLong`], since the suffix counts.
    pub fn unique(self) -> Result<Self, KeyError> {
        Ok(Self {
            key: self.key.with_suffix(&unique::mark())?,
            ..self
        })
    }

    /// What it is called.
    pub fn key(&self) -> &TaskKey {
        &self.key
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        let refuse = |what: String| Err(ClientError::Invalid(what));
        if let Some(payload) = &self.payload {
            if payload.len() > PAYLOAD_BYTES_MAX {
                return refuse(format!(
                    "payload has {} bytes, expected at most {PAYLOAD_BYTES_MAX}",
                    payload.len()
                ));
            }
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(payload) {
                return refuse(format!("payload is not JSON: {error}"));
            }
            if has_reserved_member(payload) {
                return refuse(format!(
                    "payload has a top-level member `{RESERVED_MEMBER}`, which is reserved: expected another name"
                ));
            }
        }
        if let Some(secret) = &self.travels.secret
            && secret.expose().len() < SECRET_BYTES_MIN
        {
            return refuse(format!(
                "the secret to sign with has {} bytes, expected at least {SECRET_BYTES_MIN}",
                secret.expose().len()
            ));
        }
        match &self.tag {
            Some(tag) if tag.chars().count() > TAG_CHARS_MAX => refuse(format!(
                "tag has {} characters, expected at most {TAG_CHARS_MAX}",
                tag.chars().count()
            )),
            Some(tag) if tag.is_empty() || tag.chars().any(char::is_control) => {
                refuse("tag is empty or contains a control character".to_owned())
            }
            // Databases take it for the tag without.
            Some(tag) if tag.ends_with(' ') => refuse("tag ends in a space".to_owned()),
            _ if self.max_attempts == Some(0) => {
                refuse("max_attempts is 0, expected at least 1".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl From<TaskKey> for Task {
    fn from(key: TaskKey) -> Self {
        Self {
            key,
            payload: None,
            tag: None,
            max_attempts: None,
            travels: Travels::default(),
            if_pending: IfPending::Move,
        }
    }
}

/// When a task falls due: a [`Due`], a delay as a [`Duration`], or a moment as [`UnixMs`], [`jiff::Timestamp`],
/// [`jiff::Zoned`] or [`SystemTime`].
///
/// A moment is cut to whole milliseconds.
pub trait IntoDue {
    /// The due time.
    ///
    /// # Errors
    /// [`ScheduleError`] for one that is refused.
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
