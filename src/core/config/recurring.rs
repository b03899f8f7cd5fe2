//! Recurring tasks from the configuration: `[[recurring]]`.

use std::collections::BTreeSet;

use toml::Value;

use super::RouteConfig;
use super::reader::{Problems, Reader};
use crate::task::{
    CatchUp, Contents, Due, Recurrence, RecurrenceInput, RecurrenceOptions, TaskKey, UnixMs,
};

/// One entry of `[[recurring]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecurringConfig {
    /// Key of the task.
    pub key: TaskKey,
    /// Schedule of its occurrences.
    pub recurrence: Recurrence,
    /// Payload, tag and maximum number of runs of each occurrence.
    pub contents: Contents,
}

/// Reads the entries. `routes` are those that could be read.
pub(super) fn recurring(
    section: &mut Reader,
    routes: &[RouteConfig],
    p: &mut Problems,
) -> Vec<RecurringConfig> {
    let readers = section.entries("recurring", p);
    let mut keys = BTreeSet::new();
    let mut found = Vec::new();
    for reader in readers {
        let path = reader.at("key");
        let Some(series) = series(reader, p) else {
            continue;
        };
        if !keys.insert(series.key.clone()) {
            p.add(
                &path,
                format!("`{}` is defined twice, expected once", series.key),
            );
        }
        let route = routes
            .iter()
            .find(|route| route.matches.is_match(series.key.as_str()));
        if let Some(route) = route
            && !route.payload_secrets.is_empty()
        {
            let problem = format!(
                "`{}` goes to the route `match = \"{}\"`, which runs only what is signed with its `payload_secret`: \
                 expected another route, or a program that signs it and creates it",
                series.key, route.matches
            );
            p.add(&path, problem);
        }
        found.push(series);
    }
    found
}

fn series(mut section: Reader, p: &mut Problems) -> Option<RecurringConfig> {
    let key = key(&mut section, p);
    let (every, cron, tz): (Option<String>, Option<String>, Option<String>) = (
        section.optional("every", p),
        section.optional("cron", p),
        section.optional("tz", p),
    );
    let input = RecurrenceInput {
        every: every.as_deref(),
        cron: cron.as_deref(),
        tz: tz.as_deref(),
    };
    let recurrence = input
        .rule()
        .map_err(|error| p.add(&section.path, error.to_string()));
    let start = moment(&mut section, "start", p);
    let until = moment(&mut section, "until", p);
    let says_catch_up = section.table.contains_key("catch_up");
    let catch_up: Option<CatchUp> = section.optional("catch_up", p);
    let options = RecurrenceOptions {
        start,
        until,
        times: None,
        catch_up,
        catch_up_max: section.optional("catch_up_max", p),
        overlap: section.optional("overlap", p),
    };
    // An invalid value has been reported already.
    if catch_up.is_some() || !says_catch_up {
        for problem in options.problems() {
            p.add(&section.path, problem.to_string());
        }
    }
    let contents = Contents {
        payload: payload(&mut section, p),
        tag: section.optional("tag", p),
        max_attempts: section.optional("max_attempts", p),
    };
    for (name, problem) in contents.problems(false) {
        p.add(&section.at(name), problem);
    }
    let path = section.path.clone();
    section.done(p);
    let recurrence = options.apply(recurrence.ok()?).ok()?;
    let key = key?;
    if let Err(error) = recurrence.check_room(&key) {
        p.add(&path, error.to_string());
    }
    Some(RecurringConfig {
        key,
        recurrence,
        contents,
    })
}

fn key(section: &mut Reader, p: &mut Problems) -> Option<TaskKey> {
    let key: String = section.take("key", p)?;
    TaskKey::parse(&key)
        .map_err(|error| p.add(&section.at("key"), error.to_string()))
        .ok()
}

/// Converts a TOML value to JSON.
fn payload(section: &mut Reader, p: &mut Problems) -> Option<String> {
    let Some(json) = json(section.remove("payload")?) else {
        let problem = "expected values that JSON can represent: no dates, no infinities";
        p.add(&section.at("payload"), problem.to_owned());
        return None;
    };
    Some(json.to_string())
}

fn moment(section: &mut Reader, key: &str, p: &mut Problems) -> Option<UnixMs> {
    let text: String = section.optional(key, p)?;
    match Due::parse_moment(&text) {
        Ok(due) => Some(due.resolve(UnixMs(0))),
        Err(error) => {
            p.add(&section.at(key), error.to_string());
            None
        }
    }
}

/// Converts one value.
fn json(value: Value) -> Option<serde_json::Value> {
    Some(match value {
        Value::String(text) => text.into(),
        Value::Integer(number) => number.into(),
        Value::Float(number) => serde_json::Number::from_f64(number)?.into(),
        Value::Boolean(flag) => flag.into(),
        Value::Datetime(_) => return None,
        Value::Array(items) => items
            .into_iter()
            .map(json)
            .collect::<Option<Vec<_>>>()?
            .into(),
        Value::Table(table) => {
            let fields = table
                .into_iter()
                .map(|(key, value)| Some((key, json(value)?)));
            serde_json::Value::Object(fields.collect::<Option<_>>()?)
        }
    })
}
