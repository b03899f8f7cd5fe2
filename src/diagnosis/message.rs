//! Messages: a phrase and its values, so that each language formats the same facts.

use std::fmt;
use std::time::Duration;

use super::Phrase;
use crate::format;
use crate::task::{State, UnixMs};

/// A value in a message. Pages format it by language and time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A name, as it is.
    Text(String),
    /// A number of something.
    Count(u64),
    /// A number that was counted in part.
    AtLeast(u64),
    /// A duration.
    Span(Duration),
    /// A point in time.
    Time(UnixMs),
    /// A state of a task.
    State(State),
}

/// A phrase with a value for each of its places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What is said, in no language yet.
    pub phrase: Phrase,
    /// One value for each place.
    pub values: Vec<Value>,
}

impl Message {
    /// Creates a message. The phrase has a place for each value.
    pub fn new(phrase: Phrase, values: impl Into<Vec<Value>>) -> Self {
        let values = values.into();
        Self { phrase, values }
    }

    /// Puts the values into a text, as `format` shows them.
    pub fn filled(&self, text: &str, format: impl FnMut(&Value) -> String) -> String {
        let values: Vec<String> = self.values.iter().map(format).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        fill(text, &values)
    }

    /// The English sentence: with a capital letter and a full stop.
    pub fn sentence(&self) -> String {
        sentence(&self.to_string())
    }

    /// The English sentence, with times as `time` shows them.
    pub fn sentence_with(&self, time: impl Fn(UnixMs) -> String) -> String {
        sentence(&self.english(time))
    }

    fn english(&self, time: impl Fn(UnixMs) -> String) -> String {
        let value = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            Value::Count(number) => format::count(*number),
            Value::AtLeast(number) => format!("at least {}", format::count(*number)),
            Value::Span(span) => format::duration(*span),
            Value::Time(at) => time(*at),
            Value::State(state) => state.to_string(),
        };
        self.filled(self.phrase.english(), value)
    }
}

impl From<Phrase> for Message {
    fn from(phrase: Phrase) -> Self {
        Self::new(phrase, [])
    }
}

/// In English. Times are RFC 3339.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.english(|at| at.to_string()))
    }
}

/// Puts values into the places `{}` of a text, in their order.
pub fn fill(text: &str, values: &[&str]) -> String {
    let mut parts = text.split("{}");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (part, value) in parts.zip(values.iter().chain(std::iter::repeat(&""))) {
        filled += value;
        filled += part;
    }
    filled
}

/// Makes a sentence of a text: with a capital letter and a full stop.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    let stop = if text.ends_with(['.', ')']) { "" } else { "." };
    first.chain(chars).chain(stop.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_into_their_places_in_order() {
        assert_eq!(fill("{} of {}", &["1", "2"]), "1 of 2");
        assert_eq!(fill("{} of {}", &["{}", "2"]), "{} of 2");
        assert_eq!(fill("{} of {}", &["1"]), "1 of ");
        assert_eq!(fill("none", &["1"]), "none");
    }

    #[test]
    fn a_sentence_has_a_capital_letter_and_one_full_stop() {
        assert_eq!(sentence("it is so"), "It is so.");
        assert_eq!(sentence("`Order` is paused."), "`Order` is paused.");
        assert_eq!(sentence(""), ".");
    }
}
