//! A task to create, once or recurring.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::invalid;
use super::members::{arguments, count, duration_text, json};
use crate::client::{ClientError, Receipt, Task, TaskClient};
use crate::config::Secret;
use crate::ledger::IfPending;
use crate::task::{
    After, CatchUp, Due, Overlap, Recurrence, RecurrenceInput, RecurrenceOptions, TaskKey, UnixMs,
    parser_message,
};

/// A task to create.
// The comments of the members are their descriptions in `openapi.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = NewTask))]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// `Class@method@argument..`. Instead of it, `class`, `method` and `args`; with `PUT`, the path has it.
    #[cfg_attr(feature = "openapi", schema(example = "Order@close@42"))]
    pub key: Option<String>,
    /// The class, instead of `key`.
    pub class: Option<String>,
    /// The method, instead of `key`.
    pub method: Option<String>,
    /// The arguments, beside `class` and `method`.
    #[serde(default, deserialize_with = "arguments")]
    pub args: Vec<String>,
    /// Adds a random suffix to the key, so that many tasks can have the same class, method and arguments. Not with `PUT`.
    #[serde(default)]
    pub unique: bool,
    /// The due time as a delay: `1500ms`, `30s`, `1h 30m`. Either this or `at`, unless the task recurs.
    #[serde(default, deserialize_with = "duration_text")]
    #[cfg_attr(feature = "openapi", schema(example = "30m"))]
    pub r#in: Option<String>,
    /// The due time, RFC 3339. To repeat a request with the same `at` changes nothing.
    pub at: Option<String>,
    /// Any JSON, at most 64 KiB. It is kept as written.
    #[serde(default, deserialize_with = "json")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<String>,
    /// To list and cancel tasks by; at most 128 characters.
    pub tag: Option<String>,
    /// The task starts only when every task with a tag has ended. Not for a recurring task.
    pub after: Option<After>,
    /// Maximum number of runs, the first one included.
    #[serde(default, deserialize_with = "count")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub max_attempts: Option<u16>,
    /// What happens if an unfinished task of this key exists: `move` it (the default), `keep` it, or `refuse` the request.
    pub if_pending: Option<IfPending>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The task recurs at this interval: `15m`.
    #[serde(default, deserialize_with = "duration_text")]
    pub every: Option<String>,
    /// The task recurs on this schedule: `0 9 * * Mon-Fri`.
    pub cron: Option<String>,
    /// Time zone of `cron`: `Europe/Berlin`. The default is UTC.
    pub tz: Option<String>,
    /// No occurrence after this time, RFC 3339.
    pub until: Option<String>,
    /// Number of occurrences.
    #[serde(default, deserialize_with = "count")]
    pub times: Option<u32>,
    /// How missed occurrences are treated: `skip` (the default) drops them, `once` runs one for all, `all` runs each.
    pub catch_up: Option<CatchUp>,
    /// Maximum number of missed occurrences that `all` runs.
    #[serde(default, deserialize_with = "count")]
    pub catch_up_max: Option<u32>,
    /// Whether an occurrence may start before the previous one has ended: `skip` (the default) or `allow`.
    pub overlap: Option<Overlap>,
}

/// A task with its schedule, as a [`TaskClient`] creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskRequest {
    /// A task that runs once.
    Once(Task, Due),
    /// A recurring task.
    Recurring(Task, Recurrence),
}

impl TaskSpec {
    /// Parses a JSON object.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] names the member that does not fit.
    pub fn from_json(text: &[u8]) -> Result<Self, ClientError> {
        serde_json::from_slice(text)
            .map_err(|error| invalid(parser_message(&not_a_task(text, &error))))
    }

    /// Parses all members. Delays count from `now`, on the ledger's clock.
    ///
    /// # Errors
    /// The first member that does not fit, or members that exclude each other. Lengths are checked by
    /// [`TaskRequest::check`].
    pub fn resolve(self, now: UnixMs) -> Result<TaskRequest, ClientError> {
        let due = due(self.r#in.as_deref(), self.at.as_deref())?;
        self.resolve_at(due, now)
    }

    /// As [`resolve`](Self::resolve), with the due time in place of `in` and `at`.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_at(self, due: Option<Due>, now: UnixMs) -> Result<TaskRequest, ClientError> {
        let recurrence = self.recurrence(due, now)?;
        let task = self.task()?;
        match (recurrence, due) {
            (Some(recurrence), _) => Ok(TaskRequest::Recurring(task, recurrence)),
            (None, Some(due)) => Ok(TaskRequest::Once(task, due)),
            (None, None) => Err(invalid(
                "expected `in` or `at`, or `every` or `cron` for a recurring task",
            )),
        }
    }

    /// True if the task recurs.
    pub fn is_recurring(&self) -> bool {
        self.every.is_some() || self.cron.is_some()
    }

    /// Parses the key; `None` if there is none.
    ///
    /// # Errors
    /// It does not fit the grammar of keys, or is given twice.
    pub fn named_key(&self) -> Result<Option<TaskKey>, ClientError> {
        Ok(match (&self.key, &self.class, &self.method) {
            (Some(key), None, None) if self.args.is_empty() => Some(TaskKey::parse(key)?),
            (None, Some(class), Some(method)) => Some(TaskKey::build(class, method, &self.args)?),
            (None, None, None) if self.args.is_empty() => None,
            _ => {
                return Err(invalid(
                    "expected either `key`, or `class` and `method` with optional `args`",
                ));
            }
        })
    }

