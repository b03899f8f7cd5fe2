//! Cluster checks: its masters and their slots, and the checks of each master.

use super::connectivity::{REACHABLE, unreachable};
use super::examine_server;
use super::rights::RIGHTS;
use super::server::CLUSTER;
use crate::clocks::Reading;
use crate::runner::{Runner, words};
use lapsed::config::Config;
use lapsed::diagnosis::Finding;
use lapsed_redis::{Address, Commands, RedisError, Topology};

/// Checks each master. Returns a reading of the clock of one.
pub(super) async fn examine(
    config: &Config,
    commands: &Commands,
    runner: &mut Runner,
) -> Option<Reading> {
    let cluster = commands.cluster()?;
    let topology = match runner.bounded(cluster.topology()).await {
        Some(Ok(topology)) => topology,
        Some(Err(error)) => {
            let finding = unreachable(&error);
            let found = format!("{}: {}", commands.endpoint().node(), finding.found);
            runner.add([Finding { found, ..finding }]);
            return None;
        }
        None => {
            let found = format!("{}: no answer in time", commands.endpoint().node());
            runner.add([Finding::error(REACHABLE, found)
                .remedy("check whether the nodes hang, or a firewall drops their packets")]);
            return None;
        }
    };
    runner.add([masters(&topology)]);
    let (mut found, mut reading) = (Vec::new(), None);
    for master in &topology.masters {
        let mut of_master = runner.part();
        let taken = examine_server(config, commands.at(master), &mut of_master).await;
        reading = reading.or(taken.unwrap_or_default());
        found.push((master.address.to_string(), of_master.findings));
    }
    runner.add(merged(found));
    let is_master = |node: &&Address| topology.masters.iter().any(|it| it.address == **node);
    for node in topology.nodes.iter().filter(|node| !is_master(node)) {
        if let Some(Err(error)) = runner.bounded(cluster.view_of(node)).await
            && (error.is_refusal() || matches!(error, RedisError::Credentials(_)))
        {
            runner.add([replica(node, &error)]);
        }
    }
    reading
}

/// Judges a replica that refuses what all nodes are asked. It may be a master soon.
fn replica(node: &Address, error: &RedisError) -> Finding {
    Finding::error(RIGHTS, format!("{node}, a replica: {}", words(error))).remedy(
        "give all nodes the same users: they are not copied to replicas, and each of them may be promoted",
    )
}

/// Judges which slots are served.
fn masters(topology: &Topology) -> Finding {
    let masters: Vec<String> = topology
        .masters
        .iter()
        .map(|master| format!("{} ({} slots)", master.address, topology.count_of(master)))
        .collect();
    let found = format!("{} masters: {}", masters.len(), masters.join(", "));
    match topology.unowned() {
        0 => Finding::ok(CLUSTER, found),
        unowned => Finding::error(
            CLUSTER,
            format!("{unowned} slots have no master: keys in them are refused; {found}"),
        )
        .remedy("run `redis-cli --cluster check`, and give these slots to a master"),
    }
}

/// Merges the findings of the masters. What is the same of all is reported once; else the worst is, with the master's address.
fn merged(of_masters: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    let all = of_masters.iter().flat_map(|(_, findings)| findings);
    let mut checks: Vec<&str> = Vec::new();
    for finding in all {
        if !checks.contains(&finding.check) {
            checks.push(finding.check);
        }
    }
    for check in checks {
        let of_check: Vec<(&str, &Finding)> = of_masters
            .iter()
            .flat_map(|(master, findings)| {
                let of_check = findings.iter().filter(|finding| finding.check == check);
                of_check.map(|finding| (&master[..], finding))
            })
            .collect();
        let worst = of_check.iter().map(|(_, finding)| finding.severity).max();
        let is_alike = |(_, finding): &(&str, &Finding)| finding.found == of_check[0].1.found;
        if of_check.iter().all(is_alike) {
            merged.push(of_check[0].1.clone());
            continue;
        }
        let shown = of_check
            .iter()
            .filter(|(_, finding)| Some(finding.severity) == worst);
        merged.extend(shown.map(|(master, finding)| Finding {
            found: match finding.found.starts_with(master) {
                true => finding.found.clone(),
                false => format!("{master}: {}", finding.found),
            },
            ..(*finding).clone()
        }));
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::diagnosis::Severity;

    #[test]
    fn findings_that_all_masters_share_are_told_once_and_the_worst_with_its_master() {
        let alike = || Finding::ok("redis.version", "redis 7.0.15");
        let of_masters = vec![
            (
                "a:1".to_owned(),
                vec![alike(), Finding::ok("redis.notifications", "Exg")],
            ),
            (
                "b:2".to_owned(),
                vec![alike(), Finding::error("redis.notifications", "off")],
            ),
        ];
        let shown: Vec<(Severity, String)> = merged(of_masters)
            .into_iter()
            .map(|finding| (finding.severity, finding.found))
            .collect();
        assert_eq!(
            shown,
            [
                (Severity::Ok, "redis 7.0.15".to_owned()),
                (Severity::Error, "b:2: off".to_owned())
            ]
        );
    }
}
