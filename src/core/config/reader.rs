//! Reads a table key by key and collects all problems.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use toml::{Table, Value};

use super::{Problem, suggestions};
use crate::task::{ScheduleError, parse_length};

/// Value that means "no limit" in place of a duration.
const NONE: &str = "none";

/// Takes keys out of a table one by one; the keys left at the end are unknown.
pub(super) struct Reader {
    pub(super) table: Table,
    pub(super) path: String,
    /// The keys that were looked for. An unknown key may have meant one of them.
    known: Vec<String>,
}

#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(Problem {
            path: path.to_owned(),
            message: message.into(),
        });
    }

    /// Message for an unknown key, with a suggestion if there is one.
    pub(super) fn unknown(meant: Option<String>) -> String {
        let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
        format!("is not the name of a setting{}", meant.unwrap_or_default())
    }
}

impl Reader {
    pub(super) fn new(table: Table, path: impl Into<String>) -> Self {
        Self {
            table,
            path: path.into(),
            known: Vec::new(),
        }
    }

    /// True if the table has this key.
    pub(super) fn has(&mut self, key: &str) -> bool {
        self.known.push(key.to_owned());
        self.table.contains_key(key)
    }

    /// Takes the value of a key.
    pub(super) fn remove(&mut self, key: &str) -> Option<Value> {
        self.has(key).then(|| self.table.remove(key))?
    }

