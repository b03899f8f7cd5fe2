//! A task to create, as JSON.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::client::{ClientError, Task, TaskClient};
use crate::http::input::{AtMost, duration_text};
use crate::http::problem::Problem;
use crate::task::{
    CatchUp, Due, Overlap, Recurrence, RecurrenceInput, RecurrenceOptions, TaskKey, UnixMs,
};

/// A task to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// `Class@method@argument..`. Instead of it, `class`, `method` and `args`; with `PUT`, the path has it.
    #[schema(example = "Order@close@42")]
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
    #[schema(example = "30m")]
    pub r#in: Option<String>,
    /// The due time, RFC 3339. To repeat a request with the same `at` changes nothing.
    pub at: Option<String>,
    /// Any JSON, at most 64 KiB. It is kept as written.
    #[schema(value_type = Option<Value>)]
    pub payload: Option<Box<RawValue>>,
    /// To list and cancel tasks by; at most 128 characters.
    pub tag: Option<String>,
    /// Maximum number of runs, the first one included.
    #[schema(minimum = 1)]
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
    pub times: Option<u32>,
    /// How missed occurrences are treated: `skip` (the default) drops them, `once` runs one for all, `all` runs each.
    pub catch_up: Option<CatchUpName>,
    /// Maximum number of missed occurrences that `all` runs.
    pub catch_up_max: Option<u32>,
    /// Whether an occurrence may start before the previous one has ended: `skip` (the default) or `allow`.
    pub overlap: Option<OverlapName>,
}

/// Maximum number of arguments: a key has 255 bytes at most, which this many do not fit.
const ARGUMENTS_MAX: usize = 256;

fn arguments<'de, D: Deserializer<'de>>(given: D) -> Result<Vec<String>, D::Error> {
    let arguments: AtMost<String, ARGUMENTS_MAX> = AtMost::deserialize(given)?;
    match arguments.count {
        ..=ARGUMENTS_MAX => Ok(arguments.first),
        count => Err(D::Error::custom(format_args!(
            "`args` has {count} elements, expected at most {ARGUMENTS_MAX}"
        ))),
    }
}

/// Policy for an unfinished task of the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IfPending {
    Move,
    Keep,
    Refuse,
}

/// How missed occurrences are treated.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatchUpName {
    Skip,
    Once,
    All,
}

/// Whether occurrences may overlap.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlapName {
    Skip,
    Allow,
}

/// What a request asks to create. It is checked: only the ledger can refuse it.
#[derive(Debug)]
pub enum Wanted {
    /// A task that runs once.
    Once(Task, Due),
    /// A recurring task.
    Series(Task, Recurrence),
}

impl Wanted {
    /// Its key.
    pub fn key(&self) -> &TaskKey {
        match self {
            Self::Once(task, _) | Self::Series(task, _) => task.key(),
        }
    }
}

