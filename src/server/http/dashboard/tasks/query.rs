//! The filters of a list, as they are in the query of its address.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use crate::http::dashboard::frame::encoded;
use crate::http::problem::Problem;
use lapsed::contract::TaskFilter;
use lapsed::ledger::ListFilter;
use lapsed::task::{UnixMs, quoted};

/// Tasks of a page.
pub const LIMIT: u32 = 50;

/// The states of the filter, in the order of a life.
pub const STATES: [&str; 7] = [
    "overdue",
    "pending",
    "waiting",
    "running",
    "done",
    "dead",
    "cancelled",
];

/// The states of tasks that have not ended.
pub const UNFINISHED: [&str; 4] = ["overdue", "pending", "waiting", "running"];

/// The filters of a list, as people type them. An empty text restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// Names of states.
    pub states: Vec<String>,
    /// The beginning of the key.
    pub prefix: String,
    /// The class.
    pub class: String,
    /// The method.
    pub method: String,
    /// The tag.
    pub tag: String,
    /// A part of the latest error.
    pub error: String,
    /// The kind of the latest error, of which all tasks are that a group of dead tasks has.
    pub error_kind: String,
    /// Why it is dead.
    pub reason: String,
    /// May start at this time or later: RFC 3339, or a time in the zone of the browser.
    pub due_after: String,
    /// May start before this time.
    pub due_before: String,
    /// Only recurring tasks.
    pub recurring: bool,
    /// Tasks of the archive instead.
    pub archived: bool,
    /// Place in the list.
    pub cursor: String,
}

impl TaskQuery {
    /// The same in the archive, from its first page on.
    pub fn in_archive(&self) -> Self {
        Self {
            archived: true,
            ..self.with_states(&[])
        }
    }

    /// The same with these states in the ledger, from its first page on.
    pub fn with_states(&self, states: &[&str]) -> Self {
        Self {
            archived: false,
            states: states.iter().map(|state| (*state).to_owned()).collect(),
            cursor: String::new(),
            ..self.clone()
        }
    }

    /// Reads the parameters of an address. Ignores unknown ones.
    pub fn of(parameters: Vec<(String, String)>) -> Self {
        let mut query = Self::default();
        for (name, value) in parameters {
            let value = value.trim_start().to_owned();
            match name.as_str() {
                "state" => {
                    let states = value.split(',').filter(|state| !state.is_empty());
                    query.states.extend(states.map(str::to_owned));
                }
                "prefix" => query.prefix = value,
                "class" => query.class = value,
                "method" => query.method = value,
                "tag" => query.tag = value,
                "error" => query.error = value,
                "error_kind" => query.error_kind = value,
                "reason" => query.reason = value,
                "due_after" => query.due_after = value,
                "due_before" => query.due_before = value,
                "recurring" => query.recurring = !value.is_empty(),
                "archived" => query.archived = !value.is_empty(),
                "cursor" => query.cursor = value,
                _ => {}
            }
        }
        query
    }

