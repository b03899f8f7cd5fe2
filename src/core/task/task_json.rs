//! The JSON of a task for what runs it: handlers, targets and workers of pull queues.

use serde::Serialize;

use super::JsonText;

/// A task as its handler, target or worker gets it. The members are written in this order.
// The comments of the members are their descriptions in `openapi.json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskJson<'a> {
    /// `<row id>-<due ms>`: the same over all attempts, to deduplicate by.
    pub id: String,
    /// `Class@method@argument..`
    #[cfg_attr(feature = "openapi", schema(example = "Mail@send@7"))]
    pub key: &'a str,
    /// The class of the key.
    pub class: &'a str,
    /// The method of the key.
    pub method: &'a str,
    /// The arguments of the key.
    pub args: Vec<&'a str>,
    /// The due time, RFC 3339.
    pub due: String,
    /// Number of this run, from 1.
    pub attempt: u16,
    /// How late it was handed over.
    pub lateness_ms: u64,
    /// The payload, as it was given.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<JsonText<'a>>,
    /// Its tag.
    pub tag: Option<&'a str>,
    /// Maximum number of runs, its own or that of its route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u16>,
    /// True if this run is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<bool>,
    /// The trace of this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The value of a member of [`TaskJson`], for protocols that are not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonMember {
    /// A string.
    Text(String),
    /// A whole number.
    Number(u64),
    /// An array of strings.
    Texts(Vec<String>),
    /// A boolean.
    Flag(bool),
}

impl TaskJson<'_> {
    /// Returns the members in their order; `None` for `null`. The payload is its text, as it was given.
    pub fn members(self) -> Vec<(&'static str, Option<JsonMember>)> {
        use JsonMember::{Flag, Number, Text, Texts};
        let Self {
            id,
            key,
            class,
            method,
            args,
            due,
            attempt,
            lateness_ms,
            payload,
            tag,
            max_attempts,
            last,
            traceparent,
        } = self;
        let text = |text: &str| Some(Text(text.to_owned()));
        let args = args.into_iter().map(str::to_owned).collect();
        let always = [
            ("id", Some(Text(id))),
            ("key", text(key)),
            ("class", text(class)),
            ("method", text(method)),
            ("args", Some(Texts(args))),
            ("due", Some(Text(due))),
            ("attempt", Some(Number(attempt.into()))),
            ("lateness_ms", Some(Number(lateness_ms))),
            ("payload", payload.and_then(|payload| text(payload.0))),
            ("tag", tag.and_then(text)),
        ];
        let if_known = [
            ("max_attempts", max_attempts.map(|runs| Number(runs.into()))),
            ("last", last.map(Flag)),
            ("traceparent", traceparent.map(Text)),
        ];
        let known = if_known.into_iter().filter(|(_, value)| value.is_some());
        always.into_iter().chain(known).collect()
    }
}
