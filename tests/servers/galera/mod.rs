//! A ledger on a Galera cluster, with one writer at a time.
//!
//! `LAPSED_TEST_FAILOVERS` sets how often the writer is killed, once by default.

mod arbitrator;
mod donor;
mod links;

use std::sync::Arc;

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Admin, Claims, LedgerError};
use lapsed::task::Arming;
use lapsed::{Config, Due};
use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::PrivateGalera;
use sqlx::{Connection, Executor, MySqlConnection};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::arbitrator::Arbitrator;
use crate::doctor::rig::{assert_contains, finding};
use crate::ledger_conformance::rig as conformance;
use crate::replicated::balancer::{Balancer, Check, write_program};
use crate::replicated::{
    Load, another_writer, each_took_effect_once, until_none_waits, until_one_runs,
};
use crate::support::setup::Setup;
use crate::support::tasks::key;
use crate::support::wait::until;

const IS_SYNCED: Check = Check {
    word: "wsrep_local_state",
    user: "CREATE USER haproxy IDENTIFIED BY 'secret'",
};

/// Connects to a node that has the data of the majority. Reads wait until it has applied what the cluster has committed.
async fn synced_node(cluster: &PrivateGalera) -> Mutex<MySqlConnection> {
    let found = Mutex::new(None);
    until("a node of the majority is synced", async || {
        for node in &cluster.nodes {
            let Ok(mut connection) = MySqlConnection::connect(&node.url("lapsed")).await else {
                continue;
            };
            let state = "SHOW GLOBAL STATUS WHERE (Variable_name = 'wsrep_local_state' AND Value = '4') \
                         OR (Variable_name = 'wsrep_cluster_status' AND Value = 'Primary')";
            if connection.fetch_all(state).await.is_ok_and(|rows| rows.len() == 2) {
                connection.execute("SET SESSION wsrep_sync_wait = 1").await.unwrap();
                *found.lock().await = Some(connection);
                return true;
            }
        }
        false
    })
    .await;
    Mutex::new(found.into_inner().expect("found"))
}

#[ignore = "a cluster that dies and hangs needs the machine for itself: scripts/soak runs it"]
#[tokio::test]
async fn each_task_takes_effect_once_and_never_early_while_writers_die_hang_and_lose_their_majority()
 {
    let mut cluster = PrivateGalera::start(3, "lapsed").await.unwrap();
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

    let mut writer = 0;
    for _ in 0..crate::failover::failovers() {
        until_one_runs(&rig).await;
        let began = Instant::now();
        cluster.nodes[writer].kill();
        let next = another_writer(&cluster.nodes, &balancer, writer).await;
        until_one_runs(&rig).await;
        println!("a killed writer: tasks run after {:?}", began.elapsed());
        cluster.rejoin(writer).await.unwrap();
        // The writer that returns is not written to beside the new one.
        assert_eq!(
            another_writer(&cluster.nodes, &balancer, writer).await,
            next
        );
        writer = next;
    }
    let began = Instant::now();
    cluster.nodes[writer].stop_process().unwrap();
    let next = another_writer(&cluster.nodes, &balancer, writer).await;
    until_one_runs(&rig).await;
    println!("a hanging writer: tasks run after {:?}", began.elapsed());
    cluster.nodes[writer].continue_process().unwrap();
    writer = next;

    // The others cannot be reached: what the writer has not committed with them fails.
    let others: Vec<usize> = (0..3).filter(|number| *number != writer).collect();
    let began = Instant::now();
    for number in &others {
        cluster.nodes[*number].stop_process().unwrap();
    }
    until("the writer has lost the majority", async || {
        balancer.writer().await.is_none()
    })
    .await;
    println!("no majority: no writer after {:?}", began.elapsed());
    let began = Instant::now();
    for number in others {
        cluster.nodes[number].continue_process().unwrap();
    }
    until_one_runs(&rig).await;
    println!("a majority again: tasks run after {:?}", began.elapsed());

    let acknowledged = load.stop().await;
    let node = synced_node(&cluster).await;
    until_none_waits(&node).await;
    each_took_effect_once(&acknowledged, &node).await;
}