    /// Reads a key by a rule.
    pub(super) fn by<T>(
        &mut self,
        key: &str,
        p: &mut Problems,
        rule: impl FnOnce(&mut Self, &str, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        rule(self, key, p)
    }

    /// Reads a key by a rule; `Some(None)` if there is no such key.
    pub(super) fn given<T>(
        &mut self,
        key: &str,
        p: &mut Problems,
        rule: impl FnOnce(&mut Self, &str, &mut Problems) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.has(key) {
            true => rule(self, key, p).map(Some),
            false => Some(None),
        }
    }

    /// Entries of `[[key]]`; empty if the value has another type.
    pub(super) fn entries(&mut self, key: &str, problems: &mut Problems) -> Vec<Self> {
        let path = self.at(key);
        if let Some(Value::Table(_)) = self.table.get(key) {
            self.table.remove(key);
            let expected = format!("expected `[[{path}]]`, with two brackets, above each entry");
            problems.add(&path, expected);
        }
        let tables: Vec<Table> = self.optional(key, problems).unwrap_or_default();
        let tables = tables.into_iter().enumerate();
        let readers = tables.map(|(index, table)| Self::new(table, format!("{path}[{index}]")));
        readers.collect()
    }

    /// Entries of `[[key]]` that have different names. `read` reads one, `name` returns its name.
    pub(super) fn named_entries<T>(
        &mut self,
        key: &str,
        problems: &mut Problems,
        read: fn(Self, &mut Problems) -> Option<T>,
        name: fn(&T) -> &str,
    ) -> Vec<T> {
        let mut entries: Vec<T> = Vec::new();
        for reader in self.entries(key, problems) {
            let path = reader.at("name");
            let Some(entry) = read(reader, problems) else {
                continue;
            };
            if entries.iter().any(|other| name(other) == name(&entry)) {
                problems.add(&path, format!("`{}` is defined twice", name(&entry)));
            }
            entries.push(entry);
        }
        entries
    }

    pub(super) fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    pub(super) fn optional<T: DeserializeOwned>(
        &mut self,
        key: &str,
        problems: &mut Problems,
    ) -> Option<T> {
        let value = self.remove(key)?;
        let found = value.type_str();
        value
            .try_into()
            .map_err(|error: toml::de::Error| {
                let message = match (SECRETS.contains(&key), error.message()) {
                    (false, message) => message.to_owned(),
                    // The message of the parser has the value in it.
                    (true, message) => match message.rsplit_once(", expected ") {
                        Some((_, expected)) => {
                            format!("expected {expected}, found a value of type {found}")
                        }
                        None => message.to_owned(),
                    },
                };
                problems.add(&self.at(key), message);
            })
            .ok()
    }

    pub(super) fn take<T: DeserializeOwned>(
        &mut self,
        key: &str,
        problems: &mut Problems,
    ) -> Option<T> {
        if !self.has(key) {
            problems.add(&self.at(key), "is missing");
        }
        self.optional(key, problems)
    }

    /// As `take`, with a condition and its description. A number that does not fit is shown; a text may be a secret.
    pub(super) fn checked<T: DeserializeOwned>(
        &mut self,
        key: &str,
        problems: &mut Problems,
        holds: impl FnOnce(&T) -> bool,
        expected: &str,
    ) -> Option<T> {
        let found = match self.table.get(key) {
            Some(number @ (Value::Integer(_) | Value::Float(_))) => format!(", found {number}"),
            _ => String::new(),
        };
        let value = self.take(key, problems)?;
        if holds(&value) {
            return Some(value);
        }
        problems.add(&self.at(key), format!("expected {expected}{found}"));
        None
    }

    pub(super) fn duration(
        &mut self,
        key: &str,
        problems: &mut Problems,
        least: Duration,
    ) -> Option<Duration> {
        self.duration_or(key, problems, least, "")
    }

    /// As `duration`; `alternative` ends what was expected.
    fn duration_or(
        &mut self,
        key: &str,
        problems: &mut Problems,
        least: Duration,
        alternative: &str,
    ) -> Option<Duration> {
        let found = self.table.get(key).map(|value| format!(", found {value}"));
        let before = problems.0.len();
        let expected = format!("at least {} ms", least.as_millis());
        let span = self.checked::<Span>(key, problems, |span| span.0 >= least, &expected);
        for problem in &mut problems.0[before..] {
            problem.message += alternative;
            problem.message += found.as_deref().unwrap_or_default();
        }
        Some(span?.0)
    }

    /// A duration, or `"none"`. The outer `None` means that the value is invalid.
    pub(super) fn duration_or_none(
        &mut self,
        key: &str,
        problems: &mut Problems,
        least: Duration,
    ) -> Option<Option<Duration>> {
        if self.table.get(key).and_then(Value::as_str) == Some(NONE) {
            self.remove(key);
            return Some(None);
        }
        let found = self.duration_or(key, problems, least, ", or \"none\"");
        found.map(Some)
    }

    pub(super) fn section(&mut self, key: &str, problems: &mut Problems) -> Self {
        let path = self.at(key);
        let table = match self.remove(key) {
            Some(Value::Table(table)) => table,
            Some(_) => {
                problems.add(
                    &path,
                    format!("expected a section, such as `{key} = {{ .. }}`"),
                );
                Table::new()
            }
            None => Table::new(),
        };
        Self::new(table, path)
    }

    /// A text under this name, or in the file that is named under `<name>_file`.
    pub(super) fn text_or_file(&mut self, key: &str, p: &mut Problems) -> Option<Option<String>> {
        let by_file = format!("{key}_file");
        let direct = self.texts(key, p);
        let file = self.texts(&by_file, p);
        match (&direct?[..], &file?[..]) {
            ([], []) => Some(None),
            ([text], []) => Some(Some(text.clone())),
            ([], [path]) => self.parsed(&by_file, read_file(path), p).map(Some),
            _ => {
                let expected = format!("expected one text in one of `{key}` and `{by_file}`");
                p.add(&self.path, expected);
                None
            }
        }
    }

    /// A text, or an array of them; none if there is no such key.
    pub(super) fn texts(&mut self, key: &str, p: &mut Problems) -> Option<Vec<String>> {
        let values = match self.remove(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(value) => vec![value],
        };
        let texts = values.into_iter().map(|value| match value {
            Value::String(text) => Ok(text),
            // What was found may be a secret.
            _ => Err("expected a text, or an array of texts".to_owned()),
        });
        let texts = texts.collect();
        self.parsed(key, texts, p)
    }

    /// A text that is no secret: a wrong one is shown.
    pub(super) fn shown(
        &mut self,
        key: &str,
        p: &mut Problems,
        holds: impl FnOnce(&String) -> bool,
        expected: &str,
    ) -> Option<String> {
        let text: String = self.take(key, p)?;
        let checked = match holds(&text) {
            true => Ok(text),
            false => Err(format!("expected {expected}, found {text:?}")),
        };
        self.parsed(key, checked, p)
    }

    /// The address and port to listen on; `Some(None)` for an empty text.
    pub(super) fn address(
        &mut self,
        key: &str,
        example: &str,
        p: &mut Problems,
    ) -> Option<Option<SocketAddr>> {
        let text: String = self.take(key, p)?;
        if text.is_empty() {
            return Some(None);
        }
        let address = text
            .parse()
            .map_err(|_| format!("`{text}` is not an address, expected `{example}` or \"\""));
        self.parsed(key, address, p).map(Some)
    }

    pub(super) fn parsed<T>(
        &self,
        key: &str,
        result: Result<T, String>,
        p: &mut Problems,
    ) -> Option<T> {
        result.map_err(|problem| p.add(&self.at(key), problem)).ok()
    }

    /// Takes the keys that are left.
    #[cfg(feature = "webhook")] // `[alerts]` alone has a part with keys of its own
    pub(super) fn rest(&mut self) -> Self {
        Self {
            table: std::mem::take(&mut self.table),
            path: self.path.clone(),
            known: self.known.clone(),
        }
    }

    pub(super) fn done(self, problems: &mut Problems) {
        for key in self.table.keys() {
            let meant = suggestions::closest(key, self.known.iter().map(String::as_str));
            problems.add(&self.at(key), Problems::unknown(meant));
        }
    }
}

/// Keys whose values may be secrets: no error shows one.
const SECRETS: [&str; 6] = [
    "password",
    "payload_secret",
    "secret",
    "token_sha256",
    "tokens",
    "url",
];

/// Reads a file, without trailing white space.
pub(super) fn read_file(path: &str) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(error) => Err(format!("cannot read `{path}`: {error}")),
    }
}

/// A duration written as text with its unit, no longer than the ledger can add to a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\"";
        let value = Value::deserialize(deserializer)?;
        let text = value.as_str().ok_or_else(|| D::Error::custom(EXPECTED))?;
        parse_length(text).map(Self).map_err(|error| {
            D::Error::custom(match error {
                ScheduleError::Negative(_) => "expected a duration that is not negative",
                ScheduleError::TooLong => "expected at most 10 years (3650 days)",
                _ => EXPECTED,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn no_error_of_a_type_shows_a_secret() {
        for text in [
            "http.tokens = 'S3CRET-0123456789'",
            "http.tokens = [90123456789]",
            "redis.url = 90123456789",
            "ledger.url = 90123456789",
            "resp.password = 90123456789",
            "[[routes]]\nmatch = '.'\npayload_secret = 90123456789\nlog = {}",
        ] {
            let error = Config::from_toml(text).unwrap_err().to_string();
            let shows = error.contains("S3CRET") || error.contains("90123456789");
            assert!(!shows && error.contains("expected"), "{text}: {error}");
        }
    }
}
