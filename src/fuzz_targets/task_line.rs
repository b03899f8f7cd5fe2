//! Tasks as JSON: a line of a file or of a batch, and the body of a request.

use lapsed::client::ClientError;
use lapsed::contract::{TaskFilter, TaskRequest, TaskSpec};
use lapsed_core::task::{Envelope, PAYLOAD_BYTES_MAX, Traceparent, UnixMs};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::refusal;

const NOW: UnixMs = UnixMs(1_793_750_400_000);

pub fn run(input: &[u8]) {
    match TaskSpec::from_json(input) {
        Ok(spec) => check(spec, input),
        Err(error) => refuse(&error),
    }
    check_filter(input);
    if let Ok(text) = std::str::from_utf8(input) {
        check_envelope(text);
        match text.parse::<Traceparent>() {
            Ok(trace) => assert_eq!(trace.to_string().parse(), Ok(trace)),
            Err(error) => refusal::check(&error, &["expected"]),
        }
    }
}

fn check(spec: TaskSpec, input: &[u8]) {
    // A payload may have numbers that no type of Rust holds.
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        let payload = spec.payload.as_deref().map(serde_json::from_str::<Value>);
        let payload = payload.map(|payload| payload.expect("a payload is JSON"));
        let given = value.get("payload").filter(|payload| !payload.is_null());
        assert_eq!(payload.as_ref(), given, "both readers agree");
        assert_eq!(spec.key.as_deref(), value["key"].as_str());
    }
    // Spaces between members change nothing.
    let spaced = [b" \t\n", input, b"\r\n "].concat();
    assert_eq!(TaskSpec::from_json(&spaced).ok().as_ref(), Some(&spec));
    let key = spec.named_key();
    let is_unique = spec.unique;
    match spec.resolve(NOW) {
        Ok(request) => check_request(&request, key, is_unique),
        Err(error) => refuse(&error),
    }
}

fn check_request(
    request: &TaskRequest,
    key: Result<Option<lapsed_core::task::TaskKey>, ClientError>,
    is_unique: bool,
) {
    let key = key.ok().flatten().expect("a task has a key");
    match is_unique {
        true => assert_eq!(request.key().class_method(), key.class_method()),
        false => assert_eq!(request.key(), &key),
    }
    if let TaskRequest::Recurring(_, recurrence) = request {
        let stored = recurrence.to_string();
        assert_eq!(stored.parse().as_ref(), Ok(recurrence), "{stored}");
    }
}

fn refuse(error: &ClientError) {
    refusal::check(error, &[""]);
    assert!(!error.to_string().is_empty());
}

fn check_filter(input: &[u8]) {
    let Ok(filter) = serde_json::from_slice::<TaskFilter>(input) else {
        return;
    };
    match filter.resolve(NOW) {
        Ok(listed) => {
            let has_text = filter.texts().iter().any(|(_, text)| text.is_some());
            assert!(has_text || listed.is_open() || filter.recurring);
        }
        Err(error) => refuse(&error),
    }
}

/// What is sealed is opened again.
fn check_envelope(text: &str) {
    let opened = Envelope::open(Some(text.to_owned()));
    assert_eq!(Envelope::creator(text), opened.traceparent);
    assert!(
        opened
            .payload
            .as_ref()
            .is_none_or(|payload| payload.len() <= text.len())
    );
    let payload_is_json = opened
        .payload
        .as_deref()
        .is_none_or(|payload| serde_json::from_str::<IgnoredAny>(payload).is_ok());
    if payload_is_json && text.len() <= PAYLOAD_BYTES_MAX {
        let sealed = opened.clone().seal();
        if opened.signature.is_some() || opened.traceparent.is_some() {
            assert_eq!(Envelope::open(sealed), opened);
        }
    }
}
