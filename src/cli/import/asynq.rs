//! asynq: the sorted sets `asynq:{<queue>}:scheduled` and `..:retry` have the ids of tasks, with their due time in seconds.
//! The hash `asynq:{<queue>}:t:<id>` has the task in its field `msg`. Since asynq 0.18.

use std::sync::Arc;

use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::job::{Found, Job, contents, due_of_seconds, runs};
use super::protobuf::TaskMessage;
use super::sets::{Page, Sets};
use super::sorted_set_jobs::{Hashes, SortedSetJobs, unless_paused};
use super::store::{Entry, Field, RemovalScript, Store};

/// As asynq's `deleteTaskCmd` does.
const TAKE_ALSO: &str = r"
    local unique = redis.call('HGET', job, 'unique_key')
    if unique and unique ~= '' and redis.call('GET', unique) == member then redis.call('DEL', unique) end
    redis.call('DEL', job)";

/// Reads the tasks of a queue, or of all queues.
///
/// # Errors
/// The names of the queues cannot be read.
pub async fn open(store: Store, queue: Option<&str>) -> anyhow::Result<SortedSetJobs> {
    let mut queues: Vec<String> = match queue {
        Some(queue) => vec![queue.to_owned()],
        None => redis::cmd("SMEMBERS")
            .arg("asynq:queues")
            .query_async(&mut store.connection())
            .await
            .context("read the names of queues in `asynq:queues`")?,
    };
    queues.sort();
    let paused = async |store: &Store, queue: &str| {
        store
            .any_exists(&[format!("asynq:{{{queue}}}:paused")])
            .await
    };
    let (queues, remarks) = unless_paused(&store, queues, queue.is_some(), paused).await?;
    let sets = queues.iter().flat_map(|queue| {
        let set = |kind| {
            let name = format!("asynq:{{{queue}}}:{kind}");
            (Arc::from(name), Arc::from(&queue[..]))
        };
        [set("scheduled"), set("retry")]
    });
    Ok(SortedSetJobs {
        sets: Sets::new(sets.collect()),
        store,
        removal: RemovalScript::new("msg", TAKE_ALSO),
        hashes: Some(Hashes {
            before: "asynq:{".to_owned(),
            after: "}:t:",
            fields: &["msg"],
        }),
        queue: None,
        remarks,
        job,
    })
}

pub(super) fn job(entry: &Entry, fields: &[Field], page: &Page) -> Result<Found, String> {
    let bytes = match fields {
        [Field::Value(bytes)] => bytes,
        [Field::Oversize(length)] => return Err(format!("its message has {length} bytes")),
        _ => return Err("its hash is missing".to_owned()),
    };
    let message = TaskMessage::decode(bytes)?;
    let mut place = entry.place(&page.set);
    place.content.clone_from(bytes);
    Ok(Job {
        queue: Arc::clone(&page.queue),
        name: message.kind,
        attempts: runs(message.retried),
        contents: contents(
            payload(message.payload),
            Some(runs(message.retry.saturating_add(1))),
        ),
        ..Job::new(entry.member.clone(), due_of_seconds(entry.at())?, place)
    }
    .into())
}

/// JSON as it is, other bytes in base64.
fn payload(bytes: Vec<u8>) -> Option<String> {
    if bytes.is_empty() {
        return None;
    }
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
    match String::from_utf8(bytes) {
        Ok(text) if is_json => Some(text),
        Ok(text) => Some(json!({ "base64": BASE64_STANDARD.encode(text) }).to_string()),
        Err(error) => {
            Some(json!({ "base64": BASE64_STANDARD.encode(error.as_bytes()) }).to_string())
        }
    }
}
