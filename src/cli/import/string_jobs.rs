//! Laravel and think-queue: the sorted set of a queue has its delayed jobs as JSON, with their due time in seconds. A *string job*
//! names the class and method that run it, and has its data beside them. A serialized object is left to its framework.

use std::sync::Arc;

use lapsed::config::DelayedSetConfig;
use lapsed::task::{on_one_line, parser_message};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::job::{Found, Job, contents, due_of_seconds, runs};
use super::rules::digest;
use super::sets::{Page, Sets};
use super::sorted_set_jobs::SortedSetJobs;
use super::store::{Entry, Field, Store};

/// A framework whose queues are in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// `Illuminate\Queue\RedisQueue`.
    Laravel,
    /// `think\queue\connector\Redis`.
    ThinkQueue,
}

/// The method of a job that names a class alone, in both frameworks.
const DEFAULT_METHOD: &str = "fire";

/// The class that runs serialized objects, in the namespace of its framework.
const OBJECTS_CLASS: &str = "CallQueuedHandler";

/// Longest id that is an argument of a key as it is.
const ID_BYTES_MAX: usize = 100;

/// Longest name of a class in a message.
const CLASS_CHARS_MAX: usize = 120;

/// The members that matter of a job.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a> {
    job: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    id: Option<Id>,
    uuid: Option<Id>,
    /// Runs that have begun.
    attempts: Option<u64>,
    max_tries: Option<u64>,
    /// Limits of the framework that the route of the task has instead.
    timeout: Option<IgnoredAny>,
    timeout_at: Option<IgnoredAny>,
    retry_until: Option<IgnoredAny>,
    backoff: Option<IgnoredAny>,
}

/// An id, as programs write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
    Other(IgnoredAny),
}

/// What the data of a serialized object says about it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Command {
    command_name: String,
}

impl Framework {
    /// What begins and ends the name of a queue's set.
    fn around(self, prefix: &str) -> (String, &'static str) {
        match self {
            Self::Laravel => (format!("{prefix}queues:"), ":delayed"),
            Self::ThinkQueue => (format!("{prefix}{{queues:"), "}:delayed"),
        }
    }
}

impl Id {
    fn text(self) -> Option<String> {
        let text = match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
            Self::Other(_) => return None,
        };
        (1..=ID_BYTES_MAX).contains(&text.len()).then_some(text)
    }
}

/// Reads the delayed jobs of a queue, or of all queues.
///
/// # Errors
/// The names of the queues cannot be read, or lapsed moves the jobs of one to its workers.
pub async fn open(
    store: Store,
    framework: Framework,
    prefix: &str,
    queue: Option<&str>,
    moved_here: &[DelayedSetConfig],
) -> anyhow::Result<SortedSetJobs> {
    let (before, after) = framework.around(prefix);
    let sets = match queue {
        Some(queue) => vec![format!("{before}{queue}{after}")],
        None => store.names(&before, after, "zset").await?,
    };
    for set in moved_here {
        anyhow::ensure!(
            !sets.iter().any(|name| name == set.set()),
            "`delayed_sets` has `{}`: daemons move its jobs to the workers of the framework. Remove that entry, restart the \
             daemons, and import then",
            set.set()
        );
    }
    let queue = |set: &str| {
        let name = set.strip_prefix(&before).unwrap_or(set);
        let name = name.strip_suffix(after).unwrap_or(name);
        // Laravel writes them around the name if the connection is of a cluster.
        let bare = name
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        Arc::from(bare.unwrap_or(name))
    };
    let sets = sets.iter().map(|set| (Arc::from(&set[..]), queue(set)));
    Ok(SortedSetJobs::of_members(
        store,
        Sets::new(sets.collect()),
        job,
    ))
}

pub(super) fn job(entry: &Entry, _: &[Field], page: &Page) -> Result<Found, String> {
    let text = std::str::from_utf8(&entry.member).map_err(|_| "it is not UTF-8")?;
    let payload: Payload = serde_json::from_str(text).map_err(|error| {
        format!(
            "it is no job of a queue: {}",
            parser_message(&error.to_string())
        )
    })?;
    let ids = [payload.id, payload.uuid].into_iter().flatten();
    let id = ids.filter_map(Id::text).next();
    let id = id.unwrap_or_else(|| digest(&entry.member));
    let name = payload.job.strip_prefix('\\').unwrap_or(&payload.job);
    let (class, method) = name.split_once('@').unwrap_or((name, DEFAULT_METHOD));
    if class.rsplit('\\').next() == Some(OBJECTS_CLASS) {
        let command = payload
            .data
            .map(|data| serde_json::from_str::<Command>(data.get()));
        let what = match command {
            Some(Ok(command)) => {
                let class: String = command.command_name.chars().take(CLASS_CHARS_MAX).collect();
                format!("of `{}`", on_one_line(&class))
            }
            _ => "of PHP".to_owned(),
        };
        return Ok(Found::refused(
            id.as_bytes(),
            format!("it is a serialized object {what}, which only PHP can run"),
        ));
    }
    let has_limits = payload.timeout.is_some()
        || payload.timeout_at.is_some()
        || payload.retry_until.is_some()
        || payload.backoff.is_some();
    Ok(Job {
        queue: Arc::clone(&page.queue),
        name: name.to_owned(),
        class: class.to_owned(),
        method: method.to_owned(),
        attempts: runs(payload.attempts.unwrap_or(0)),
        contents: contents(
            payload.data.map(|data| data.get().to_owned()),
            // 0 is no limit.
            payload.max_tries.filter(|tries| *tries > 0).map(runs),
        ),
        missing: has_limits.then_some(
            "have limits of their own (`timeout`, `timeoutAt`, `retryUntil`, `backoff`): those of their routes take their place",
        ),
        ..Job::new(id, due_of_seconds(entry.at())?, entry.place(&page.set))
    }
    .into())
}

#[cfg(test)]
mod tests {
    use lapsed::Config;

    use super::*;

    #[test]
    fn the_sets_are_those_that_delayed_sets_names() {
        let config = Config::from_toml(
            "redis.key_prefix = 'shop_'\n\
             delayed_sets = [{ profile = 'laravel', queue = 'mail' }, { profile = 'laravel', queue = 'bills', cluster = true }, \
             { profile = 'think-queue', queue = 'mail' }]",
        )
        .unwrap();
        let sets = config.delayed_sets();
        let names = [
            (Framework::Laravel, "mail"),
            (Framework::Laravel, "{bills}"),
            (Framework::ThinkQueue, "mail"),
        ];
        assert_eq!(sets.len(), names.len());
        for (set, (framework, queue)) in sets.iter().zip(names) {
            let (before, after) = framework.around("shop_");
            assert_eq!(format!("{before}{queue}{after}"), set.set());
        }
    }
}
