//! Sorted-set checks: the type of each set, its requests, scripts, and events.

use std::time::Duration;

use crate::runner::{Runner, Unresponsive, words};
use lapsed::config::{Config, ScoreUnit};
use lapsed::diagnosis::Finding;
use lapsed::task::UnixMs;
use lapsed_core::format::count;
use lapsed_redis::alarms::{OWN_FROM, own_score};
use lapsed_redis::{Commands, Endpoint, Facts, Inspection, NotifyFlags, RedisError, ScoredSets};

use super::notifications::FLAGS;

const SETS: &str = "redis.sorted_sets";
const REQUESTS: &str = "redis.requests";
pub(super) const SCRIPTS: &str = "redis.scripts";
const EVENTS: &str = "redis.set_events";
const SHARED: &str = "redis.shared_members";

/// Sets that are compared with each other, and most members of each.
const SHARED_SETS_MAX: usize = 8;
const SHARED_COMPARED_MAX: usize = 1_000;

/// Most requests that are compared with the routes.
const COMPARED_MAX: usize = 10_000;

/// The lowest score in milliseconds, where the unit is told by size.
const MILLISECONDS_FROM: f64 = 1e11;

/// Acknowledged entries that are overdue by less are about to be removed.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// What a set holds.
struct Contents {
    name: String,
    /// Its type in Redis.
    kind: String,
    entries: u64,
    /// Entries that are not acknowledged, and those of them that are due.
    requests: u64,
    overdue: u64,
    /// Acknowledged entries that are overdue by more than a minute.
    unsettled: u64,
    /// Requests that are no tasks, and requests that no route takes.
    foreign: usize,
    unroutable: usize,
}

/// Checks the sets of the configuration.
pub(super) async fn examine(
    config: &Config,
    endpoint: &Endpoint,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let commands = Commands::new(endpoint.clone());
    let server = Inspection::new(commands.clone());
    let judge_flags = |flags: Facts| events(flags.raw(FLAGS));
    runner
        .check(EVENTS, server.settings(&[FLAGS]), judge_flags)
        .await?;
    let judge_refusal = |refusal: Option<RedisError>| scripted(refusal.as_ref());
    runner
        .check(SCRIPTS, refusal_of_scripts(&server), judge_refusal)
        .await?;
    for set in 0..config.sorted_set.keys.len() {
        let contents = contents(config, &server, &commands, set);
        if let Some(contents) = runner.query(&[SETS, REQUESTS], contents).await? {
            runner.add(judge(&contents, !config.routes.is_empty()));
        }
    }
    if config.sorted_set.member.names_set() {
        return Ok(());
    }
    let shared = shared_members(config, &commands);
    let judge_shared = |found: Option<(String, String, usize)>| {
        found.map(|(one, other, members)| shares(&one, &other, members))
    };
    runner.check(SHARED, shared, judge_shared).await
}

/// Looks for two sets with the same members. Returns the first two, and how many members of a part of the one are in
/// the other. Sets of another type have none.
async fn shared_members(
    config: &Config,
    commands: &Commands,
) -> Result<Option<(String, String, usize)>, RedisError> {
    let prefix = &config.redis.key_prefix;
    let names = config.sorted_set.keys.iter().take(SHARED_SETS_MAX);
    let names: Vec<String> = names.map(|key| format!("{prefix}{key}")).collect();
    let sets = ScoredSets::new(commands.clone(), OWN_FROM, None);
    for (index, one) in names.iter().enumerate() {
        let page = sets.range(
            one,
            f64::NEG_INFINITY,
            f64::INFINITY,
            0,
            SHARED_COMPARED_MAX,
        );
        let page = match page.await {
            Err(error) if error.is_wrong_type() => continue,
            page => page?,
        };
        let members: Vec<Vec<u8>> = page.into_iter().map(|(member, _)| member).collect();
        for other in &names[index + 1..] {
            let scores = match sets.scores(other, &members).await {
                Err(error) if error.is_wrong_type() => continue,
                scores => scores?,
            };
            let shared = scores.iter().flatten().count();
            if shared > 0 {
                return Ok(Some((one.clone(), other.clone(), shared)));
            }
        }
    }
    Ok(None)
}