    fn texts(&self) -> [(&'static str, &str); 9] {
        [
            ("prefix", &self.prefix),
            ("class", &self.class),
            ("method", &self.method),
            ("tag", &self.tag),
            ("error", &self.error),
            ("error_kind", &self.error_kind),
            ("reason", &self.reason),
            ("due_after", &self.due_after),
            ("due_before", &self.due_before),
        ]
    }

    /// True if a filter is set.
    pub fn is_filtered(&self) -> bool {
        let has_states = self.archived || !self.states.is_empty();
        has_states || self.recurring || self.has_more() || !self.prefix.is_empty()
    }

    /// True if a filter besides the states is set.
    pub fn has_others(&self) -> bool {
        self.recurring || self.texts().iter().any(|(_, text)| !text.is_empty())
    }

    /// The command that lists the same tasks; `None` if there is none.
    pub fn command(&self, zone: &TimeZone) -> Option<String> {
        let filter = self.api(zone).ok()?;
        let mut command = "lapsed list".to_owned();
        for (name, text) in filter.texts() {
            let Some(text) = text else { continue };
            if name == "error_kind" {
                return None;
            }
            let text = text.replace('\'', "'\\''");
            command += &format!(" --{} '{text}'", name.replace('_', "-"));
        }
        if filter.recurring {
            command += " --recurring";
        }
        if self.archived {
            command += " --archived";
        }
        Some(command)
    }

    /// True if a filter is set that is not always shown.
    pub fn has_more(&self) -> bool {
        let texts = self.texts();
        self.recurring || texts[1..].iter().any(|(_, text)| !text.is_empty())
    }

    /// True if the state is one of the filter.
    pub fn has_state(&self, state: &str) -> bool {
        self.states.iter().any(|it| it == state)
    }

    /// The query of the address of this list, at this place.
    pub fn address(&self, cursor: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        if !self.states.is_empty() {
            parts.push(format!("state={}", encoded(&self.states.join(","))));
        }
        let texts = self.texts().into_iter().chain([("cursor", cursor)]);
        for (name, text) in texts.filter(|(_, text)| !text.is_empty()) {
            parts.push(format!("{name}={}", encoded(text)));
        }
        if self.recurring {
            parts.push("recurring=true".to_owned());
        }
        if self.archived {
            parts.push("archived=true".to_owned());
        }
        parts.join("&")
    }

    /// The filter as the API takes it. Times without an offset are in this zone.
    ///
    /// # Errors
    /// A time does not fit.
    fn api(&self, zone: &TimeZone) -> Result<TaskFilter, Problem> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let moment = |name: &str, text: &str| match text {
            "" => Ok(None),
            text => match moment(text, zone) {
                Some(at) => Ok(Some(at.to_string())),
                None => Err(Problem::invalid(format!(
                    "`{name}` is `{}`, expected a time such as `2026-11-21T20:00`",
                    quoted(text)
                ))),
            },
        };
        Ok(TaskFilter {
            state: text(&self.states.join(",")),
            class: text(&self.class),
            method: text(&self.method),
            tag: text(&self.tag),
            prefix: text(&self.prefix),
            recurring: self.recurring,
            due_after: moment("due_after", &self.due_after)?,
            due_before: moment("due_before", &self.due_before)?,
            reason: text(&self.reason),
            error: text(&self.error),
            error_kind: text(&self.error_kind),
            ..TaskFilter::default()
        })
    }

    /// The filter of the ledger without the cursor, the same as that of the API. Ages count back from `now`.
    ///
    /// # Errors
    /// The first filter that does not fit.
    pub fn filter(&self, now: UnixMs, zone: &TimeZone) -> Result<ListFilter, Problem> {
        Ok(ListFilter {
            limit: LIMIT,
            newest: true,
            archived: self.archived,
            ..self.api(zone)?.resolve(now)?
        })
    }

    /// True if all tasks that match can be cancelled: none of the states is that of a finished task.
    pub fn may_cancel(&self) -> bool {
        const FINISHED: [&str; 3] = ["done", "dead", "cancelled"];
        let is_finished = |state: &String| FINISHED.contains(&state.as_str());
        self.reason.is_empty() && !self.archived && !self.states.iter().any(is_finished)
    }

    /// True if all tasks that match can be redriven and discarded: they are dead.
    pub fn may_redrive(&self) -> bool {
        self.states == ["dead"] && !self.archived
    }

    /// The body of a change of all tasks that match, JSON; `{}` if a filter does not fit.
    pub fn body(&self, zone: &TimeZone) -> String {
        let mut body = Map::new();
        if let Ok(filter) = self.api(zone) {
            for (name, text) in filter.texts() {
                if let Some(text) = text {
                    body.insert(name.to_owned(), text.as_str().into());
                }
            }
            if filter.recurring {
                body.insert("recurring".to_owned(), Value::Bool(true));
            }
            if body.len() == 1 && body.contains_key("state") {
                // Without another filter, the API asks for this word.
                body.insert("all".to_owned(), Value::Bool(true));
            }
        }
        Value::Object(body).to_string()
    }
}

