//! Checks of the delayed queues of frameworks: what is under the names of the configuration, and whether its jobs are moved.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::runner::{Runner, Unresponsive};
use lapsed::config::{Config, DelayedSetConfig, ReadyList};
use lapsed::diagnosis::Finding;
use lapsed_core::format::count;
use lapsed_redis::alarms::OWN_FROM;
use lapsed_redis::{Commands, Endpoint, Inspection, RedisError, ScoredSets};

const SETS: &str = "redis.delayed_sets";

/// Most jobs of a set that are read, those that fall due first; and ready lists.
const JOBS_MAX: usize = 1_000;
const LISTS_MAX: usize = 20;

/// Jobs that are overdue by less may be about to be moved.
const MOVED_WITHIN: Duration = Duration::from_secs(60);

/// A lower score is a time in seconds, a higher one in milliseconds: in seconds, it is the year 5138.
const MILLISECONDS_FROM: f64 = 1e11;

/// What is found of a set.
struct Contents {
    name: String,
    /// Its type in Redis.
    kind: String,
    jobs: u64,
    /// Jobs that were due a minute ago.
    overdue: u64,
    /// Jobs with a score in milliseconds.
    in_milliseconds: u64,
    /// Jobs that were read, and those of them that make no task.
    read: usize,
    unfit: usize,
    /// Lists of ready jobs that are something else, with their types.
    wrong_lists: Vec<(String, String)>,
}

/// Checks the sets of the configuration.
pub(super) async fn examine(
    config: &Config,
    endpoint: &Endpoint,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let commands = Commands::new(endpoint.clone());
    let server = Inspection::new(commands.clone());
    for set in config.delayed_sets() {
        let contents = contents(&set, &server, &commands);
        if let Some(contents) = runner.query(&[SETS], contents).await? {
            runner.add(judge(&contents));
        }
    }
    Ok(())
}

async fn contents(
    set: &DelayedSetConfig,
    server: &Inspection,
    commands: &Commands,
) -> Result<Contents, RedisError> {
    let mut found = Contents {
        name: set.set().to_owned(),
        kind: server.kind(set.set()).await?,
        jobs: 0,
        overdue: 0,
        in_milliseconds: 0,
        read: 0,
        unfit: 0,
        wrong_lists: Vec::new(),
    };
    // If all jobs have one queue, they go to its list, whatever they are.
    let of_queue = set.key_of(b"{}").ok().map(|key| set.ready(&key));
    let mut lists: BTreeSet<String> = of_queue.into_iter().flat_map(names).collect();
    if found.kind == "zset" {
        let sets = ScoredSets::new(commands.clone(), OWN_FROM, None);
        let (lowest, highest) = (f64::NEG_INFINITY, f64::INFINITY);
        found.jobs = sets.count(&found.name, lowest, highest).await?;
        let before = server.time().await?.minus(MOVED_WITHIN);
        let before = before.0 as f64 / 1e3;
        found.overdue = sets.count(&found.name, lowest, before).await?;
        let milliseconds = sets.count(&found.name, MILLISECONDS_FROM, highest);
        found.in_milliseconds = milliseconds.await?;
        let jobs = sets
            .range(&found.name, lowest, highest, 0, JOBS_MAX)
            .await?;
        found.read = jobs.len();
        for (member, _) in jobs {
            match set.key_of(&member) {
                Ok(key) => lists.extend(names(set.ready(&key))),
                Err(_) => found.unfit += 1,
            }
        }
    }
    for list in lists.into_iter().take(LISTS_MAX) {
        let kind = server.kind(&list).await?;
        if kind != "list" && kind != "none" {
            found.wrong_lists.push((list, kind));
        }
    }
    Ok(found)
}

/// The names of the lists to which a job goes.
fn names(ready: ReadyList) -> impl Iterator<Item = String> {
    [ready.list].into_iter().chain(ready.notify)
}