#[tokio::test]
async fn a_task_is_claimed_once_although_two_nodes_are_written_to() {
    let cluster = PrivateGalera::start(2, "lapsed").await.unwrap();
    let ledger = |number: usize| {
        let mut config = Config::default().ledger;
        config.url = cluster.nodes[number].url("lapsed").into();
        MysqlLedger::new(&config).unwrap()
    };
    let (one, other) = (ledger(0), ledger(1));
    // Advisory locks are not replicated. The statements are.
    let (first, second) = tokio::join!(one.migrate(), other.migrate());
    first.unwrap();
    second.unwrap();
    let mut shares = [0, 0];
    for round in 0..40 {
        let mut armings = Vec::new();
        for number in 0..5 {
            let key = conformance::key("nodes", format!("{round}-{number}"));
            armings.push(conformance::create(&one, &key, -5).await);
        }
        let last = conformance::key("nodes", format!("{round}-4"));
        until("the other node has the rows", async || {
            other.find(&last).await.unwrap().is_some()
        })
        .await;
        let (one, other) = (claim_all(&one, &armings), claim_all(&other, &armings));
        let (mine, theirs) = if round % 2 == 0 {
            tokio::join!(one, other)
        } else {
            let (theirs, mine) = tokio::join!(other, one);
            (mine, theirs)
        };
        shares = [shares[0] + mine.len(), shares[1] + theirs.len()];
        let mut rows = [mine, theirs].concat();
        rows.sort_unstable();
        let expected: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
        assert_eq!(rows, expected, "each once");
    }
    println!("claimed by each node: {shares:?}");
}

/// Claims what is free, and does so again when the nodes disagree. Returns the rows.
async fn claim_all(ledger: &MysqlLedger, armings: &[Arming]) -> Vec<u64> {
    let by = conformance::by(conformance::LEASE);
    loop {
        match ledger.claim(armings, &by).await {
            Ok(claims) => return claims.iter().map(|claim| claim.lease.arming.row).collect(),
            Err(LedgerError::Locked { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn with_an_arbitrator_the_second_of_two_nodes_goes_on() {
    let mut cluster = PrivateGalera::start(2, "lapsed").await.unwrap();
    let _arbitrator = Arbitrator::start(&cluster);
    let rig = Setup::new("engine.lease = '5s'")
        .ledger(cluster.nodes[1].url("lapsed"))
        .start()
        .await;
    let daemon = rig.listening_daemon().await;
    until("the arbitrator has joined", async || {
        let report = doctor::examine(&rig.config()).await;
        let mut galera = report
            .findings
            .iter()
            .filter(|it| it.check == "ledger.galera");
        galera.any(|it| it.found.contains("of 3 nodes"))
    })
    .await;
    cluster.nodes[0].kill();
    until("tasks are created again", async || {
        let due = Due::after_ms(0).unwrap();
        daemon.tasks.create(key("Job@trace@1"), due).await.is_ok()
    })
    .await;
    rig.until_done(1).await;
    let report = doctor::examine(&rig.config()).await;
    finding(&report, "ledger.galera", Severity::Warning);
}

#[tokio::test]
async fn doctor_names_the_nodes_and_refuses_clocks_that_differ() {
    // The clock of one node is 300 ms ahead.
    let directory = TempDir::new().unwrap();
    let ahead = directory.path().join("mariadbd");
    let library = crate::support::faked_clock::library();
    let script = format!(
        "#!/bin/sh\nexport LD_PRELOAD={} FAKETIME=+0.3s FAKETIME_DONT_FAKE_MONOTONIC=1\nexec mariadbd \"$@\"\n",
        library.display()
    );
    write_program(&ahead, &script);
    let cluster = PrivateGalera::start_with(3, "lapsed", |number, options| match number {
        2 => options.program(ahead.to_str().unwrap()),
        _ => options,
    });
    let mut cluster = cluster.await.unwrap();
    let rig = Setup::new("")
        .ledger(cluster.nodes[0].url("lapsed"))
        .start()
        .await;
    let of = |number: usize| format!("127.0.0.1:{}", cluster.nodes[number].port());
    let report = doctor::examine(&rig.config()).await;
    let galera = finding(&report, "ledger.galera", Severity::Ok);
    assert_contains(&galera.found, "`node0` (Synced) of 3 nodes");
    let clocks = finding(&report, "ledger.nodes", Severity::Error);
    assert_contains(&clocks.found, &format!("the clock of {} is ", of(2)));

    cluster.nodes[2].kill();
    until("two nodes are left", async || {
        let report = doctor::examine(&rig.config()).await;
        report
            .findings
            .iter()
            .any(|it| it.check == "ledger.galera" && it.severity == Severity::Warning)
    })
    .await;
    let report = doctor::examine(&rig.config()).await;
    let clocks = finding(&report, "ledger.nodes", Severity::Ok);
    assert_contains(&clocks.found, "the clocks of 2 nodes agree within ");
}
