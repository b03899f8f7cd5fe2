//! Daemons on a Redis Cluster, while its masters change and its slots move.

mod keys;

use lapsed::task::State;
use lapsed_sandbox::PrivateCluster;

use crate::cluster::keys::{Client, slot_of};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::wait::until;

async fn daemon_on(rig: &Rig, cluster: &PrivateCluster) -> Daemon {
    let config = rig.config_with(&format!("redis.url = '{}'", cluster.url()));
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    daemon.has_audited().await;
    daemon
}

/// A name of a task whose key is in a slot below the number, and not below the other.
fn name_in(slots: std::ops::Range<u16>, number: usize) -> String {
    (0..)
        .map(|salt| format!("Job@record@{number}@{salt}"))
        .find(|name| slots.contains(&slot_of(name)))
        .expect("each slot has names")
}

#[tokio::test]
async fn keys_of_each_master_are_adopted_run_cancelled_and_armed_again() {
    let rig = Rig::new("").await;
    let cluster = PrivateCluster::start(3, 0).await.unwrap();
    let daemon = daemon_on(&rig, &cluster).await;
    let mut client = Client::default();
    let thirds = [0..5_461, 5_461..10_922, 10_922..16_384];

    let mut expected = Vec::new();
    for (number, slots) in thirds.iter().enumerate() {
        let name = |kind: usize| name_in(slots.clone(), number * 10 + kind);
        let [short, created, deleted, moved] = [0, 1, 2, 3].map(name);
        let () = client.ask(&cluster, &["SETEX", &short, "1", ""]).await;
        assert!(daemon.create(&created, 700).await.armed, "{created}");
        let () = client.ask(&cluster, &["SETEX", &deleted, "600", ""]).await;
        let () = client.ask(&cluster, &["SETEX", &moved, "600", ""]).await;
        rig.until_adopted(&deleted).await;
        rig.until_adopted(&moved).await;
        let gone: i64 = client.ask(&cluster, &["DEL", &deleted]).await;
        assert_eq!(gone, 1);
        rig.until_state(&deleted, State::Cancelled).await;
        let () = client.ask(&cluster, &["PSETEX", &moved, "500", ""]).await;
        expected.extend([short, created, moved]);
    }
    for name in &expected {
        until(format!("`{name}` has run"), async || {
            !rig.runs_of(name).await.is_empty()
        })
        .await;
    }
    rig.each_ran_once(expected.len()).await;
    for run in rig.runs().await {
        println!("{} ms late: {}", run.at_ms - run.due_ms, run.name);
    }
}
