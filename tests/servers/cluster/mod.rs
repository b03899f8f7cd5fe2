//! Daemons on a Redis Cluster, while its masters change and its slots move.

mod access;
mod faults;
mod keys;
mod moves;
mod throughput;

use lapsed::Config;
use lapsed::task::State;
use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::PrivateCluster;

use crate::cluster::keys::{Client, migrate, slot_of, until_owned};
use crate::doctor::rig::{assert_contains, finding};
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::wait::until;

fn config_with_url(rig: &Rig, url: &str) -> Config {
    rig.config_with(&format!("redis.url = '{url}'"))
}

async fn daemon_on(rig: &Rig, cluster: &PrivateCluster) -> Daemon {
    let config = config_with_url(rig, &cluster.url());
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

#[tokio::test]
async fn a_key_that_moves_is_not_cancelled_and_its_deletion_later_is_heard() {
    let rig = Rig::new("").await;
    let cluster = PrivateCluster::start(2, 0).await.unwrap();
    let daemon = daemon_on(&rig, &cluster).await;
    let mut client = Client::default();
    let name = |number: usize| format!("Job@record@{{moved}}@{number}");
    let slot = slot_of(&name(0));
    let (from, to) = if slot < 8_192 { (0, 1) } else { (1, 0) };
    for number in 0..20 {
        let () = client
            .ask(&cluster, &["SETEX", &name(number), "600", ""])
            .await;
    }
    let () = client
        .ask(&cluster, &["SETEX", "Job@record@{moved}@soon", "6", ""])
        .await;
    daemon.create("Job@record@{moved}@created", 600_000).await;
    rig.until_adopted("Job@record@{moved}@soon").await;
    rig.until_adopted(&name(19)).await;

    let events = "lapsed_redis_events_total";
    let before = daemon.metric(events);
    migrate(&cluster, &[slot], from, to).await;
    until_owned(&cluster, slot, to).await;
    daemon
        .until_counted(events, |count| count >= before + 22.0)
        .await;
    rig.until_state("Job@record@{moved}@soon", State::Done)
        .await;
    for number in 0..20 {
        assert_eq!(rig.state(&name(number)).await, State::Pending, "{number}");
    }
    let _: i64 = client.ask(&cluster, &["DEL", &name(7)]).await;
    rig.until_state(&name(7), State::Cancelled).await;
    assert_eq!(
        rig.state("Job@record@{moved}@created").await,
        State::Pending
    );
}

#[tokio::test]
async fn the_doctor_checks_each_master_and_names_slots_without_one() {
    let rig = Rig::new("").await;
    let cluster = PrivateCluster::start(2, 0).await.unwrap();
    // The first node is gone, and the others tell of the rest.
    for place in [0, 1] {
        let user = [
            "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
        ];
        let () = cluster.ask(place, &user).await.unwrap();
    }
    let url = cluster.url().replace("//", "//app:secret@127.0.0.1:1,");
    let config = config_with_url(&rig, &url);
    let report = doctor::examine(&config).await;
    let found = finding(&report, "redis.cluster", Severity::Ok);
    assert_contains(&found.found, "2 masters: ");
    assert_contains(&found.found, "(8192 slots)");
    finding(&report, "redis.notifications", Severity::Error);
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    let report = doctor::examine(&config).await;
    finding(&report, "redis.notifications", Severity::Ok);
    finding(&report, "redis.rights", Severity::Ok);
    finding(&report, "redis.adoption", Severity::Ok);
    let clients: String = cluster.ask(1, &["CLIENT", "LIST"]).await.unwrap();
    let of_daemon = clients.lines().filter(|line| line.contains("user=app"));
    assert!(of_daemon.count() >= 2, "{clients}");
    let wrong = config_with_url(&rig, &url.replace("secret", "wrong"));
    let report = doctor::examine(&wrong).await;
    let found = finding(&report, "redis.reachable", Severity::Error);
    assert_contains(&found.found, "refuses the credentials");

    for place in [0, 1] {
        let delete = ["CLUSTER", "DELSLOTS", "0"];
        let () = cluster.ask(place, &delete).await.unwrap();
    }
    let report = doctor::examine(&config).await;
    let found = finding(&report, "redis.cluster", Severity::Error);
    assert_contains(&found.found, "1 slots have no master");

    let node = format!(
        "redis.url = 'redis://127.0.0.1:{}'",
        cluster.nodes[0].port()
    );
    let report = doctor::examine(&rig.config_with(&node)).await;
    let found = finding(&report, "redis.cluster", Severity::Error);
    assert_contains(found.remedy.as_deref().unwrap(), "redis+cluster://");
}

#[tokio::test]
async fn tasks_run_from_their_rows_while_no_node_answers() {
    let rig = Rig::new("").await;
    let mut cluster = PrivateCluster::start(2, 0).await.unwrap();
    let daemon = daemon_on(&rig, &cluster).await;
    for node in &cluster.nodes {
        node.stop_process().unwrap();
    }
    let hung = daemon.create("Job@record@hung", 300).await;
    assert!(!hung.armed);
    rig.until_state("Job@record@hung", State::Done).await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    assert!(!daemon.create("Job@record@gone", 300).await.armed);
    rig.until_state("Job@record@gone", State::Done).await;
    for node in &mut cluster.nodes {
        node.start_again().await.unwrap();
    }
    cluster.until_ready().await.unwrap();
    daemon.hears_events().await;
    until("keys are armed again", async || {
        daemon.create("Job@record@back", 300).await.armed
    })
    .await;
    rig.until_state("Job@record@back", State::Done).await;
}
