//! What a task carries.

use super::tag::tag_problem;
use super::{Envelope, PAYLOAD_BYTES_MAX, RESERVED_MEMBER, has_reserved_member};

/// What a task carries beside its key and its schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Its payload, JSON, at most [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX) bytes. In the ledger, in its
    /// [`Envelope`].
    pub payload: Option<String>,
    /// Its tag, to find and cancel tasks by.
    pub tag: Option<String>,
    /// Maximum number of runs, the first one included. Overrides that of the route.
    pub max_attempts: Option<u16>,
}

impl Contents {
    /// Returns what no ledger takes, each with the name of its property. A payload need not be JSON if `is_text`.
    pub fn problems(&self, is_text: bool) -> Vec<(&'static str, String)> {
        let Self {
            payload,
            tag,
            max_attempts,
        } = self;
        let payload = payload.as_deref();
        let payload = payload.and_then(|payload| payload_problem(payload, is_text));
        let tag = tag.as_deref().and_then(tag_problem);
        let none = *max_attempts == Some(0);
        let runs = none.then(|| "max_attempts is 0, expected at least 1".to_owned());
        let problems = [("payload", payload), ("tag", tag), ("max_attempts", runs)];
        let found = |(name, problem): (_, Option<String>)| Some((name, problem?));
        problems.into_iter().filter_map(found).collect()
    }

    /// True if payload, tag, limit and condition are equal. Trace and signature do not count: each request has its own.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let Self {
            payload,
            tag,
            max_attempts,
        } = self;
        let given = |payload: &Option<String>| {
            let Envelope { payload, after, .. } = Envelope::open(payload.clone());
            (payload, after)
        };
        (tag, max_attempts) == (&other.tag, &other.max_attempts)
            && (*payload == other.payload || given(payload) == given(&other.payload))
    }

    /// Tag and limit, without the payload.
    #[must_use]
    pub fn without_payload(&self) -> Self {
        Self {
            payload: None,
            tag: self.tag.clone(),
            max_attempts: self.max_attempts,
        }
    }
}

fn payload_problem(payload: &str, is_text: bool) -> Option<String> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Some(format!(
            "payload has {} bytes, expected at most {PAYLOAD_BYTES_MAX}",
            payload.len()
        ));
    }
    if !is_text && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(payload) {
        return Some(format!("payload is not JSON: {error}"));
    }
    has_reserved_member(payload).then(|| {
        format!(
            "payload has a top-level member `{RESERVED_MEMBER}`, which is reserved: expected another name"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_payload_a_task_keeps_tag_and_limit() {
        let contents = Contents {
            payload: Some("1".into()),
            tag: Some("eu".into()),
            max_attempts: Some(7),
        };
        let expected = Contents {
            payload: None,
            ..contents.clone()
        };
        assert_eq!(contents.without_payload(), expected);
    }
}
