//! Nodes of a replicated server: the state of the group, and whether their clocks agree.
//!
//! The clock of the node that is written to decides when a task is due and when a lease ends. After a failover another
//! node's clock decides.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection, Row};
use tokio::time::timeout;

use lapsed::diagnosis::Finding;
use lapsed_core::format::duration;

use super::super::clocks::Reading;
use super::super::runner::{Runner, Unresponsive, words};
use super::clock;
use super::server::Variables;

const GALERA: &str = "ledger.galera";
const GROUP: &str = "ledger.group";
const NODES: &str = "ledger.nodes";

/// Largest difference between two nodes that is accepted.
pub(super) const APART: Duration = Duration::from_millis(100);

/// Time limit to read the clock of one node.
const NODE_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of nodes whose clocks are read. Galera and Group Replication have nine at most.
const NODES_MAX: usize = 9;

const MEMBERS: &str = "SELECT CAST(MEMBER_HOST AS CHAR), CAST(MEMBER_PORT AS SIGNED), CAST(MEMBER_STATE AS CHAR), CAST(MEMBER_ROLE AS CHAR) \
     FROM performance_schema.replication_group_members WHERE MEMBER_STATE <> 'OFFLINE'";

/// A member of a replication group.
struct Member {
    host: String,
    port: u16,
    state: String,
    role: String,
}

/// Judges the group, if the server is in one, and compares the clocks of its nodes.
pub(super) async fn examine(
    options: &MySqlConnectOptions,
    conn: &mut MySqlConnection,
    variables: &Variables,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let addresses = if variables.is_on("wsrep_on") {
        runner.add([galera(variables)]);
        let addresses = variables.get("wsrep_incoming_addresses");
        parse_addresses(addresses.unwrap_or_default())
    } else {
        // A server without the table, or a user who may not read it: there is no group to judge.
        let members = match runner.bounded(members(conn)).await {
            Some(Ok(members)) => members,
            Some(Err(sqlx::Error::Database(_))) => Vec::new(),
            Some(Err(error)) => {
                return runner
                    .query(&[GROUP], async { Err(error) })
                    .await
                    .map(|_: Option<()>| ());
            }
            None => return Err(Unresponsive),
        };
        if members.is_empty() {
            return Ok(());
        }
        runner.add([group(&members)]);
        members
            .into_iter()
            .map(|member| (member.host, member.port))
            .collect()
    };
    let readings = addresses.into_iter().take(NODES_MAX).map(|(host, port)| {
        let options = options.clone().host(&host).port(port);
        async move { (format!("{host}:{port}"), read(options).await) }
    });
    runner.add(compare(&join_all(readings).await));
    Ok(())
}

async fn members(conn: &mut MySqlConnection) -> sqlx::Result<Vec<Member>> {
    let rows = sqlx::query(MEMBERS).fetch_all(conn).await?;
    let member = |row: &sqlx::mysql::MySqlRow| {
        Ok(Member {
            host: row.try_get_unchecked(0)?,
            port: u16::try_from(row.try_get::<i64, _>(1)?).unwrap_or_default(),
            state: row.try_get_unchecked(2)?,
            role: row.try_get_unchecked(3)?,
        })
    };
    rows.iter().map(member).collect()
}

