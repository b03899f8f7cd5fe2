//! BullMQ: the sorted set `<prefix>:<queue>:delayed` has the ids of delayed jobs, and those that wait for a retry. The score
//! is the due time in milliseconds times 4096, plus a counter. The hash `<prefix>:<queue>:<id>` is the job.

use std::sync::Arc;

use async_trait::async_trait;
use lapsed::task::UnixMs;
use serde::Deserialize;

use super::job::{Found, Job, runs};
use super::sets::{Page, Sets, groups};
use super::source::Source;
use super::store::{Entry, Field, Store, Taker};

/// Fields of a job's hash. `attemptsMade` is the name of `atm` in older versions.
const FIELDS: [&str; 7] = [
    "data",
    "name",
    "opts",
    "atm",
    "attemptsMade",
    "rjk",
    "parentKey",
];

/// The rest of what BullMQ keeps of a job, as its `removeJobKeys.lua` and `removeDeduplicationKeyIfNeededOnRemoval.lua` do.
const TAKE_ALSO: &str = r"
    local dedup = redis.call('HGET', job, 'deid')
    if dedup and redis.call('GET', ARGV[1] .. 'de:' .. dedup) == member then
      redis.call('DEL', ARGV[1] .. 'de:' .. dedup, ARGV[1] .. 'dn:' .. dedup)
    end
    redis.call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')";

/// Scores are milliseconds times this.
const SCORE_UNIT: f64 = 4096.0;

pub struct Bullmq {
    store: Store,
    prefix: String,
    sets: Sets,
    taker: Taker,
}

/// The options that matter of those with which a job was added.
#[derive(Deserialize, Default)]
struct Options {
    attempts: Option<f64>,
}

impl Bullmq {
    pub async fn open(store: Store, prefix: &str, queue: Option<&str>) -> anyhow::Result<Self> {
        let before = format!("{prefix}:");
        let after = ":delayed";
        let names = match queue {
            Some(queue) => vec![format!("{before}{queue}{after}")],
            None => store.names(&before, after, "zset").await?,
        };
        let queue = |set: &String| {
            let name = set.strip_prefix(&before)?.strip_suffix(after)?;
            Some((Arc::from(&set[..]), Arc::from(name)))
        };
        Ok(Self {
            sets: Sets::new(names.iter().filter_map(queue).collect()),
            store,
            prefix: before,
            taker: Taker::new("data", TAKE_ALSO),
        })
    }

    /// `<prefix>:<queue>:`, which begins the names of a queue's keys.
    fn job_prefix(&self, queue: &str) -> String {
        format!("{}{queue}:", self.prefix)
    }
}

#[async_trait]
impl Source for Bullmq {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        self.sets.count(&self.store).await.map(Some)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(page) = self.sets.page(&self.store).await? else {
            return Ok(None);
        };
        let prefix = self.job_prefix(&page.queue);
        let key = |entry: &Entry| [prefix.as_bytes(), &entry.member].concat();
        let keys: Vec<Vec<u8>> = page.entries.iter().map(key).collect();
        let hashes = self.store.hashes(&keys, &FIELDS).await?;
        let entries = page.entries.iter().zip(&hashes);
        let found = entries.map(|(entry, fields)| {
            job(entry, fields, &page).unwrap_or_else(|why| Found::refused(&entry.member, why))
        });
        Ok(Some(found.collect()))
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<u64> {
        let mut taken = 0;
        for (set, jobs) in groups(jobs) {
            let prefix = self.job_prefix(&jobs[0].queue);
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
    let [data, name, opts, atm, attempts_made, scheduler, parent] = fields else {
        return Err("the source's Redis answered another number of fields".to_owned());
    };
    if fields.iter().all(|field| *field == Field::Missing) {
        return Err("its hash is missing".to_owned());
    }
    if let Field::Value(scheduler) = scheduler {
        return Err(format!(
            "it is the next run of the job scheduler `{}`: create a recurring task instead",
            super::job::shown(scheduler)
        ));
    }
    if *parent != Field::Missing {
        return Err("it is a child in a flow: its parent would wait for ever".to_owned());
    }
    let payload = match data {
        Field::Missing => None,
        Field::Value(bytes) => {
            Some(String::from_utf8(bytes.clone()).map_err(|_| "its data is not UTF-8".to_owned())?)
        }
        Field::Oversize(length) => return Err(format!("its data has {length} bytes")),
    };
    let options: Options = opts
        .text()
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| format!("its options are not JSON: {error}"))?
        .unwrap_or_default();
    let made = [atm, attempts_made].into_iter().find_map(Field::text);
    let made: u64 = made.unwrap_or("0").parse().unwrap_or(0);
    let due = (entry.at() / SCORE_UNIT).floor();
    if !due.is_finite() {
        return Err(format!("the score {} is no time", entry.score));
    }
    let mut place = entry.place(&page.set);
    if let Field::Value(bytes) = data {
        place.content.clone_from(bytes);
    }
    Ok(Job {
        queue: Arc::clone(&page.queue),
        name: name.text().ok_or("it has no name")?.to_owned(),
        payload,
        attempts: runs(made),
        // Without the option, BullMQ runs a job once.
        max_attempts: Some(runs(options.attempts.unwrap_or(1.0).max(1.0) as u64)),
        ..Job::new(entry.member.clone(), UnixMs(due as i64), place)
    }
    .into())
}
