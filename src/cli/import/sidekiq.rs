//! Sidekiq: the sorted sets `schedule` and `retry` have the jobs as JSON, with their due time in seconds with a fraction.

use std::sync::Arc;

use lapsed::task::parser_message;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::job::{Found, Job, contents, due_of_seconds, runs};
use super::sets::{Page, Sets};
use super::sorted_set_jobs::SortedSetJobs;
use super::store::{Entry, Field, Store};

/// The members that matter of a job.
#[derive(Deserialize)]
struct Item<'a> {
    class: String,
    /// The class of an Active Job, whose `class` is that of an adapter.
    wrapped: Option<String>,
    jid: String,
    queue: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    retry: Option<Retry>,
    /// 0 after the first failure.
    retry_count: Option<u64>,
    /// Its batch.
    bid: Option<String>,
    /// Whether its last argument is encrypted.
    encrypt: Option<Value>,
    /// How long it is the only one of its kind.
    unique_for: Option<Value>,
    /// For how long it is retried.
    retry_for: Option<Value>,
}

/// Whether, or how often, a job is retried.
#[derive(Deserialize)]
#[serde(untagged)]
enum Retry {
    Flag(bool),
    Times(u64),
    /// What other versions may write.
    Other(serde::de::IgnoredAny),
}

/// Reads the scheduled and retried jobs, of all queues or of one.
pub fn open(store: Store, namespace: Option<&str>, queue: Option<String>) -> SortedSetJobs {
    let set = |name: &str| {
        let name = match namespace {
            Some(namespace) => format!("{namespace}:{name}"),
            None => name.to_owned(),
        };
        (Arc::from(name), Arc::from(""))
    };
    let sets = Sets::new(vec![set("schedule"), set("retry")]);
    SortedSetJobs {
        queue,
        ..SortedSetJobs::of_members(store, sets, job)
    }
}

pub(super) fn job(entry: &Entry, _: &[Field], page: &Page) -> Result<Found, String> {
    let text = std::str::from_utf8(&entry.member).map_err(|_| "it is not UTF-8")?;
    let item: Item = serde_json::from_str(text).map_err(|error| {
        format!(
            "it is no job of Sidekiq: {}",
            parser_message(&error.to_string())
        )
    })?;
    if let Some(batch) = item.bid {
        let batch = super::job::shown(batch.as_bytes());
        return Err(format!(
            "it belongs to the batch `{batch}`, whose callbacks would never run"
        ));
    }
    if is_on(item.encrypt.as_ref()) {
        return Err("its last argument is encrypted".to_owned());
    }
    let class = item.wrapped.unwrap_or(item.class);
    let most = match item.retry {
        Some(Retry::Times(retries)) => Some(runs(retries.saturating_add(1))),
        Some(Retry::Flag(false)) => Some(1),
        // The number is in the configuration of Sidekiq's processes.
        Some(Retry::Flag(true) | Retry::Other(_)) | None => None,
    };
    Ok(Job {
        queue: Arc::from(item.queue.as_deref().unwrap_or("default")),
        name: class.clone(),
        class,
        attempts: item
            .retry_count
            .map_or(0, |count| runs(count.saturating_add(1))),
        contents: contents(item.args.map(|args| args.get().to_owned()), most),
        missing: match (
            is_on(item.unique_for.as_ref()),
            is_on(item.retry_for.as_ref()),
        ) {
            (true, _) => Some("have `unique_for`: their locks in Sidekiq stay until they expire"),
            (_, true) => Some("have `retry_for`: the retry policy of their routes takes its place"),
            _ => None,
        },
        ..Job::new(
            item.jid,
            due_of_seconds(entry.at())?,
            entry.place(&page.set),
        )
    }
    .into())
}

/// Whether an option is there, and neither `null` nor `false`.
fn is_on(option: Option<&Value>) -> bool {
    option.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
}
