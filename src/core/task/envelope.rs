//! The envelope of a payload: the condition and the trace of its task, and the signature of its producer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{After, Traceparent};

/// The first member of an envelope. Payloads of users must not contain it.
pub const RESERVED_MEMBER: &str = "$lapsed";

/// A payload with the condition of its task, its trace and its signature.
///
/// In the ledger's payload column it is `{"$lapsed":{"after":{"tag":".."},"traceparent":"..","signature":".."},"payload":<the
/// user's JSON>}`, where each part may be absent. A payload without any of them is stored unchanged.
///
/// ```
/// use lapsed::task::Envelope;
///
/// let plain = Envelope { payload: Some("[1]".to_owned()), ..Envelope::default() };
/// assert_eq!(plain.clone().seal().as_deref(), Some("[1]"));
///
/// let traced = Envelope {
///     traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().ok(),
///     ..plain
/// };
/// let stored = traced.clone().seal();
/// assert_eq!(
///     stored.as_deref(),
///     Some(r#"{"$lapsed":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"payload":[1]}"#)
/// );
/// assert_eq!(Envelope::open(stored), traced);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The user's JSON.
    pub payload: Option<String>,
    /// What has to end before the task starts.
    pub after: Option<After>,
    /// The span that created the task.
    pub traceparent: Option<Traceparent>,
    /// The result of [`sign`](super::sign).
    pub signature: Option<String>,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(rename = "$lapsed", borrow)]
    travels: Travels<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
}

/// Later versions may add members.
#[derive(Deserialize)]
struct Travels<'a> {
    after: Option<After>,
    #[serde(borrow)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
}