fn judge(set: &Contents) -> Vec<Finding> {
    let Contents {
        name,
        kind,
        jobs,
        overdue,
        in_milliseconds,
        read,
        unfit,
        wrong_lists,
    } = set;
    let mut findings = Vec::new();
    match &kind[..] {
        "zset" => findings.push(Finding::ok(
            SETS,
            format!("`{name}` has {} jobs", count(*jobs)),
        )),
        "none" => findings.push(
            Finding::note(SETS, format!("`{name}` does not exist: no job is delayed"))
                .remedy("if jobs are delayed, compare the name with `redis-cli --scan --pattern '*delayed*'`, and correct `prefix` and `queue` of `[[delayed_sets]]`"),
        ),
        kind => findings.push(
            Finding::error(SETS, format!("`{name}` is a {kind}, expected a sorted set: none of its jobs is moved"))
                .remedy("correct `profile`, `prefix` and `queue` of `[[delayed_sets]]`"),
        ),
    }
    for (list, kind) in wrong_lists {
        let found = format!(
            "`{list}` is a {kind}, expected a list: jobs of `{name}` cannot be moved to it"
        );
        let remedy =
            "rename that key, or correct `profile`, `prefix` and `queue` of `[[delayed_sets]]`";
        findings.push(Finding::error(SETS, found).remedy(remedy));
    }
    if *unfit > 0 {
        let found = format!(
            "{} of the first {} jobs of `{name}` are none that this profile knows, or are too long",
            count(*unfit as u64),
            count(*read as u64)
        );
        let remedy =
            "they are left to the framework's own poller; if it is all of them, correct `profile`";
        findings.push(Finding::warning(SETS, found).remedy(remedy));
    }
    if *in_milliseconds > 0 {
        let found = format!(
            "{} jobs of `{name}` have scores in milliseconds, expected seconds: they never fall due",
            count(*in_milliseconds)
        );
        let remedy = "look at what adds them: these frameworks write seconds";
        findings.push(Finding::warning(SETS, found).remedy(remedy));
    }
    if *overdue > 0 {
        let found = format!(
            "{} jobs of `{name}` are overdue by more than a minute: nothing moves them",
            count(*overdue)
        );
        let remedy = "start a daemon, and compare the clock of the programs that delay jobs with that of Redis";
        findings.push(Finding::warning(SETS, found).remedy(remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    fn set(kind: &str) -> Contents {
        Contents {
            name: "queues:default:delayed".to_owned(),
            kind: kind.to_owned(),
            jobs: 12_000,
            overdue: 0,
            in_milliseconds: 0,
            read: 1_000,
            unfit: 0,
            wrong_lists: Vec::new(),
        }
    }

    #[test]
    fn a_set_is_judged_by_what_is_under_its_names() {
        let good = judge(&set("zset"));
        assert_eq!(good.len(), 1);
        assert_is(&good[0], Severity::Ok, "12,000 jobs");
        assert_is(&judge(&set("none"))[0], Severity::Note, "does not exist");
        let list = judge(&set("list"));
        assert_is(
            &list[0],
            Severity::Error,
            "is a list, expected a sorted set",
        );
        let wrong = Contents {
            wrong_lists: vec![("queues:default".to_owned(), "string".to_owned())],
            ..set("zset")
        };
        assert_is(
            &judge(&wrong)[1],
            Severity::Error,
            "`queues:default` is a string",
        );
    }

    #[test]
    fn jobs_that_are_not_moved_are_a_warning() {
        let stuck = Contents {
            overdue: 3,
            in_milliseconds: 2,
            unfit: 1,
            ..set("zset")
        };
        let found = judge(&stuck);
        assert_is(&found[1], Severity::Warning, "1 of the first 1,000 jobs");
        assert_is(&found[2], Severity::Warning, "2 jobs of");
        assert_is(&found[3], Severity::Warning, "3 jobs of");
    }
}
