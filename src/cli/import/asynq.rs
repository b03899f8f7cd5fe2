//! asynq: the sorted sets `asynq:{<queue>}:scheduled` and `..:retry` have the ids of tasks, with their due time in seconds.
//! The hash `asynq:{<queue>}:t:<id>` has the task in its field `msg`. Since asynq 0.18.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::job::{Found, Job, due_of_seconds, runs};
use super::protobuf::TaskMessage;
use super::sets::{Page, Sets, groups};
use super::source::Source;
use super::store::{Entry, Field, Store, Taker};

/// As asynq's `deleteTaskCmd` does.
const TAKE_ALSO: &str = r"
    local unique = redis.call('HGET', job, 'unique_key')
    if unique and unique ~= '' and redis.call('GET', unique) == member then redis.call('DEL', unique) end
    redis.call('DEL', job)";

pub struct Asynq {
    store: Store,
    sets: Sets,
    taker: Taker,
}

impl Asynq {
    pub async fn open(store: Store, queue: Option<&str>) -> anyhow::Result<Self> {
        let mut queues = match queue {
            Some(queue) => vec![queue.to_owned()],
            None => redis::cmd("SMEMBERS")
                .arg("asynq:queues")
                .query_async(&mut store.connection())
                .await
                .context("read the names of queues in `asynq:queues`")?,
        };
        queues.sort();
        let sets = queues.iter().flat_map(|queue| {
            let set = |kind| {
                let name = format!("asynq:{{{queue}}}:{kind}");
                (Arc::from(name), Arc::from(&queue[..]))
            };
            [set("scheduled"), set("retry")]
        });
        Ok(Self {
            sets: Sets::new(sets.collect()),
            store,
            taker: Taker::new("msg", TAKE_ALSO),
        })
    }
}

fn job_prefix(queue: &str) -> String {
    format!("asynq:{{{queue}}}:t:")
}

#[async_trait]
impl Source for Asynq {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        self.sets.count(&self.store).await.map(Some)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(page) = self.sets.page(&self.store).await? else {
            return Ok(None);
        };
        let prefix = job_prefix(&page.queue);
        let key = |entry: &Entry| [prefix.as_bytes(), &entry.member].concat();
        let keys: Vec<Vec<u8>> = page.entries.iter().map(key).collect();
        let hashes = self.store.hashes(&keys, &["msg"]).await?;
        let entries = page.entries.iter().zip(&hashes);
        let found = entries.map(|(entry, fields)| {
            job(entry, fields, &page).unwrap_or_else(|why| Found::refused(&entry.member, why))
        });
        Ok(Some(found.collect()))
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<u64> {
        let mut taken = 0;
        for (set, jobs) in groups(jobs) {
            let prefix = job_prefix(&jobs[0].queue);
            let places: Vec<_> = jobs.iter().map(|job| &job.place).collect();
            let removed = self.store.take(set, &prefix, &places, &self.taker).await?;
            taken += removed.iter().filter(|removed| **removed).count() as u64;
        }
        Ok(taken)
    }
}

fn job(entry: &Entry, fields: &[Field], page: &Page) -> Result<Found, String> {
    if let Some(length) = entry.oversize() {
        return Err(format!("its id has {length} bytes"));
    }
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
        payload: payload(message.payload),
        attempts: runs(message.retried),
        max_attempts: Some(runs(message.retry.saturating_add(1))),
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
