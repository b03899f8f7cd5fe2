//! Overlays: the file over the defaults, the environment over both.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::reader::Problems;
use super::source::ENV_PREFIX;
use super::suggestions;

/// Merges sections key by key; other values are replaced.
pub(super) fn overlay_file(table: &mut Table, file: Table) {
    for (key, value) in file {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay_file(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// `LAPSED__SECTION__KEY=value`, or `LAPSED__SECTION__KEY_FILE=path of a file that holds the value`.
/// The type of the default decides how the text is read: a string is taken as it is.
pub(super) fn overlay_env(
    table: &mut Table,
    defaults: &Table,
    env: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    for (name, value) in env {
        let Some(path) = name.strip_prefix(ENV_PREFIX) else {
            continue;
        };
        let path = path.to_lowercase().replace("__", ".");
        let direct = lookup(defaults, &path);
        let (path, default, text) = match (direct, path.strip_suffix("_file")) {
            (Some(default), _) => (path.as_str(), default, value.clone()),
            (None, Some(stem)) if lookup(defaults, stem).is_some() => {
                match std::fs::read_to_string(value) {
                    Ok(text) => (
                        stem,
                        lookup(defaults, stem).expect("just found"),
                        text.trim_end().to_owned(),
                    ),
                    Err(error) => {
                        problems.add(name, format!("cannot read `{value}`: {error}"));
                        continue;
                    }
                }
            }
            _ => {
                let meant = suggestions::variable(name);
                problems.add(name, Problems::unknown(meant));
                continue;
            }
        };
        match read_as(default, &text) {
            Ok(value) => insert(table, path, value),
            Err(expected) => problems.add(name, format!("expected {expected}")),
        }
    }
}

fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    match (table.get(head)?, rest) {
        (Value::Table(table), rest) if !rest.is_empty() => lookup(table, rest),
        (Value::Table(_), _) => None,
        (value, "") => Some(value),
        _ => None,
    }
}

fn insert(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((head, rest)) => {
            if let Some(Value::Table(table)) = table.get_mut(head) {
                insert(table, rest, value);
            }
        }
    }
}

fn read_as(default: &Value, text: &str) -> Result<Value, &'static str> {
    match default {
        Value::String(_) => Ok(Value::String(text.to_owned())),
        Value::Integer(_) => text
            .parse()
            .map(Value::Integer)
            .map_err(|_| "a whole number"),
        Value::Float(_) => text.parse().map(Value::Float).map_err(|_| "a number"),
        Value::Boolean(_) => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| "`true` or `false`"),
        Value::Array(_) => {
            let table: Result<Table, _> = format!("value = {text}").parse();
            match table.ok().and_then(|mut table| table.remove("value")) {
                Some(value @ Value::Array(_)) => Ok(value),
                _ => Err("a TOML array such as `[\"a\", \"b\"]`"),
            }
        }
        Value::Datetime(_) | Value::Table(_) => {
            Err("nothing: this cannot be set from the environment")
        }
    }
}
