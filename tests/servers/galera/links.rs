//! Nodes whose links are cut: packets vanish, and no side is told.

use std::sync::Arc;

use lapsed_sandbox::{PrivateGalera, PrivateMaria, PrivateNetwork, SandboxError};
use sqlx::{Connection, MySqlConnection};
use tokio::time::Instant;

use super::{IS_SYNCED, synced_node};
use crate::replicated::balancer::Balancer;
use crate::replicated::{
    Load, another_writer, each_took_effect_once, until_none_waits, until_one_runs,
};
use crate::support::not_tried::not_tried;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// What a node without a majority says to every statement.
const NOT_PREPARED: &str = "WSREP has not yet prepared node for application use";

fn network(test: &str, machines: usize) -> Option<PrivateNetwork> {
    match PrivateNetwork::new(machines) {
        Ok(network) => Some(network),
        Err(SandboxError::NoNetwork { reason }) => {
            not_tried(test, &format!("links that are cut: {reason}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the node is one of three that have the data of all.
async fn until_synced(node: &PrivateMaria) {
    let state = "SELECT CAST(GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) AS CHAR) \
         FROM information_schema.GLOBAL_STATUS \
         WHERE VARIABLE_NAME IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state')";
    until("the node has the data of the others", async || {
        let Ok(mut node) = MySqlConnection::connect(&node.url("lapsed")).await else {
            return false;
        };
        let state: Result<String, _> = sqlx::query_scalar(state).fetch_one(&mut node).await;
        state.is_ok_and(|state| state == "3,Primary,4")
    })
    .await;
}

/// Waits until the node, which answers, refuses statements.
async fn until_refusing(node: &PrivateMaria) {
    until(
        "the node without a majority refuses statements",
        async || {
            let Ok(mut node) = MySqlConnection::connect(&node.url("")).await else {
                return false;
            };
            let count = "SELECT COUNT(*) FROM lapsed.tb_time_limit_task";
            let answer = sqlx::query(count).execute(&mut node).await;
            answer.is_err_and(|error| error.to_string().contains(NOT_PREPARED))
        },
    )
    .await;
}

#[ignore = "a cluster that loses links needs the machine for itself: scripts/soak runs it"]
#[tokio::test]
async fn each_task_takes_effect_once_and_never_early_while_links_are_cut() {
    let test = "each_task_takes_effect_once_and_never_early_while_links_are_cut";
    let Some(network) = network(test, 3) else {
        return;
    };
    let cluster = PrivateGalera::start_in(&network, "lapsed").await.unwrap();
    let balancer = Balancer::start(&cluster.nodes, &IS_SYNCED, "root").await;
    let rig = Setup::new("engine.lease = '5s'")
        .ledger(balancer.url())
        .start()
        .await;
    let daemon = Arc::new(rig.daemon());
    let other = rig.daemon();
    daemon.hears_events().await;
    other.hears_events().await;
    let load = Load::start(&daemon);
    until_one_runs(&rig).await;

    let began = Instant::now();
    network.cut(0).unwrap();
    let next = another_writer(&cluster.nodes, &balancer, 0).await;
    until_one_runs(&rig).await;
    println!(
        "a writer that nothing reaches: tasks run after {:?}",
        began.elapsed()
    );
    let began = Instant::now();
    network.heal(0).unwrap();
    until_synced(&cluster.nodes[0]).await;
    println!("healed: synced after {:?}", began.elapsed());

    let began = Instant::now();
    network.cut_from_others(next).unwrap();
    until_refusing(&cluster.nodes[next]).await;
    println!(
        "a writer cut from the others: refuses after {:?}",
        began.elapsed()
    );
    another_writer(&cluster.nodes, &balancer, next).await;
    until_one_runs(&rig).await;
    println!(
        "a writer cut from the others: tasks run after {:?}",
        began.elapsed()
    );
    let began = Instant::now();
    network.heal(next).unwrap();
    until_synced(&cluster.nodes[next]).await;
    println!("healed: synced after {:?}", began.elapsed());

    until_one_runs(&rig).await;
    let acknowledged = load.stop().await;
    let node = synced_node(&cluster).await;
    until_none_waits(&node).await;
    each_took_effect_once(&acknowledged, &node).await;
}