fn shares(one: &str, other: &str, members: usize) -> Finding {
    let members = count(members as u64);
    let found = format!(
        "{members} of the first members of `{one}` are in `{other}`, too: each is one task, not two"
    );
    let remedy = "if they have ids of their own, write `{set}` into `sorted_set.member`, such as \"Queue@{set}@{member}\"";
    Finding::warning(SHARED, found).remedy(remedy)
}

pub(super) async fn refusal_of_scripts(
    server: &Inspection,
) -> Result<Option<RedisError>, RedisError> {
    match server.try_script().await {
        Ok(()) => Ok(None),
        Err(error) if error.is_refusal() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

async fn contents(
    config: &Config,
    server: &Inspection,
    commands: &Commands,
    set: usize,
) -> Result<Contents, RedisError> {
    let name = format!("{}{}", config.redis.key_prefix, config.sorted_set.keys[set]);
    let mut found = Contents {
        kind: server.kind(&name).await?,
        name,
        entries: 0,
        requests: 0,
        overdue: 0,
        unsettled: 0,
        foreign: 0,
        unroutable: 0,
    };
    if found.kind != "zset" {
        return Ok(found);
    }
    let sets = ScoredSets::new(commands.clone(), OWN_FROM, None);
    let lowest = f64::NEG_INFINITY;
    found.entries = sets.count(&found.name, lowest, f64::INFINITY).await?;
    found.requests = sets.count(&found.name, lowest, OWN_FROM).await?;
    let now = server.time().await?;
    let settled = own_score(now.minus(SETTLED_WITHIN));
    found.unsettled = sets.count(&found.name, OWN_FROM, settled).await?;
    for (from, end) in due_scores(config.sorted_set.unit, now) {
        found.overdue += sets.count(&found.name, from, end).await?;
    }
    let requests = sets.range(&found.name, lowest, OWN_FROM, 0, COMPARED_MAX);
    for (member, _) in requests.await? {
        match config.sorted_set.member.key_of(set, &member) {
            Err(_) => found.foreign += 1,
            Ok(key) => {
                let mut routes = config.routes.iter();
                if !routes.any(|route| route.matches.is_match(key.as_str())) {
                    found.unroutable += 1;
                }
            }
        }
    }
    Ok(found)
}

/// Where the scores of requests begin and end that are due: both units, if they are told apart by size.
fn due_scores(unit: ScoreUnit, now: UnixMs) -> Vec<(f64, f64)> {
    let (seconds, ms) = (now.0 as f64 / 1e3, now.0 as f64);
    match unit {
        ScoreUnit::Seconds => vec![(f64::NEG_INFINITY, seconds)],
        ScoreUnit::Milliseconds => vec![(f64::NEG_INFINITY, ms)],
        ScoreUnit::Auto => vec![(f64::NEG_INFINITY, seconds), (MILLISECONDS_FROM, ms)],
    }
}

fn judge(set: &Contents, has_routes: bool) -> Vec<Finding> {
    let Contents {
        name,
        kind,
        entries,
        requests,
        overdue,
        unsettled,
        foreign,
        unroutable,
    } = set;
    match &kind[..] {
        "zset" => {}
        "none" => {
            let found = format!("`{name}` does not exist yet: the first entry creates it");
            return vec![Finding::ok(SETS, found)];
        }
        kind => {
            let found = format!(
                "`{name}` is a {kind}, expected a sorted set: tasks run from the ledger alone"
            );
            let remedy = "correct `sorted_set.keys`, or remove that key";
            return vec![Finding::error(SETS, found).remedy(remedy)];
        }
    }
    let (entries, requests) = (count(*entries), count(*requests));
    let mut findings = vec![Finding::ok(
        SETS,
        format!("`{name}` has {entries} entries, of which {requests} are not acknowledged"),
    )];
    if *overdue > 0 {
        let found = format!(
            "{} requests in `{name}` are overdue: a daemon that starts adopts and runs them at once",
            count(*overdue)
        );
        let remedy = "to review them first, start it with `lapsed listen --hold-overdue`; or remove those that shall not run";
        findings.push(Finding::note(REQUESTS, found).remedy(remedy));
    }
    if *unsettled > 0 {
        let found = format!(
            "{} acknowledged entries of `{name}` are overdue by more than a minute",
            count(*unsettled)
        );
        let remedy = "`lapsed list --state overdue` shows those with a task. The others have no row: a program writes microseconds, or the ledger has lost the tasks. Write them again with a score in seconds, or remove them";
        findings.push(Finding::warning(REQUESTS, found).remedy(remedy));
    }
    if *foreign > 0 {
        let found = format!(
            "{} members of `{name}` are no tasks, and stay there",
            count(*foreign as u64)
        );
        let remedy = "map them with `sorted_set.member`, or remove them";
        findings.push(Finding::warning(REQUESTS, found).remedy(remedy));
    }
    if *unroutable > 0 && has_routes {
        let found = format!(
            "no route takes {} of the requests in `{name}`: they stay there",
            count(*unroutable as u64)
        );
        let remedy = "add a route for them, or remove them";
        findings.push(Finding::warning(REQUESTS, found).remedy(remedy));
    }
    findings
}

pub(super) fn scripted(refusal: Option<&RedisError>) -> Finding {
    match refusal {
        None => Finding::ok(SCRIPTS, "this user may run scripts"),
        Some(error) => Finding::error(
            SCRIPTS,
            format!(
                "this user may not run scripts, so entries are not acknowledged, moved or removed: {}",
                words(error)
            ),
        )
        .remedy("give the user `+eval`"),
    }
}

/// Judges the flags; `None`: the server does not show them.
fn events(flags: Option<&str>) -> Finding {
    let Some(text) = flags else {
        return Finding::unknown(EVENTS, format!("the server does not show `{FLAGS}`"));
    };
    match NotifyFlags::parse(text).announce_sorted_sets() {
        true => Finding::ok(
            EVENTS,
            format!("`{FLAGS}` is `{text}`: new entries are heard of at once"),
        ),
        false => Finding::note(
            EVENTS,
            format!("`{FLAGS}` is `{text}`: daemons look at the sets each 100 ms instead"),
        )
        .remedy(format!(
            "to hear of new entries at once, add `K` and `z` to `{FLAGS}` in redis.conf"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    fn set(kind: &str) -> Contents {
        Contents {
            name: "queue".to_owned(),
            kind: kind.to_owned(),
            entries: 12_000,
            requests: 3,
            overdue: 0,
            unsettled: 0,
            foreign: 1,
            unroutable: 2,
        }
    }

    #[test]
    fn a_set_is_judged_by_its_type_and_its_requests() {
        assert_is(&judge(&set("none"), true)[0], Severity::Ok, "not exist yet");
        let list = judge(&set("list"), true);
        assert_is(&list[0], Severity::Error, "`queue` is a list, expected");
        let found = judge(&set("zset"), true);
        assert_is(&found[0], Severity::Ok, "12,000 entries, of which 3 are");
        assert_is(&found[1], Severity::Warning, "1 members of `queue` are no");
        assert_is(&found[2], Severity::Warning, "no route takes 2 of the");
        assert_eq!(judge(&set("zset"), false).len(), 2);
        let overdue = Contents {
            overdue: 50,
            ..set("zset")
        };
        let found = judge(&overdue, true);
        assert_is(
            &found[1],
            Severity::Note,
            "50 requests in `queue` are overdue",
        );
    }

    #[test]
    fn members_of_two_sets_are_a_warning() {
        let found = shares("order", "refund", 42);
        assert_is(
            &found,
            Severity::Warning,
            "42 of the first members of `order`",
        );
    }

    #[test]
    fn events_are_optional_and_scripts_are_not() {
        assert_is(&events(Some("Kz")), Severity::Ok, "heard of at once");
        assert_is(&events(Some("Ex")), Severity::Note, "each 100 ms");
        assert_is(&events(None), Severity::Note, "does not show");
        assert_is(&scripted(None), Severity::Ok, "may run scripts");
        let refusal = RedisError::Replica(None);
        assert_is(&scripted(Some(&refusal)), Severity::Error, "may not run");
    }
}
