//! `[[delayed_sets]]`: the delayed queues of frameworks, which are sorted sets in Redis.

use std::time::Duration;

use regex::Regex;

use super::delayed_set::{DelayedSetConfig, delayed_set};
use super::reader::{Problems, Reader};
use super::routes::{RouteConfig, TargetConfig};
use super::{Config, LedgerConfig};
use crate::task::{Limits, RetryPolicy};

/// Most sets: each is read every 100 ms.
const SETS_MAX: usize = 64;

/// Backoff of a move that Redis has not answered: it is tried until it succeeds.
const RETRY: RetryPolicy = RetryPolicy::endless(Duration::from_millis(100), Duration::from_secs(5));

impl Config {
    /// The delayed queues of frameworks.
    pub fn delayed_sets(&self) -> Vec<DelayedSetConfig> {
        let targets = self.routes.iter().map(|route| &route.target);
        targets
            .filter_map(|target| match target {
                TargetConfig::DelayedSet(set) => Some(set.clone()),
                _ => None,
            })
            .collect()
    }
}

/// Reads the entries. Their routes come before those of `[[routes]]`, which cannot take their tasks away.
pub(super) fn routes(
    section: &mut Reader,
    key_prefix: &str,
    ledger: Option<&LedgerConfig>,
    p: &mut Problems,
) -> Vec<RouteConfig> {
    let mut sets: Vec<DelayedSetConfig> = Vec::new();
    for reader in section.entries("delayed_sets", p) {
        let path = reader.path.clone();
        let Some(set) = delayed_set(reader, key_prefix, ledger, p) else {
            continue;
        };
        let is_same = |other: &&DelayedSetConfig| other.set() == set.set() || other.overlaps(&set);
        match sets.iter().find(is_same) {
            Some(other) if other.set() == set.set() => {
                p.add(&path, format!("names the set `{}` a second time", set.set()));
            }
            Some(_) => p.add(
                &path,
                format!(
                    "its tasks would have the same keys as those of another set, `{}..`: expected another `class`",
                    set.expression().trim_start_matches('^')
                ),
            ),
            None => sets.push(set),
        }
    }
    if sets.len() > SETS_MAX {
        let found = sets.len();
        p.add(
            "delayed_sets",
            format!("expected at most {SETS_MAX} sets, found {found}"),
        );
    }
    if !sets.is_empty() && ledger.is_some_and(|ledger| ledger.sqlite_file().is_some()) {
        p.add("delayed_sets", "needs a ledger in MySQL or MariaDB");
    }
    sets.into_iter().map(route).collect()
}

/// The route of a set's tasks.
fn route(set: DelayedSetConfig) -> RouteConfig {
    RouteConfig {
        matches: Regex::new(&set.expression()).expect("its parts are escaped"),
        target: TargetConfig::DelayedSet(set),
        limits: Limits::default(),
        retry: Some(RETRY),
        adopt: Some(true),
        slow_after: None,
        payload_secrets: Vec::new(),
        expire_after: None,
    }
}

#[cfg(test)]
mod tests;
