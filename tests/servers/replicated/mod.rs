//! A load on a replicated ledger while its nodes fail, and what is demanded after it.

pub mod balancer;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapsed::{ClientError, Due};
use lapsed_sandbox::PrivateMaria;
use sqlx::MySqlConnection;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use self::balancer::Balancer;
use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

/// Time between two creations: 200 a second.
const APART: Duration = Duration::from_millis(5);

/// Creates tasks, each due within two seconds.
pub struct Load {
    stops: Arc<AtomicBool>,
    running: JoinHandle<BTreeSet<String>>,
}

impl Load {
    pub fn start(daemon: &Arc<Daemon>) -> Self {
        let stops = Arc::<AtomicBool>::default();
        let (daemon, stopped) = (Arc::clone(daemon), Arc::clone(&stops));
        let running = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(APART);
            let mut creations = JoinSet::new();
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let (daemon, name) = (Arc::clone(&daemon), format!("Job@trace@{number}"));
                let due = Due::after_ms(number * 37 % 2_000).unwrap();
                number += 1;
                creations.spawn(async move {
                    match daemon.tasks.create(key(&name), due).await {
                        Ok(_) => Some(name),
                        Err(ClientError::Ledger(error)) if error.is_transient() => None,
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            println!("{number} tasks were sent");
            creations.join_all().await.into_iter().flatten().collect()
        });
        Self { stops, running }
    }

    /// Returns the names of the tasks that were acknowledged.
    pub async fn stop(self) -> BTreeSet<String> {
        self.stops.store(true, Ordering::Relaxed);
        self.running.await.unwrap()
    }
}

/// Waits until another node is the writer. Returns its number.
pub async fn another_writer(nodes: &[PrivateMaria], balancer: &Balancer, before: usize) -> usize {
    let old = nodes[before].port();
    let found = Cell::new(None);
    until("another node is the writer", async || {
        found.set(balancer.writer().await.filter(|port| *port != old));
        found.get().is_some()
    })
    .await;
    let port = found.get().unwrap();
    nodes.iter().position(|node| node.port() == port).unwrap()
}

/// Waits until a task runs that did not run before.
pub async fn until_one_runs(rig: &Rig) {
    let done = async || {
        let count = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1";
        let count: Result<i64, _> = sqlx::query_scalar(count).fetch_one(&rig.sql).await;
        count.ok()
    };
    let before = Cell::new(None);
    until("tasks run", async || match (before.get(), done().await) {
        (None, count) => {
            before.set(count);
            false
        }
        (before, count) => count > before,
    })
    .await;
}

/// Waits until each task has ended, as this node knows it.
pub async fn until_none_waits(node: &Mutex<MySqlConnection>) {
    until("no task waits", async || {
        let waits = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0";
        let waits: i64 = sqlx::query_scalar(waits)
            .fetch_one(&mut *node.lock().await)
            .await
            .unwrap();
        waits == 0
    })
    .await;
}

/// Each of these tasks has taken effect, none twice, none early.
pub async fn each_took_effect_once(acknowledged: &BTreeSet<String>, node: &Mutex<MySqlConnection>) {
    let runs: Vec<(String, i64, i64)> = sqlx::query_as("SELECT name, due_ms, at_ms FROM runs")
        .fetch_all(&mut *node.lock().await)
        .await
        .unwrap();
    let ran: BTreeSet<&str> = runs.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(ran.len(), runs.len(), "names, runs");
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|name| !ran.contains(name.as_str()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    for (name, due_ms, at_ms) in &runs {
        assert!(at_ms >= due_ms, "{name} is early: {at_ms}, due {due_ms}");
    }
    let mut late: Vec<i64> = runs
        .iter()
        .map(|(_, due_ms, at_ms)| at_ms - due_ms)
        .collect();
    late.sort_unstable();
    println!(
        "{} tasks acknowledged, {} run; lateness p50 {} ms, p99 {} ms, max {} ms",
        acknowledged.len(),
        runs.len(),
        late[late.len() / 2],
        late[late.len() * 99 / 100],
        late[late.len() - 1]
    );
}