/// Reads the clock of a node.
async fn read(options: MySqlConnectOptions) -> Result<Reading, String> {
    let read = async {
        let mut conn = options.connect().await?;
        // The first statement also pays for what the server prepares.
        clock(&mut conn).await?;
        let reading = Reading::take(clock(&mut conn)).await?;
        conn.close().await?;
        Ok(reading)
    };
    match timeout(NODE_WITHIN, read).await {
        Ok(Ok(reading)) => Ok(reading),
        Ok(Err(error)) => Err(words(&error as &sqlx::Error)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

fn galera(variables: &Variables) -> Finding {
    let value = |name| variables.get(name).unwrap_or("?");
    let (name, state) = (value("wsrep_node_name"), value("wsrep_local_state_comment"));
    let status = value("wsrep_cluster_status");
    if !status.eq_ignore_ascii_case("primary") {
        return Finding::error(
            GALERA,
            format!("`{name}` is in a part of its Galera cluster without a majority ({status})"),
        )
        .remedy(
            "reconnect the nodes, or start the dead ones: until then no task is created or run",
        );
    }
    match variables.number("wsrep_cluster_size") {
        Some(2) => Finding::warning(
            GALERA,
            format!(
                "`{name}` ({state}) of 2 nodes: when one dies, the other has no majority and stops"
            ),
        )
        .remedy("add a third node, or an arbitrator (`garbd`)"),
        size => Finding::ok(
            GALERA,
            format!(
                "`{name}` ({state}) of {} nodes; let `ledger.url` lead to one node at a time, since nodes that are written to at once reject each other's commits",
                size.unwrap_or(1)
            ),
        ),
    }
}

fn group(members: &[Member]) -> Finding {
    let is = |text: &str, word| text.eq_ignore_ascii_case(word);
    let primaries = members.iter().filter(|member| is(&member.role, "primary"));
    let primaries: Vec<String> = primaries
        .map(|member| format!("{}:{}", member.host, member.port))
        .collect();
    let online = members.iter().filter(|member| is(&member.state, "online"));
    let (online, all) = (online.count(), members.len());
    if online * 2 <= all {
        return Finding::error(
            GROUP,
            format!("{online} of {all} members of the group are online: there is no majority"),
        )
        .remedy("start the members that are away: until then no task is created or run");
    }
    match &primaries[..] {
        [primary] => Finding::ok(
            GROUP,
            format!("{online} of {all} members of the group are online; {primary} is the primary"),
        ),
        _ => Finding::warning(
            GROUP,
            format!(
                "the group has {} primaries: those that are written to at once reject each other's commits",
                primaries.len()
            ),
        )
        .remedy("switch to single-primary mode: `SELECT group_replication_switch_to_single_primary_mode()`"),
    }
}

/// Judges the readings of all nodes.
fn compare(readings: &[(String, Result<Reading, String>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut known = Vec::new();
    for (node, reading) in readings {
        match reading {
            Ok(reading) => known.push((node, *reading)),
            Err(why) => findings.push(Finding::unknown(
                NODES,
                format!("the clock of {node}: {why}"),
            )),
        }
    }
    let first = known.iter().min_by_key(|(_, reading)| reading.ahead_ms);
    let last = known.iter().max_by_key(|(_, reading)| reading.ahead_ms);
    let (Some((slow, behind)), Some((fast, ahead))) = (first, last) else {
        return findings;
    };
    let apart = Duration::from_millis((ahead.ahead_ms - behind.ahead_ms).unsigned_abs());
    if apart > APART + ahead.error + behind.error {
        findings.push(
            Finding::error(
                NODES,
                format!("the clock of {fast} is {} ahead of that of {slow}", duration(apart)),
            )
            .remedy("synchronize the clocks of the nodes (`chronyd`): after a failover tasks would start too early, and leases would end too early, by as much"),
        );
    } else if known.len() > 1 {
        findings.push(Finding::ok(
            NODES,
            format!(
                "the clocks of {} nodes agree within {}",
                known.len(),
                duration(apart)
            ),
        ));
    }
    findings
}

/// The addresses in `wsrep_incoming_addresses`. Skips a member that has none, such as an arbitrator.
fn parse_addresses(text: &str) -> Vec<(String, u16)> {
    let address = |text: &str| {
        let (host, port) = text.trim().rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), port.parse().ok()?))
    };
    text.split(',').filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    fn galera_of(status: &str, size: &str) -> Finding {
        galera(&Variables::of([
            ("wsrep_node_name", "db1"),
            ("wsrep_local_state_comment", "Synced"),
            ("wsrep_cluster_status", status),
            ("wsrep_cluster_size", size),
        ]))
    }

    #[test]
    fn a_galera_node_is_judged_by_its_majority() {
        let whole = galera_of("Primary", "3");
        assert_is(&whole, Severity::Ok, "`db1` (Synced) of 3 nodes");
        assert_is(&galera_of("Primary", "2"), Severity::Warning, "of 2 nodes");
        assert_is(
            &galera_of("non-Primary", "1"),
            Severity::Error,
            "without a majority",
        );
    }

    #[test]
    fn a_group_has_one_primary_and_a_majority() {
        let of = |members: &[(&str, &str)]| {
            let member = |(state, role): &(&str, &str)| Member {
                host: "db".to_owned(),
                port: 3306,
                state: (*state).to_owned(),
                role: (*role).to_owned(),
            };
            group(&members.iter().map(member).collect::<Vec<_>>())
        };
        let (primary, secondary) = (("ONLINE", "PRIMARY"), ("ONLINE", "SECONDARY"));
        let gone = ("UNREACHABLE", "SECONDARY");
        let whole = of(&[primary, secondary, secondary]);
        assert_is(&whole, Severity::Ok, "db:3306 is the primary");
        assert_is(&of(&[primary, gone, gone]), Severity::Error, "1 of 3");
        assert_is(
            &of(&[primary, primary, gone]),
            Severity::Warning,
            "2 primaries",
        );
    }

    #[test]
    fn clocks_more_than_100_ms_apart_are_an_error() {
        let node = |name: &str, ahead_ms, error_ms| {
            let error = Duration::from_millis(error_ms);
            (name.to_owned(), Ok(Reading { ahead_ms, error }))
        };
        let apart = compare(&[node("a:1", -40, 1), node("b:1", 80, 1)]);
        assert_is(
            &apart[0],
            Severity::Error,
            "b:1 is 120 ms ahead of that of a:1",
        );
        let near = compare(&[node("a:1", -40, 1), node("b:1", 59, 1)]);
        assert_is(&near[0], Severity::Ok, "2 nodes agree within 99 ms");
        // A slow answer says little.
        let slow = compare(&[node("a:1", 0, 1), node("b:1", 150, 80)]);
        assert_is(&slow[0], Severity::Ok, "agree");
        let refused = ("c:1".to_owned(), Err("refused".to_owned()));
        let unknown = compare(&[node("a:1", 0, 1), refused]);
        assert_is(&unknown[0], Severity::Note, "the clock of c:1: refused");
        assert_eq!(unknown.len(), 1, "one clock agrees with none");
    }

    #[test]
    fn addresses_of_nodes_are_parsed_and_those_of_arbitrators_skipped() {
        let parsed = parse_addresses("10.0.0.1:3306, [2001:db8::1]:3307,,AUTO,unspecified");
        let expected = [
            ("10.0.0.1".to_owned(), 3306),
            ("2001:db8::1".to_owned(), 3307),
        ];
        assert_eq!(parsed, expected);
    }
}
