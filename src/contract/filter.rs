//! Filters of tasks: in the query of a list, in the body of a bulk action, as options of the command line.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::invalid;
use crate::client::ClientError;
use crate::ledger::{ListFilter, StateFilter};
use crate::task::{Due, Reason, State, UnixMs, parse_length, quoted};

/// Selects tasks. A task must match every member that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema, utoipa::IntoParams),
    into_params(parameter_in = Query)
)]
#[serde(deny_unknown_fields)]
pub struct TaskFilter {
    /// States, separated by commas: `pending` (includes `waiting`), `waiting`, `running`, `done`, `dead`, `cancelled`,
    /// `overdue`.
    pub state: Option<String>,
    /// The class, exactly.
    pub class: Option<String>,
    /// The method, exactly.
    pub method: Option<String>,
    /// The tag, exactly.
    pub tag: Option<String>,
    /// The beginning of the key.
    pub prefix: Option<String>,
    /// Only recurring tasks.
    #[serde(default, deserialize_with = "truth")]
    pub recurring: bool,
    /// May start at this time or later, RFC 3339; for a retry, the time of the retry.
    pub due_after: Option<String>,
    /// May start before this time, RFC 3339.
    pub due_before: Option<String>,
    /// Dead for this reason: `permanent`, `exhausted`, `deadline`, `poison` or `expired`.
    pub reason: Option<String>,
    /// The latest error contains this text, ignoring case.
    pub error: Option<String>,
    /// The latest error is of this kind: its first line is equal, with `#` for each number. The page of dead tasks shows the
    /// kinds.
    pub error_kind: Option<String>,
    /// Finished longer ago than this: `2h`, `7d`.
    pub older_than: Option<String>,
    /// Finished within this time: `2h`, `7d`.
    pub newer_than: Option<String>,
}

impl TaskFilter {
    /// The filter for the ledger, without limit and cursor. Ages count back from `now`.
    ///
    /// # Errors
    /// The first member that does not fit. An empty text is refused: it would match everything.
    pub fn resolve(&self, now: UnixMs) -> Result<ListFilter, ClientError> {
        let Self {
            state,
            class,
            method,
            tag,
            prefix,
            recurring,
            due_after,
            due_before,
            reason,
            error,
            error_kind,
            older_than,
            newer_than,
        } = self;
        let ago = |name: &str, text: &Option<String>| {
            let age = text.as_deref().map(parse_length).transpose();
            let age = age.map_err(|error| invalid(format!("`{name}`: {error}")))?;
            Ok::<_, ClientError>(age.map(|age| now.minus(age)))
        };
        let reason = reason.as_deref().map(str::parse::<Reason>).transpose();
        Ok(ListFilter {
            states: states(state.as_deref())?,
            class: some_text("class", class)?,
            method: some_text("method", method)?,
            tag: some_text("tag", tag)?,
            prefix: some_text("prefix", prefix)?,
            recurring: *recurring,
            due_after: moment("due_after", due_after)?,
            due_before: moment("due_before", due_before)?,
            reason: reason.map_err(|error| invalid(format!("`reason`: {error}")))?,
            error: some_text("error", error)?,
            error_kind: error_kind.clone(),
            finished_before: ago("older_than", older_than)?,
            finished_after: ago("newer_than", newer_than)?,
            ..ListFilter::default()
        })
    }

    /// The members that are texts, by name.
    pub fn texts(&self) -> [(&'static str, &Option<String>); 12] {
        let Self {
            state,
            class,
            method,
            tag,
            prefix,
            recurring: _,
            due_after,
            due_before,
            reason,
            error,
            error_kind,
            older_than,
            newer_than,
        } = self;
        [
            ("state", state),
            ("class", class),
            ("method", method),
            ("tag", tag),
            ("prefix", prefix),
            ("due_after", due_after),
            ("due_before", due_before),
            ("reason", reason),
            ("error", error),
            ("error_kind", error_kind),
            ("older_than", older_than),
            ("newer_than", newer_than),
        ]
    }

    /// The filter in words, for the audit log: `class Order, tag shop-7`; `all tasks`.
    pub fn words(&self) -> String {
        let given = self.texts().into_iter().filter_map(|(name, text)| {
            let text = text.as_deref()?;
            Some(format!("{} {text}", name.replace('_', " ")))
        });
        let recurring = self.recurring.then(|| "recurring".to_owned());
        let words: Vec<String> = given.chain(recurring).collect();
        match words.is_empty() {
            true => "all tasks".to_owned(),
            false => words.join(", "),
        }
    }

    /// The class that every task has that matches, if the filter says so.
    pub fn class_of_all(&self) -> Option<&str> {
        let of_prefix = self
            .prefix
            .as_deref()
            .and_then(|prefix| prefix.split_once('@'));
        self.class.as_deref().or(of_prefix.map(|(class, _)| class))
    }
}

fn some_text(name: &str, text: &Option<String>) -> Result<Option<String>, ClientError> {
    match text.as_deref() {
        Some("") => Err(invalid(format!(
            "`{name}` is empty, which matches everything: expected some text, or leave it out"
        ))),
        _ => Ok(text.clone()),
    }
}

fn moment(name: &str, text: &Option<String>) -> Result<Option<UnixMs>, ClientError> {
    let due = text.as_deref().map(Due::parse_moment).transpose();
    let due = due.map_err(|error| invalid(format!("`{name}`: {error}")))?;
    Ok(due.map(|due| due.resolve(UnixMs(0))))
}

fn states(text: Option<&str>) -> Result<Vec<StateFilter>, ClientError> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let mut states = Vec::new();
    // Each once, however often it is named.
    let mut add = |state| {
        if !states.contains(&state) {
            states.push(state);
        }
    };
    for name in text.split(',').map(str::trim) {
        match name {
            "pending" => [State::Pending, State::Waiting]
                .into_iter()
                .for_each(|state| add(StateFilter::Is(state))),
            "overdue" => add(StateFilter::Overdue),
            _ => {
                let found = State::ALL.into_iter().find(|state| state.as_str() == name);
                let state = found.ok_or_else(|| {
                    invalid(format!(
                        "`state`: `{}` is not a state, expected `pending`, `waiting`, `running`, `done`, `dead`, `cancelled` or `overdue`",
                        quoted(name)
                    ))
                })?;
                add(StateFilter::Is(state));
            }
        }
    }
    Ok(states)
}

/// `true` and `false`, also as texts: a query has no others.
fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Truth {
        Json(bool),
        Text(String),
    }
    match Truth::deserialize(deserializer)? {
        Truth::Json(truth) => Ok(truth),
        Truth::Text(text) => text
            .parse()
            .map_err(|_| D::Error::custom("expected `true` or `false`")),
    }
}