/// Parses RFC 3339, or a time on the clock of a zone, as browsers send it.
fn moment(text: &str, zone: &TimeZone) -> Option<UnixMs> {
    let at = match text.parse::<jiff::Timestamp>() {
        Ok(at) => at,
        Err(_) => {
            let clock: DateTime = text.parse().ok()?;
            zone.to_timestamp(clock).ok()?
        }
    };
    Some(UnixMs(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> TaskQuery {
        let pairs = url::form_urlencoded::parse(text.as_bytes());
        TaskQuery::of(pairs.into_owned().collect())
    }

    #[test]
    fn an_address_and_its_query_are_the_same() {
        let text =
            "state=pending%2Cdead&prefix=Order%40a%26b&tag=%E5%BA%97&recurring=true&archived=true";
        let read = query(text);
        assert_eq!(read.states, ["pending", "dead"]);
        assert_eq!(
            (read.prefix.as_str(), read.tag.as_str()),
            ("Order@a&b", "店")
        );
        assert_eq!(query(&read.address("")), read);
        assert_eq!(query(&read.address("due.0.0.1.2")).cursor, "due.0.0.1.2");
        assert_eq!(query("state=pending&state=dead&class=").states, read.states);
    }

    #[test]
    fn a_time_without_an_offset_is_in_the_zone_of_the_browser() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        for text in ["2026-11-21T21:00", "2026-11-21T20:00:00Z"] {
            let query = query(&format!("due_after={text}"));
            let filter = query.filter(UnixMs(0), &berlin).unwrap();
            assert_eq!(filter.due_after, Some(UnixMs(1_795_291_200_000)), "{text}");
        }
    }

    #[test]
    fn a_list_has_a_command() {
        let command = |text: &str| query(text).command(&TimeZone::UTC);
        assert_eq!(
            command("state=dead&error=it's&due_after=2026-11-21T20:00").unwrap(),
            "lapsed list --state 'dead' --due-after '2026-11-21T20:00:00.000Z' --error 'it'\\''s'"
        );
        assert_eq!(
            command("recurring=true&archived=true").unwrap(),
            "lapsed list --recurring --archived"
        );
        assert_eq!(command("error_kind=x"), None);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let refused = |text: &str| {
            let problem = query(text).filter(UnixMs(0), &TimeZone::UTC).unwrap_err();
            problem.detail().to_owned()
        };
        assert!(refused("state=bad").contains("`bad` is not a state"));
        assert!(refused("due_before=noon").starts_with("`due_before` is `noon`"));
        assert!(refused("reason=bad").contains("is not a reason"));
    }

    #[test]
    fn all_that_match_are_changed_as_their_states_allow() {
        for (text, cancel, redrive) in [
            ("tag=a", true, false),
            ("tag=a&state=pending,overdue", true, false),
            ("state=dead&error=x", false, true),
            ("state=dead,done", false, false),
            ("state=running,done", false, false),
            ("reason=poison", false, false),
            ("archived=true&tag=a", false, false),
            ("archived=true&state=dead", false, false),
        ] {
            let query = query(text);
            assert_eq!(
                (query.may_cancel(), query.may_redrive()),
                (cancel, redrive),
                "{text}"
            );
        }
    }

    #[test]
    fn the_api_gets_the_filters_that_the_list_has() {
        let body = |text| query(text).body(&TimeZone::UTC);
        assert_eq!(
            body("state=dead&error=x&due_after=2026-11-21T20:00"),
            r#"{"due_after":"2026-11-21T20:00:00.000Z","error":"x","state":"dead"}"#
        );
        assert_eq!(body("state=dead"), r#"{"all":true,"state":"dead"}"#);
        assert_eq!(body("recurring=1"), r#"{"recurring":true}"#);
        assert_eq!(body("due_after=noon"), "{}");
    }
}
