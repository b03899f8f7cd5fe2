//! Seed 001: a sorted set whose members are what is due, with their due time in seconds or milliseconds.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lapsed::config::written;
use lapsed::task::{KeyName, TaskKey};

use super::job::{Found, Job, contents, due_by_size, is_own};
use super::sets::{Page, Sets};
use super::sorted_set_jobs::SortedSetJobs;
use super::store::{Entry, Field, Store};

/// Reads the members of a set.
pub fn open(store: Store, set: &str) -> SortedSetJobs {
    let sets = Sets::new(vec![(Arc::from(set), Arc::from(set))]);
    SortedSetJobs::of_members(store, sets, job)
}

pub(super) fn job(entry: &Entry, _: &[Field], page: &Page) -> Result<Found, String> {
    if is_own(entry.at()) {
        return Ok(Found::Settled);
    }
    Ok(Job {
        key: key(&entry.member),
        queue: Arc::clone(&page.queue),
        name: String::from_utf8_lossy(&entry.member).into_owned(),
        contents: contents(payload(&entry.member), None),
        payload_has_id: entry.member.len() > PLAIN_BYTES_MAX,
        ..Job::new(
            entry.member.clone(),
            due_by_size(entry.at())?,
            entry.place(&page.set),
        )
    }
    .into())
}

/// A member that is a task key is its own key, as for the timer of sorted sets.
fn key(member: &[u8]) -> Option<TaskKey> {
    match KeyName::parse(member) {
        KeyName::Task(key) => Some(key),
        KeyName::Sentinel(_) | KeyName::Foreign(_) => None,
    }
}

/// A longer member is in the payload in any case: the key may have no room for it.
const PLAIN_BYTES_MAX: usize = 150;

/// The member itself, if it is a JSON object or array; as text, if the key may not hold it as it is. A long one that is not
/// UTF-8 is `{"base64": ".."}`, as for the timer.
fn payload(member: &[u8]) -> Option<String> {
    let is_long = member.len() > PLAIN_BYTES_MAX;
    let Ok(text) = std::str::from_utf8(member) else {
        return is_long
            .then(|| serde_json::json!({ "base64": BASE64_STANDARD.encode(member) }).to_string());
    };
    let is_json =
        text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    match is_json {
        true => Some(text.to_owned()),
        false => {
            (is_long || written(member) != text).then(|| serde_json::Value::from(text).to_string())
        }
    }
}
