//! Seed 001: a sorted set whose members are what is due, with their due time in seconds or milliseconds.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lapsed::config::written;
use lapsed::task::{KeyName, TaskKey};

use super::job::{Found, Job, due_by_size, is_own};
use super::sets::{Page, Sets};
use super::source::{Source, Taken};
use super::store::{Entry, Store, Taker};

pub struct Seed001 {
    store: Store,
    sets: Sets,
    taker: Taker,
}

impl Seed001 {
    pub fn open(store: Store, set: &str) -> Self {
        Self {
            store,
            sets: Sets::new(vec![(Arc::from(set), Arc::from(set))]),
            taker: Taker::new("", ""),
        }
    }
}

#[async_trait]
impl Source for Seed001 {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        self.sets.count(&self.store).await.map(Some)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(page) = self.sets.page(&self.store).await? else {
            return Ok(None);
        };
        let found = page.entries.iter().map(|entry| {
            job(entry, &page).unwrap_or_else(|why| Found::refused(&entry.member, why))
        });
        Ok(Some(found.collect()))
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let mut taken = Taken::default();
        let Some(first) = jobs.first() else {
            return Ok(taken);
        };
        let places: Vec<_> = jobs.iter().map(|job| &job.place).collect();
        let removed = self
            .store
            .take(&first.place.container, "", &places, &self.taker);
        taken.add(0, &removed.await?);
        Ok(taken)
    }
}

fn job(entry: &Entry, page: &Page) -> Result<Found, String> {
    if let Some(length) = entry.oversize() {
        return Err(format!("the member has {length} bytes"));
    }
    if is_own(entry.at()) {
        return Ok(Found::Settled);
    }
    Ok(Job {
        key: key(&entry.member),
        queue: Arc::clone(&page.queue),
        name: String::from_utf8_lossy(&entry.member).into_owned(),
        payload: payload(&entry.member),
        payload_has_id: entry.member.len() > PLAIN_BYTES_MAX,
        ..Job::new(
            entry.member.clone(),
            due_by_size(entry.at())?,
            entry.place(&page.set),
        )
    }
    .into())
}

/// A member that is a task key stands for itself, as for the timer of sorted sets.
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