    /// Returns the task without its schedule.
    ///
    /// # Errors
    /// The first member that does not fit.
    pub fn task(self) -> Result<Task, ClientError> {
        let key = self.named_key()?;
        let key = key.ok_or_else(|| invalid("expected `key`, or `class` and `method`"))?;
        let mut task = Task::from(key).if_pending(self.if_pending.unwrap_or_default());
        if self.unique {
            task = task.unique()?;
        }
        if let Some(payload) = self.payload {
            task = task.payload(payload);
        }
        if let Some(tag) = self.tag {
            task = task.tag(tag);
        }
        if let Some(after) = self.after {
            task = task.after(after);
        }
        if let Some(runs) = self.max_attempts {
            task = task.max_attempts(runs);
        }
        if let Some(trace) = self.traceparent {
            task = task.traceparent(&trace)?;
        }
        Ok(task)
    }

    fn recurrence(
        &self,
        first: Option<Due>,
        now: UnixMs,
    ) -> Result<Option<Recurrence>, ClientError> {
        let until = self.until.as_deref().map(Due::parse_moment).transpose();
        let until = until.map_err(|error| invalid(format!("`until`: {error}")))?;
        let options = RecurrenceOptions {
            start: None,
            until: until.map(|until| until.resolve(now)),
            times: self.times,
            catch_up: self.catch_up,
            catch_up_max: self.catch_up_max,
            overlap: self.overlap,
        };
        if !self.is_recurring() {
            return match self.tz.is_some() || options != RecurrenceOptions::default() {
                true => Err(invalid(
                    "expected `every` or `cron` with the other options of a recurring task",
                )),
                false => Ok(None),
            };
        }
        let input = RecurrenceInput {
            every: self.every.as_deref(),
            cron: self.cron.as_deref(),
            tz: self.tz.as_deref(),
        };
        let options = RecurrenceOptions {
            start: first.map(|first| first.resolve(now)),
            ..options
        };
        Ok(Some(options.apply(input.rule()?)?))
    }
}

impl TaskRequest {
    /// The key of the task.
    pub fn key(&self) -> &TaskKey {
        match self {
            Self::Once(task, _) | Self::Recurring(task, _) => task.key(),
        }
    }

    /// Signs the task, as [`Task::sign`].
    #[must_use]
    pub fn sign(self, secret: impl Into<Secret>) -> Self {
        match self {
            Self::Once(task, due) => Self::Once(task.sign(secret), due),
            Self::Recurring(task, recurrence) => Self::Recurring(task.sign(secret), recurrence),
        }
    }

    /// Checks whether [`create`](Self::create) would accept the task, without a statement.
    ///
    /// # Errors
    /// [`ClientError`] names the first problem.
    pub fn check(&self, tasks: &TaskClient) -> Result<(), ClientError> {
        match self {
            Self::Once(task, due) => tasks.check(task, *due),
            Self::Recurring(task, recurrence) => tasks.check_recurring(task, recurrence),
        }
    }

    /// Creates the task.
    ///
    /// # Errors
    /// As [`TaskClient::create`] and [`TaskClient::create_recurring`].
    ///
    /// # Cancel safety
    /// Safe to drop: the task may or may not be created.
    pub async fn create(self, tasks: &TaskClient) -> Result<Receipt, ClientError> {
        match self {
            Self::Once(task, due) => tasks.create(task, due).await,
            Self::Recurring(task, recurrence) => tasks.create_recurring(task, recurrence).await,
        }
    }
}

/// Parses a due time that is given as a delay or as a moment; `None` if it is not given.
///
/// # Errors
/// Both are given, or one is not a time.
pub fn due(delay: Option<&str>, moment: Option<&str>) -> Result<Option<Due>, ClientError> {
    let due = match (delay, moment) {
        (Some(delay), None) => Due::parse_delay(delay),
        (None, Some(moment)) => Due::parse_moment(moment),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(invalid("expected either `in` or `at`, found both")),
    };
    Ok(Some(due?))
}

/// Says why a text is not a task, by the name of the member if possible.
fn not_a_task(text: &[u8], error: &serde_json::Error) -> String {
    if !text.trim_ascii_start().starts_with(b"{") || error.is_eof() || error.is_syntax() {
        return format!(
            "expected a JSON object such as {{\"key\": \"Order@close@42\", \"in\": \"30m\"}}: {error}"
        );
    }
    let mut misfit = None;
    let mut members = serde_json::Deserializer::from_slice(text);
    // It ends at the first member that does not fit.
    let _ = members.deserialize_map(FirstMisfit(&mut misfit));
    misfit.unwrap_or_else(|| error.to_string())
}

/// Finds the first member that is not one of a task.
struct FirstMisfit<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for FirstMisfit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some((name, value)) = members.next_entry::<String, &RawValue>()? {
            let alone = format!("{{{}:{}}}", Value::from(name.as_str()), value.get());
            if let Err(error) = serde_json::from_str::<TaskSpec>(&alone) {
                *self.0 = Some(of_member(&name, &error));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The error of a member, with its name and without its place in the text.
fn of_member(name: &str, error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let says = error.to_string();
    let says = says.strip_suffix(&place).unwrap_or(&says);
    match says.contains(&format!("`{name}`")) {
        true => says.to_owned(),
        false => format!("`{name}`: {says}"),
    }
}

#[cfg(test)]
mod tests;
