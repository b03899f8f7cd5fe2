//! Redis server checks: version, role, cluster and persistence.

use lapsed::diagnosis::Finding;
use lapsed_redis::Facts;

pub(super) const VERSION: &str = "redis.version";
pub(super) const ROLE: &str = "redis.role";
pub(super) const CLUSTER: &str = "redis.cluster";
pub(super) const PERSISTENCE: &str = "redis.persistence";

pub(super) fn version(info: &Facts) -> Finding {
    let valkey = info.get("valkey_version");
    let Some(version) = valkey.or_else(|| info.get("redis_version")) else {
        return Finding::unknown(VERSION, "the server does not say");
    };
    let name = if valkey.is_some() { "valkey" } else { "redis" };
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let number: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < (6, 2) {
        return Finding::warning(
            VERSION,
            format!("{name} {version}, expected 6.2 or newer: older versions are not tested"),
        )
        .remedy("upgrade the server");
    }
    Finding::ok(VERSION, format!("{name} {version}"))
}

pub(super) fn role(info: &Facts) -> Finding {
    match info.get("role") {
        Some("master") => Finding::ok(ROLE, "master"),
        Some(role) => Finding::error(
            ROLE,
            format!(
                "`{role}`, expected `master`: a replica takes no writes and publishes no `expired` events"
            ),
        )
        .remedy(match (info.get("master_host"), info.get("master_port")) {
            (Some(host), Some(port)) => format!("name the master, {host}:{port}, in `redis.url`"),
            _ => "name the master in `redis.url`".to_owned(),
        }),
        None => Finding::unknown(ROLE, "the server does not say"),
    }
}

pub(super) fn no_cluster(info: &Facts) -> Finding {
    match info.get("cluster_enabled") {
        Some("1") => Finding::error(
            CLUSTER,
            "the server is part of a cluster: it refuses keys of other nodes, and announces only its own",
        )
        .remedy("let `redis.url` begin with `redis+cluster://`"),
        Some(_) => Finding::ok(CLUSTER, "not part of a cluster"),
        None => Finding::unknown(CLUSTER, "the server does not say"),
    }
}

pub(super) fn persistence(info: &Facts) -> Finding {
    let failed = |name| matches!(info.get(name), Some(status) if status != "ok");
    if failed("rdb_last_bgsave_status") || failed("aof_last_write_status") {
        return Finding::warning(
            PERSISTENCE,
            "the server could not write to its disk: it may refuse to arm keys, and tasks then wait for the sweep",
        )
        .remedy("see the server's log: disk full, or no right to write there");
    }
    match info.get("aof_enabled") {
        Some("1") => Finding::ok(
            PERSISTENCE,
            "an append-only file is kept: armed keys survive a restart",
        ),
        Some(_) => Finding::note(
            PERSISTENCE,
            "no append-only file is kept: keys armed since the last snapshot, if there are snapshots, are gone after a restart; a daemon arms them again",
        ),
        None => Finding::unknown(PERSISTENCE, "the server does not say"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn servers_are_distinguished_by_name_and_version() {
        let told = [
            (
                Facts::from([("redis_version", "7.0.15")]),
                Severity::Ok,
                "redis 7.0.15",
            ),
            (
                Facts::from([("redis_version", "7.2.4"), ("valkey_version", "8.0.1")]),
                Severity::Ok,
                "valkey 8.0.1",
            ),
            (
                Facts::from([("redis_version", "5.0.14")]),
                Severity::Warning,
                "expected 6.2",
            ),
        ];
        for (info, severity, part) in told {
            assert_is(&version(&info), severity, part);
        }
    }

    #[test]
    fn only_a_master_is_accepted() {
        assert_is(
            &role(&Facts::from([("role", "master")])),
            Severity::Ok,
            "master",
        );
        let info = Facts::from([
            ("role", "slave"),
            ("master_host", "10.0.0.7"),
            ("master_port", "6379"),
        ]);
        let replica = role(&info);
        assert_is(&replica, Severity::Error, "publishes no `expired`");
        assert!(replica.remedy.unwrap().contains("10.0.0.7:6379"));
        assert_is(
            &role(&Facts::default()),
            Severity::Note,
            "could not be checked",
        );
    }

    #[test]
    fn a_node_of_a_cluster_is_refused_as_a_single_server() {
        let info = |value| Facts::from([("cluster_enabled", value)]);
        assert_is(
            &no_cluster(&info("1")),
            Severity::Error,
            "part of a cluster",
        );
        assert_is(&no_cluster(&info("0")), Severity::Ok, "not part");
    }

    #[test]
    fn a_failed_disk_differs_from_no_persistence() {
        let judge = |pairs: [(&str, &str); 2]| persistence(&Facts::from(pairs));
        let failed = judge([("aof_enabled", "0"), ("rdb_last_bgsave_status", "err")]);
        assert_is(&failed, Severity::Warning, "could not write");
        let none = judge([("aof_enabled", "0"), ("rdb_last_bgsave_status", "ok")]);
        assert_is(&none, Severity::Note, "arms them again");
    }
}
