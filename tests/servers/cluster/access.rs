//! Nodes behind TLS and names, and users with the least rights.

use std::process::Command;

use lapsed::task::State;
use lapsed_doctor::{self as doctor, Report, Severity};
use lapsed_sandbox::{PrivateCluster, PrivateRedis, RedisOptions};
use tempfile::{NamedTempFile, TempDir};

use crate::cluster::config_with_url;
use crate::cluster::keys::{Client, Moving, slot_of};
use crate::doctor::rig::{assert_contains, finding};
use crate::replicated::balancer::free_port;
use crate::support::certificate::write_certificate;
use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::process::Process;
use crate::support::program::{lapsed, said};
use crate::support::rig::Rig;

/// Nodes that speak TLS at these ports, too, with a certificate for `localhost`, which they announce. Its authority is in the
/// file `ca.pem` of the directory.
fn with_tls(directory: &TempDir, ports: &[u16]) -> Vec<RedisOptions> {
    write_certificate(directory.path(), "localhost");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let options = ports.iter().map(|port| {
        PrivateRedis::options()
            .set("tls-port", &port.to_string())
            .set("tls-cluster", "yes")
            .set("tls-auth-clients", "no")
            .set("tls-ca-cert-file", &path("ca.pem"))
            .set("tls-cert-file", &path("cert.pem"))
            .set("tls-key-file", &path("key.pem"))
            .set("cluster-announce-hostname", "localhost")
    });
    options.collect()
}

#[tokio::test]
async fn nodes_are_reached_by_name_where_certificates_have_names() {
    let rig = Rig::new("").await;
    let directory = TempDir::new().unwrap();
    let ports = [free_port(), free_port()];
    let cluster = PrivateCluster::start_with(with_tls(&directory, &ports), 2, 0)
        .await
        .unwrap();
    // One node is named, by the name that the certificate has. It tells of the other.
    let mut config: toml::Table = rig.config_text().parse().unwrap();
    let url = format!("rediss+cluster://localhost:{}", ports[0]);
    config["redis"] = toml::Table::from_iter([("url".to_owned(), url.into())]).into();
    let config = || {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), toml::to_string(&config).unwrap()).unwrap();
        file
    };
    let authority = directory.path().join("ca.pem").display().to_string();
    let trust = [("SSL_CERT_FILE", &authority[..])];
    let daemon = Process::worker_with(config(), &trust);
    daemon.until_logged("subscribed to expired events").await;

    let mut client = Client::default();
    let name = |number: usize| format!("Job@record@{{{}}}@{number}", ["a", "b"][number % 2]);
    assert_ne!(slot_of(&name(0)) < 8_192, slot_of(&name(1)) < 8_192);
    for number in 0..2 {
        let () = client
            .ask(&cluster, &["SETEX", &name(number), "600", ""])
            .await;
        rig.until_adopted(&name(number)).await;
    }
    // While a slot moves, a node redirects to the other one by its IP, for which there is no certificate.
    let (from, to) = if slot_of(&name(0)) < 8_192 {
        (0, 1)
    } else {
        (1, 0)
    };
    let mut moving = Moving::begin(&cluster, slot_of(&name(0)), from, to).await;
    moving.hand_over(&[name(0)], ports[to]).await;
    let () = client.ask(&cluster, &["SETEX", &name(2), "600", ""]).await;
    rig.until_adopted(&name(2)).await;
    let _: i64 = client.ask(&cluster, &["DEL", &name(2)]).await;
    rig.until_state(&name(2), State::Cancelled).await;
    let () = client
        .ask(&cluster, &["PSETEX", &name(4), "3000", ""])
        .await;
    rig.until_adopted(&name(4)).await;
    rig.until_state(&name(4), State::Done).await;
    assert_eq!(rig.state(&name(0)).await, State::Pending);

    let doctor = |trust: &[(&str, &str)]| {
        let config = config();
        let mut doctor = lapsed();
        doctor.arg("doctor").arg("--config").arg(config.path());
        let doctor: &mut Command = doctor.envs(trust.iter().copied());
        said(doctor.output().unwrap())
    };
    let (_, report, _) = doctor(&trust);
    for port in ports {
        assert_contains(&report, &format!("localhost:{port} ("));
    }
    let (_, report, _) = doctor(&[]);
    assert_contains(&report, "cannot reach redis");
}

