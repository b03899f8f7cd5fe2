//! BullMQ: the sorted set `<prefix>:<queue>:delayed` has the ids of delayed jobs, and those that wait for a retry. The score
//! is the due time in milliseconds times 4096, plus a counter. The hash `<prefix>:<queue>:<id>` is the job.

use std::sync::Arc;

use lapsed::task::{UnixMs, parser_message};
use serde::Deserialize;

use super::job::{Found, Job, MILLISECONDS_BELOW, contents, runs};
use super::sets::{Page, Sets};
use super::sorted_set_jobs::{Hashes, SortedSetJobs, unless_paused};
use super::store::{Entry, Field, RemovalScript, Store};

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

/// The options that matter of those with which a job was added.
#[derive(Deserialize, Default)]
struct Options {
    attempts: Option<f64>,
    /// Of a repeatable job of an older version.
    repeat: Option<serde::de::IgnoredAny>,
}

/// Reads the jobs of a queue, or of all queues whose names begin with `<prefix>:`.
///
/// # Errors
/// The names of the queues cannot be read.
pub async fn open(
    store: Store,
    prefix: &str,
    queue: Option<&str>,
) -> anyhow::Result<SortedSetJobs> {
    let before = format!("{prefix}:");
    let after = ":delayed";
    let names = match queue {
        Some(queue) => vec![queue.to_owned()],
        None => {
            let sets = store.names(&before, after, "zset").await?;
            let name =
                |set: &String| Some(set.strip_prefix(&before)?.strip_suffix(after)?.to_owned());
            sets.iter().filter_map(name).collect()
        }
    };
    let paused = async |store: &Store, queue: &str| {
        // The key is that of Bull and of older versions.
        Ok(store
            .has_field(&format!("{before}{queue}:meta"), "paused")
            .await?
            || store
                .any_exists(&[format!("{before}{queue}:meta-paused")])
                .await?)
    };
    let (names, remarks) = unless_paused(&store, names, queue.is_some(), paused).await?;
    let set = |name: &String| {
        (
            Arc::from(format!("{before}{name}{after}")),
            Arc::from(&name[..]),
        )
    };
    Ok(SortedSetJobs {
        remarks,
        sets: Sets::new(names.iter().map(set).collect()),
        store,
        removal: RemovalScript::new("data", TAKE_ALSO),
        hashes: Some(Hashes {
            before,
            after: ":",
            fields: &FIELDS,
        }),
        queue: None,
        job,
    })
}

pub(super) fn job(entry: &Entry, fields: &[Field], page: &Page) -> Result<Found, String> {
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
        .map_err(|error| {
            format!(
                "its options are not JSON: {}",
                parser_message(&error.to_string())
            )
        })?
        .unwrap_or_default();
    if options.repeat.is_some() || entry.member.starts_with(b"repeat:") {
        return Err(
            "it is the next run of a repeatable job: create a recurring task instead".to_owned(),
        );
    }
    let made = [atm, attempts_made].into_iter().find_map(Field::text);
    let made: u64 = made.unwrap_or("0").parse().unwrap_or(0);
    let due = (entry.at() / SCORE_UNIT).floor();
    if !(0.0..MILLISECONDS_BELOW).contains(&due) {
        return Err(format!("the score {} is no time", entry.at()));
    }
    let mut place = entry.place(&page.set);
    if let Field::Value(bytes) = data {
        place.content.clone_from(bytes);
    }
    Ok(Job {
        queue: Arc::clone(&page.queue),
        name: name.text().ok_or("it has no name")?.to_owned(),
        attempts: runs(made),
        // Without the option, BullMQ runs a job once.
        contents: contents(
            payload,
            Some(runs(options.attempts.unwrap_or(1.0).max(1.0) as u64)),
        ),
        ..Job::new(entry.member.clone(), UnixMs(due as i64), place)
    }
    .into())
}