/// Keeps `null`, which is a payload, too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Envelope {
    /// Parses the payload column. Text that looks like an envelope and is none is a payload.
    ///
    /// A payload without an envelope may carry a trace in a text member `"traceparent"` at its top level.
    pub fn open(stored: Option<String>) -> Self {
        let Some(stored) = stored else {
            return Self::default();
        };
        match parse(&stored) {
            Some(Outer { travels, payload }) => Self {
                payload: payload.map(|payload| payload.get().to_owned()),
                after: travels.after,
                traceparent: trace(travels.traceparent, payload.map(RawValue::get)),
                signature: travels.signature.map(Cow::into_owned),
            },
            None => Self {
                traceparent: named_trace(&stored),
                payload: Some(stored),
                after: None,
                signature: None,
            },
        }
    }

    /// Returns the span that created the task, as [`open`](Self::open) finds it. Copies no payload.
    pub fn creator(stored: &str) -> Option<Traceparent> {
        match parse(stored) {
            Some(Outer { travels, payload }) => {
                trace(travels.traceparent, payload.map(RawValue::get))
            }
            None => named_trace(stored),
        }
    }

    /// Returns what has to end before the task starts, as [`open`](Self::open) finds it. Copies no payload.
    pub fn condition(stored: &str) -> Option<After> {
        parse(stored)?.travels.after
    }

    /// Returns the text for the payload column. The payload must be JSON.
    pub fn seal(self) -> Option<String> {
        let Self {
            payload,
            after,
            traceparent,
            signature,
        } = self;
        if after.is_none() && traceparent.is_none() && signature.is_none() {
            return payload;
        }
        // The first, because statements recognize it by the beginning of the column.
        let after = after.map(|after| {
            let after = serde_json::to_string(&after).expect("text is JSON");
            format!(r#""after":{after}"#)
        });
        let traceparent = traceparent.map(|trace| format!(r#""traceparent":"{trace}""#));
        let signature = signature
            .map(|signature| format!(r#""signature":{}"#, serde_json::Value::from(signature)));
        let travels = [after, traceparent, signature].into_iter().flatten();
        let travels: Vec<String> = travels.collect();
        let payload = payload.map(|payload| format!(r#","payload":{payload}"#));
        Some(format!(
            r#"{{"{RESERVED_MEMBER}":{{{}}}{}}}"#,
            travels.join(","),
            payload.unwrap_or_default()
        ))
    }
}

/// Returns the envelope. Most payloads are none, which the first characters show.
fn parse(stored: &str) -> Option<Outer<'_>> {
    let inside = stored.trim_start().strip_prefix('{')?.trim_start();
    let looks_like_one = inside
        .strip_prefix('"')
        .and_then(|rest| rest.strip_prefix(RESERVED_MEMBER))
        .is_some_and(|rest| rest.starts_with('"'));
    looks_like_one.then(|| serde_json::from_str(stored).ok())?
}

fn trace(sealed: Option<Cow<'_, str>>, payload: Option<&str>) -> Option<Traceparent> {
    let sealed = sealed.and_then(|text| text.parse().ok());
    sealed.or_else(|| payload.and_then(named_trace))
}

fn named_trace(payload: &str) -> Option<Traceparent> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        traceparent: Cow<'a, str>,
    }
    if !payload.trim_start().starts_with('{') || !payload.contains(r#""traceparent""#) {
        return None;
    }
    let named: Named<'_> = serde_json::from_str(payload).ok()?;
    named.traceparent.parse().ok()
}

/// True if a user's payload contains the reserved member at any depth.
pub fn has_reserved_member(payload: &str) -> bool {
    // `$` may be written as an escape sequence.
    payload.contains(r#"lapsed""#)
        && serde_json::from_str::<BTreeMap<String, IgnoredAny>>(payload)
            .is_ok_and(|members| members.contains_key(RESERVED_MEMBER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::IfDead;
    use proptest::prelude::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn open(stored: &str) -> Envelope {
        Envelope::open(Some(stored.to_owned()))
    }

    #[test]
    fn text_that_is_not_an_envelope_is_the_payload() {
        for stored in [
            "",
            "null",
            "[1]",
            "not json",
            r#"{"a":1,"$lapsed":{}}"#,
            r#"{"$lapsed":1}"#,
            r#"{"$lapsed":{"signature":7}}"#,
            r#"{"$lapsed":{},"payload":1,"payload":2}"#,
            r#"{"$lapsed":{}"#,
            r#"{"$lapsedd":{}}"#,
            r#"{"$lapsed":{"after":{"tag":7}}}"#,
        ] {
            let opened = open(stored);
            assert_eq!(opened.payload.as_deref(), Some(stored), "{stored}");
            assert_eq!(
                (opened.after, opened.traceparent, opened.signature),
                (None, None, None)
            );
        }
        assert_eq!(Envelope::open(None), Envelope::default());
    }

    #[test]
    fn an_envelope_in_another_format_is_read() {
        let opened = open(&format!(
            " {{ \"$lapsed\" : {{\"later\": 1, \"traceparent\":\"{TRACE}\"}}, \"more\": 2, \"payload\" : {{ \"a\": 1 }} }} "
        ));
        assert_eq!(opened.payload.as_deref(), Some(r#"{ "a": 1 }"#));
        assert_eq!(opened.traceparent.unwrap().to_string(), TRACE);
        assert_eq!(open(r#"{"$lapsed":{}}"#).payload, None);
        assert_eq!(
            open(r#"{"$lapsed":{},"payload":null}"#).payload.as_deref(),
            Some("null")
        );
    }

    #[test]
    fn an_invalid_trace_is_ignored() {
        let opened = open(r#"{"$lapsed":{"traceparent":"00-1"},"payload":1}"#);
        assert_eq!(
            (opened.payload.as_deref(), opened.traceparent),
            (Some("1"), None)
        );
    }

    #[test]
    fn a_plain_payload_may_carry_a_trace() {
        let named = |payload: &str| open(payload).traceparent.map(|trace| trace.to_string());
        assert_eq!(
            named(&format!(r#"{{"order":1,"traceparent":"{TRACE}"}}"#)).as_deref(),
            Some(TRACE)
        );
        assert_eq!(
            named(&format!(r#"{{"in":{{"traceparent":"{TRACE}"}}}}"#)),
            None
        );
        assert_eq!(named(r#"{"traceparent":"x"}"#), None);
        assert_eq!(named(r#"{"traceparent":1}"#), None);
        let sealed =
            format!(r#"{{"$lapsed":{{"signature":"s"}},"payload":{{"traceparent":"{TRACE}"}}}}"#);
        assert_eq!(named(&sealed).as_deref(), Some(TRACE));
    }

    #[test]
    fn the_reserved_member_is_found_at_any_depth() {
        assert!(has_reserved_member(r#"{"$lapsed":1}"#));
        assert!(has_reserved_member(r#"{"a":1,"\u0024lapsed":1}"#));
        let deep = format!(
            r#"{{"$lapsed":{{}},"a":{}1{}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        assert!(has_reserved_member(&deep));
        assert!(!has_reserved_member(r#"{"a":{"$lapsed":1}}"#));
        assert!(!has_reserved_member(r#"["$lapsed"]"#));
        assert!(!has_reserved_member(r#""$lapsed""#));
    }

    proptest! {
        #[test]
        fn a_sealed_envelope_opens_unchanged(
            payload in proptest::option::of("(null|0|[1-9][0-9]{0,2}|\"[a-z ]*\"|\\{\"a\": ?[1-9]\\})"),
            signature in proptest::option::of(".{0,20}"),
            tag in proptest::option::of(".{0,20}"),
            traced in any::<bool>(),
        ) {
            let after = tag.map(|tag| After { tag, if_dead: IfDead::Ignore });
            let traceparent = traced.then(|| TRACE.parse().unwrap());
            let sealed = Envelope { payload, after, signature, traceparent };
            prop_assert_eq!(Envelope::open(sealed.clone().seal()), sealed);
        }
    }

    #[test]
    fn the_condition_is_found_without_the_payload() {
        for (after, if_dead) in [
            (r#"{"tag":"eu"}"#, IfDead::Wait),
            (r#"{"tag":"eu","if_dead":"ignore"}"#, IfDead::Ignore),
        ] {
            let stored = format!(r#"{{"$lapsed":{{"after":{after}}},"payload":1}}"#);
            let tag = "eu".to_owned();
            let expected = Some(After { tag, if_dead });
            assert_eq!(Envelope::condition(&stored), expected);
            assert_eq!(open(&stored).after, expected);
        }
        assert_eq!(Envelope::condition(r#"{"$lapsed":{}}"#), None);
        assert_eq!(Envelope::condition("1"), None);
    }
}
