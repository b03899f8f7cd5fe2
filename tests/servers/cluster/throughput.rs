//! What a daemon does on clusters of one and of three masters, beside a single server. Run it by itself, with `--ignored`.

use std::time::Duration;

use lapsed_sandbox::{PrivateCluster, PrivateRedis};
use tokio::time::Instant;

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::tasks::create_many;
use crate::support::wait::until_within;

const TASKS: usize = 10_000;

async fn measure(what: &str, url: &str) {
    let rig = Rig::new("").await;
    let config = rig.config_with(&format!("redis.url = '{url}'"));
    let daemon = Daemon::start(&config, handlers());
    daemon.hears_events().await;
    daemon.has_audited().await;

    let began = Instant::now();
    let receipts = create_many(
        &daemon.tasks,
        "Job@record@later@",
        TASKS as i64,
        3_600_000,
        1,
    )
    .await;
    let created = began.elapsed();
    assert!(receipts.iter().all(|receipt| receipt.armed));

    let delay = Duration::from_secs(8);
    let began = Instant::now();
    create_many(
        &daemon.tasks,
        "Job@record@burst@",
        TASKS as i64,
        delay.as_millis() as i64,
        0,
    )
    .await;
    until_within(Duration::from_secs(300), "the burst is done", async || {
        rig.with_status(1).await == TASKS as i64
    })
    .await;
    let burst = began.elapsed().saturating_sub(delay);
    rig.each_ran_once(TASKS).await;
    let per_second = |took: Duration| TASKS as f64 / took.as_secs_f64();
    println!(
        "{what}: {:.0} tasks created and armed a second, {:.0} run a second in a burst",
        per_second(created),
        per_second(burst)
    );
}

#[tokio::test]
#[ignore = "a measurement: it needs the machine for itself"]
async fn clusters_and_a_single_server_run_each_task_of_a_burst_once() {
    let single = PrivateRedis::start().await.unwrap();
    for _ in 0..2 {
        measure("a single server", &single.url()).await;
        for masters in [1, 3] {
            let cluster = PrivateCluster::start(masters, 0).await.unwrap();
            measure(&format!("a cluster of {masters}"), &cluster.url()).await;
        }
    }
}