impl NewTask {
    /// Checks the task and returns it. `in_path` is the key in the path, if the request has one.
    ///
    /// # Errors
    /// The first part that does not fit.
    pub fn check(self, in_path: Option<TaskKey>, tasks: &TaskClient) -> Result<Wanted, Problem> {
        let now = tasks.clock_now();
        let due = due(self.r#in.as_deref(), self.at.as_deref())?;
        let recurrence = self.recurrence(due, now)?;
        let task = self.task(in_path)?;
        match (recurrence, due) {
            (Some(recurrence), _) => {
                tasks.check_recurring(&task, &recurrence)?;
                Ok(Wanted::Series(task, recurrence))
            }
            (None, Some(due)) => {
                tasks.check(&task, due)?;
                Ok(Wanted::Once(task, due))
            }
            (None, None) => Err(Problem::invalid(
                "expected `in` or `at`, or `every` or `cron` for a recurring task",
            )),
        }
    }

    fn task(self, in_path: Option<TaskKey>) -> Result<Task, Problem> {
        let unique = self.unique;
        if unique && in_path.is_some() {
            return Err(Problem::invalid(
                "`unique` makes a new key each time, which does not go with `PUT`: use `POST /v1/tasks`",
            ));
        }
        let mut task = Task::from(self.key(in_path)?);
        if unique {
            task = task.unique().map_err(ClientError::from)?;
        }
        if let Some(payload) = self.payload {
            task = task.payload(payload.get());
        }
        if let Some(tag) = self.tag {
            task = task.tag(tag);
        }
        if let Some(runs) = self.max_attempts {
            task = task.max_attempts(runs);
        }
        if let Some(trace) = self.traceparent {
            task = task.traceparent(&trace).map_err(ClientError::from)?;
        }
        Ok(task.if_pending(self.if_pending.map(Into::into).unwrap_or_default()))
    }

    fn key(&self, in_path: Option<TaskKey>) -> Result<TaskKey, Problem> {
        let invalid = |error: crate::task::KeyError| Problem::invalid(error.to_string());
        let named = match (&self.key, &self.class, &self.method) {
            (Some(key), None, None) if self.args.is_empty() => {
                Some(TaskKey::parse(key).map_err(invalid)?)
            }
            (None, Some(class), Some(method)) => {
                Some(TaskKey::build(class, method, &self.args).map_err(invalid)?)
            }
            (None, None, None) if self.args.is_empty() => None,
            _ => {
                return Err(Problem::invalid(
                    "expected either `key`, or `class` and `method` with optional `args`",
                ));
            }
        };
        match (in_path, named) {
            (Some(path), Some(named)) if path != named => Err(Problem::invalid(format!(
                "the body names `{named}`, the path `{path}`: expected the same key, or none in the body"
            ))),
            (Some(key), _) | (None, Some(key)) => Ok(key),
            (None, None) => Err(Problem::invalid("expected `key`, or `class` and `method`")),
        }
    }

    fn recurrence(&self, first: Option<Due>, now: UnixMs) -> Result<Option<Recurrence>, Problem> {
        let Self {
            every,
            cron,
            tz,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
            ..
        } = self;
        if every.is_none() && cron.is_none() {
            let has_option = tz.is_some()
                || until.is_some()
                || times.is_some()
                || catch_up.is_some()
                || catch_up_max.is_some()
                || overlap.is_some();
            return match has_option {
                true => Err(Problem::invalid(
                    "expected `every` or `cron` with the other members of a recurring task",
                )),
                false => Ok(None),
            };
        }
        let input = RecurrenceInput {
            every: every.as_deref(),
            cron: cron.as_deref(),
            tz: tz.as_deref(),
        };
        let rule = input.rule().map_err(ClientError::from)?;
        let until = until.as_deref().map(Due::parse_moment).transpose();
        let until = until.map_err(|error| Problem::invalid(format!("`until`: {error}")))?;
        let options = RecurrenceOptions {
            start: first.map(|first| first.resolve(now)),
            until: until.map(|until| until.resolve(now)),
            times: *times,
            catch_up: catch_up.map(Into::into),
            catch_up_max: *catch_up_max,
            overlap: overlap.map(Into::into),
        };
        let recurrence = options.apply(rule).map_err(ClientError::from)?;
        Ok(Some(recurrence))
    }
}

/// The due time of a request; `None` if it has none.
///
/// # Errors
/// Both are given, or one is not a time.
pub fn due(delay: Option<&str>, moment: Option<&str>) -> Result<Option<Due>, Problem> {
    let due = match (delay, moment) {
        (Some(delay), None) => Due::parse_delay(delay),
        (None, Some(moment)) => Due::parse_moment(moment),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid("expected either `in` or `at`, found both"));
        }
    };
    due.map(Some)
        .map_err(|error| Problem::invalid(error.to_string()))
}

impl From<IfPending> for crate::ledger::IfPending {
    fn from(name: IfPending) -> Self {
        match name {
            IfPending::Move => Self::Move,
            IfPending::Keep => Self::Keep,
            IfPending::Refuse => Self::Refuse,
        }
    }
}

impl From<CatchUpName> for CatchUp {
    fn from(name: CatchUpName) -> Self {
        match name {
            CatchUpName::Skip => Self::Skip,
            CatchUpName::Once => Self::Once,
            CatchUpName::All => Self::All,
        }
    }
}

impl From<OverlapName> for Overlap {
    fn from(name: OverlapName) -> Self {
        match name {
            OverlapName::Skip => Self::Skip,
            OverlapName::Allow => Self::Allow,
        }
    }
}
