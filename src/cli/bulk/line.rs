//! Parses a bulk line: a task as a JSON object.

use lapsed::config::Secret;
use lapsed::task::{Due, ScheduleError, TaskKey, UnixMs};
use lapsed::{Recurrence, Task, TaskClient};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::recurrence_options::{CatchUpArg, OverlapArg, RecurrenceOptions};
use crate::task_options::TaskOptions;

/// Maximum length of a line: an escaped payload and the other fields.
const LINE_BYTES_MAX: usize = 512 * 1024;

/// One line of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    r#in: Option<String>,
    at: Option<String>,
    /// Kept as written: a number may have more digits than a Rust type.
    payload: Option<Box<RawValue>>,
    tag: Option<String>,
    max_attempts: Option<u16>,
    traceparent: Option<String>,
    if_pending: Option<String>,
    #[serde(default)]
    unique: bool,
    every: Option<String>,
    cron: Option<String>,
    tz: Option<String>,
    until: Option<String>,
    times: Option<u32>,
    catch_up: Option<CatchUpArg>,
    catch_up_max: Option<u32>,
    overlap: Option<OverlapArg>,
}

/// The task that a line describes.
pub enum Wanted {
    Once(Task, Due),
    Series(Task, Recurrence),
}

impl Wanted {
    pub fn key(&self) -> &TaskKey {
        match self {
            Self::Once(task, _) | Self::Series(task, _) => task.key(),
        }
    }
}

/// Parses a line, or describes what is wrong with it.
pub fn parse(
    text: &[u8],
    secret: Option<&Secret>,
    tasks: &TaskClient,
    now: UnixMs,
) -> Result<Wanted, String> {
    if text.len() > LINE_BYTES_MAX {
        return Err(format!(
            "has {} bytes, expected at most {LINE_BYTES_MAX}",
            text.len()
        ));
    }
    let line: Line = serde_json::from_slice(text).map_err(|error| not_a_task(text, &error))?;
    let key = TaskKey::parse(&line.key).map_err(|error| error.to_string())?;
    let due = due_of(line.r#in.as_deref(), line.at.as_deref())?;
    let if_pending = line.if_pending.as_deref().map(str::parse).transpose();
    let options = TaskOptions {
        key,
        payload: line.payload.map(|payload| payload.get().to_owned()),
        tag: line.tag,
        max_attempts: line.max_attempts,
        if_pending: if_pending
            .map_err(|error: String| format!("`if_pending`: {error}"))?
            .unwrap_or_default(),
        unique: line.unique,
        traceparent: line.traceparent,
    };
    let task = options.task(secret.cloned())?;
    let options = RecurrenceOptions {
        every: line.every,
        cron: line.cron,
        tz: line.tz,
        until: line.until,
        times: line.times,
        catch_up: line.catch_up,
        catch_up_max: line.catch_up_max,
        overlap: line.overlap,
    };
    if let Some(recurrence) = options.resolve(due, now)? {
        tasks
            .check_recurring(&task, &recurrence)
            .map_err(|error| error.to_string())?;
        return Ok(Wanted::Series(task, recurrence));
    }
    let due = due.ok_or("has neither `in` nor `at`, nor `every` or `cron`")?;
    tasks.check(&task, due).map_err(|error| error.to_string())?;
    Ok(Wanted::Once(task, due))
}

/// Due time of the line, if it has one.
fn due_of(delay: Option<&str>, moment: Option<&str>) -> Result<Option<Due>, String> {
    let due: Result<Due, ScheduleError> = match (delay, moment) {
        (Some(delay), None) => Due::parse_delay(delay),
        (None, Some(moment)) => Due::parse_moment(moment),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("has both `in` and `at`".to_owned()),
    };
    due.map(Some).map_err(|error| error.to_string())
}

/// Describes why a line is invalid, by the name of the field if possible.
fn not_a_task(text: &[u8], error: &serde_json::Error) -> String {
    const TEXTS: [&str; 10] = [
        "key",
        "in",
        "at",
        "tag",
        "traceparent",
        "if_pending",
        "every",
        "cron",
        "tz",
        "until",
    ];
    const NUMBERS: [(&str, u64); 3] = [
        ("max_attempts", u16::MAX as u64),
        ("times", u32::MAX as u64),
        ("catch_up_max", u32::MAX as u64),
    ];
    const WORDS: [(&str, &[&str]); 2] = [
        ("catch_up", &["skip", "once", "all"]),
        ("overlap", &["skip", "allow"]),
    ];
    let Ok(Value::Object(fields)) = serde_json::from_slice(text) else {
        return format!(
            "expected a JSON object such as {{\"key\": \"Order@close@42\", \"in\": \"30m\"}}: {error}"
        );
    };
    let value = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let not_text = TEXTS
        .iter()
        .find(|name| value(name).is_some_and(|value| !value.is_string()));
    let not_number = NUMBERS.iter().find(|(name, most)| {
        let fits = |value: &Value| value.as_u64().is_some_and(|number| number <= *most);
        value(name).is_some_and(|value| !fits(value))
    });
    let not_word = WORDS.iter().find(|(name, words)| {
        let fits = |value: &Value| value.as_str().is_some_and(|word| words.contains(&word));
        value(name).is_some_and(|value| !fits(value))
    });
    match (not_text, not_number, not_word) {
        (Some(name), _, _) => format!("`{name}`: expected a text"),
        (_, Some((name, most)), _) => format!("`{name}`: expected a whole number up to {most}"),
        (_, _, Some((name, words))) => {
            format!("`{name}`: expected one of `{}`", words.join("`, `"))
        }
        _ if value("unique").is_some_and(|value| !value.is_boolean()) => {
            "`unique`: expected true or false".to_owned()
        }
        _ => error.to_string(),
    }
}