/// The rules of the daemon's user, from SECURITY.md.
fn rules() -> Vec<String> {
    let page = crate::pages::block::root().join("SECURITY.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut lines = page.lines();
    let rules = lines.find(|line| line.starts_with("ACL SETUSER lapsed "));
    let rules = rules.unwrap().split(' ').map(str::to_owned);
    let more = "`+cluster|nodes +asking`";
    assert!(page.contains(more), "{more}");
    rules
        .chain(["+cluster|nodes".to_owned(), "+asking".to_owned()])
        .collect()
}

fn of_rights(report: &Report) -> Vec<&str> {
    let findings = report.findings.iter();
    findings
        .filter(|it| it.severity >= Severity::Warning && it.check.starts_with("redis."))
        .map(|it| &it.found[..])
        .collect()
}

#[tokio::test]
async fn the_documented_rights_are_enough_and_one_that_a_single_node_lacks_is_named() {
    let rig = Rig::new("").await;
    let cluster = PrivateCluster::start_with(
        vec![PrivateRedis::options().set("notify-keyspace-events", "Exg")],
        2,
        1,
    )
    .await
    .unwrap();
    let rules = rules();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    for place in 0..4 {
        let () = cluster.ask(place, &rules).await.unwrap();
    }
    let url = cluster.url().replace("//", "//lapsed:change-me@");
    let config = config_with_url(&rig, &url);
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    daemon.has_audited().await;
    let mut client = Client::default();
    let name = |number: usize| format!("Job@record@{{{}}}@{number}", ["a", "b"][number % 2]);
    for number in 0..4 {
        let () = client
            .ask(&cluster, &["SETEX", &name(number), "600", ""])
            .await;
        rig.until_adopted(&name(number)).await;
        let _: i64 = client.ask(&cluster, &["DEL", &name(number)]).await;
        rig.until_state(&name(number), State::Cancelled).await;
    }
    assert!(daemon.create(&name(4), 500).await.armed);
    rig.until_state(&name(4), State::Done).await;
    let slot = slot_of(&name(0));
    let (from, to) = if slot < 8_192 { (0, 1) } else { (1, 0) };
    let moving = Moving::begin(&cluster, slot, from, to).await;
    let () = client.ask(&cluster, &["SETEX", &name(6), "600", ""]).await;
    rig.until_adopted(&name(6)).await;
    moving.end().await;

    let report = doctor::examine(&config).await;
    finding(&report, "redis.rights", Severity::Ok);
    finding(&report, "redis.adoption", Severity::Ok);
    let node = format!("127.0.0.1:{}", cluster.nodes[1].port());
    for (right, named) in [
        ("+set", "`SET`"),
        ("+del", "`DEL`"),
        ("+pttl", "`PTTL`"),
        ("+getrange", "`GETRANGE`"),
        ("+psubscribe", "`PSUBSCRIBE`"),
        ("+scan", "`SCAN`"),
        ("+info", "`INFO`"),
        ("+cluster|nodes", "`CLUSTER NODES`"),
        ("+asking", "`ASKING`"),
    ] {
        let without: Vec<&str> = rules.iter().copied().filter(|it| *it != right).collect();
        let () = cluster.ask(1, &without).await.unwrap();
        let report = doctor::examine(&config).await;
        let found = of_rights(&report);
        let is_named = |found: &&&str| found.starts_with(&node) && found.contains(named);
        assert!(found.iter().any(|it| is_named(&it)), "{right}: {report}");
    }
    let () = cluster.ask(1, &rules).await.unwrap();

    // Users are not copied to replicas.
    let () = cluster.ask(2, &["ACL", "DELUSER", "lapsed"]).await.unwrap();
    let report = doctor::examine(&config).await;
    let found = finding(&report, "redis.rights", Severity::Error);
    let replica = format!("127.0.0.1:{}, a replica", cluster.nodes[2].port());
    assert_contains(&found.found, &replica);
}
