//! What a configuration may not have with a Redis Cluster.

use super::reader::Problems;
use super::{ClusterUrl, Config, TimerKind};

/// Refuses what needs several keys on one node.
pub(super) fn check(config: &Config, p: &mut Problems) {
    if !ClusterUrl::is_one(config.redis.url.expose()) {
        return;
    }
    if matches!(config.timer, TimerKind::SortedSet | TimerKind::Wheel) {
        let found = config.timer.as_str();
        p.add(
            "timer",
            format!(
                "`{found}` has keys of several slots, expected \"key_expiry\" or \"ledger_poll\" with a redis+cluster:// URL"
            ),
        );
    }
    #[cfg(feature = "rows")]
    if !config.delayed_sets().is_empty() {
        p.add(
            "delayed_sets",
            "needs a Redis that is not a cluster: a job is moved between keys of several slots",
        );
    }
    let prefix = &config.redis.key_prefix;
    let tag = prefix
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    if tag.is_some_and(|(tag, _)| !tag.is_empty()) {
        p.add(
            "redis.key_prefix",
            "has a hash tag, which puts all keys into one slot: expected a prefix without braces with a redis+cluster:// URL",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_refused_for_what_needs_several_keys_on_one_node() {
        let problems = |settings: &str| {
            let text = format!("redis.url = 'redis+cluster://n1'\n{settings}");
            let error = Config::from_toml(&text).err();
            error.map_or(Vec::new(), |error| {
                let problems = error.problems.iter();
                problems.map(|problem| problem.path.clone()).collect()
            })
        };
        assert_eq!(problems(""), [""; 0]);
        assert_eq!(problems("timer = 'ledger_poll'"), [""; 0]);
        assert_eq!(problems("timer = 'sorted_set'"), ["timer"]);
        assert_eq!(problems("timer = 'wheel'"), ["timer"]);
        assert_eq!(
            problems("redis.key_prefix = 'app:{a}:'"),
            ["redis.key_prefix"]
        );
        assert_eq!(problems("redis.key_prefix = 'app:{}:'"), [""; 0]);
    }
}
