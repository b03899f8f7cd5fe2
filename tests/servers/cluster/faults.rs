//! A cluster whose masters are killed, whose slots move, and whose nodes come and go, under load.
//!
//! `LAPSED_TEST_CLUSTER_KEYS` sets how many bare keys, and how many created tasks, wait meanwhile: 600 each by default.
//! `LAPSED_TEST_CLUSTER_SLOTS` sets how many slots of each master move. They move by `MIGRATE`, and then at once if the server
//! is Valkey 9: put a `redis-server` first into `PATH` that runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lapsed_sandbox::PrivateCluster;
use tokio::sync::RwLock;
use tokio::time::Instant;

use crate::cluster::daemon_on;
use crate::cluster::keys::{
    Client, has_atomic_moves, id, migrate, migrate_at_once, slots_of, until_owned,
};
use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::tasks::create_many;
use crate::support::wait::{until, until_within};

fn setting(name: &str, default: usize) -> usize {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Creates tasks and arms keys, 200 a second in all, each due within seconds.
struct Load {
    stops: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
    running: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(daemon: &Arc<Daemon>, cluster: &Arc<RwLock<PrivateCluster>>) -> Self {
        let (stops, number) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (daemon, cluster) = (Arc::clone(daemon), Arc::clone(cluster));
        let (stopped, count) = (Arc::clone(&stops), Arc::clone(&number));
        let running = tokio::spawn(async move {
            let mut client = Client::default();
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let number = count.fetch_add(1, Ordering::Relaxed);
                let delay = (number as i64 * 37) % 2_000;
                let name = format!("Job@record@load@{number}");
                // A bare key that its master has not given to a replica is lost with that master.
                if number.is_multiple_of(4) {
                    let delay = (3_000 + delay).to_string();
                    let cluster = cluster.read().await;
                    let () = client.ask(&cluster, &["PSETEX", &name, &delay, ""]).await;
                } else {
                    daemon.create(&name, delay).await;
                }
            }
        });
        Self {
            stops,
            number,
            running,
        }
    }

    async fn stop(self) -> usize {
        self.stops.store(true, Ordering::Relaxed);
        self.running.await.unwrap();
        self.number.load(Ordering::Relaxed)
    }
}

/// Kills the node at this place, waits until its replica serves its slots and is heard, and starts it again as a replica.
async fn replace(cluster: &RwLock<PrivateCluster>, daemon: &Daemon, place: usize) {
    let slots = slots_of(&*cluster.read().await, place).await;
    let id = id(&*cluster.read().await, place).await;
    let killed = Instant::now();
    cluster.write().await.nodes[place].kill();
    until("a replica is promoted", async || {
        let cluster = cluster.read().await;
        let mut running = cluster.running();
        let asked = running.next().unwrap();
        let nodes: String = cluster.ask(asked, &["CLUSTER", "NODES"]).await.unwrap();
        let first = slots[0].to_string();
        nodes.lines().any(|line| {
            !line.starts_with(&id)
                && line
                    .split(' ')
                    .skip(8)
                    .any(|range| range.split('-').next() == Some(&first[..]))
        })
    })
    .await;
    let promoted = killed.elapsed();
    until("the cluster serves all slots", async || {
        let cluster = cluster.read().await;
        let asked = cluster.running().next().unwrap();
        let info: String = cluster.ask(asked, &["CLUSTER", "INFO"]).await.unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    daemon.hears_events().await;
    println!(
        "master {place}: promoted {promoted:?} after the kill, all masters heard {:?} after that",
        killed.elapsed() - promoted
    );
    cluster.write().await.nodes[place]
        .start_again()
        .await
        .unwrap();
    cluster.read().await.until_ready().await.unwrap();
}

/// The places of the masters that have slots.
async fn masters(cluster: &PrivateCluster) -> Vec<usize> {
    let mut masters = Vec::new();
    for place in cluster.running() {
        if !slots_of(cluster, place).await.is_empty() {
            masters.push(place);
        }
    }
    masters
}

#[tokio::test]
async fn no_task_is_lost_cancelled_or_doubled_while_masters_die_and_slots_move() {
    let keys = setting("LAPSED_TEST_CLUSTER_KEYS", 600);
    let moved = setting("LAPSED_TEST_CLUSTER_SLOTS", 60);
    let rig = Rig::new("").await;
    let cluster = PrivateCluster::start(3, 1).await.unwrap();
    let daemon = Arc::new(daemon_on(&rig, &cluster).await);
    let other = daemon_on(&rig, &cluster).await;
    // They fall due while all that happens, and after it.
    let (first_ms, apart_ms) = (10_000, (60_000 + keys as i64 * 3) / keys as i64);
    create_many(
        &daemon.tasks,
        "Job@record@created@",
        keys as i64,
        first_ms,
        apart_ms,
    )
    .await;
    let mut client = Client::default();
    let began = Instant::now();
    for number in 0..keys {
        let due = first_ms + number as i64 * apart_ms - began.elapsed().as_millis() as i64;
        let (name, due) = (
            format!("Job@record@bare@{number}"),
            due.max(1_000).to_string(),
        );
        let () = client.ask(&cluster, &["PSETEX", &name, &due, ""]).await;
    }
    until("all bare keys are adopted", async || {
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task WHERE adopted = 1")
            .await
            >= keys as i64
    })
    .await;
    println!(
        "{keys} bare keys and {keys} created tasks wait, {:?}",
        began.elapsed()
    );

    let cluster = Arc::new(RwLock::new(cluster));
    let load = Load::start(&daemon, &cluster);
    for place in 0..3 {
        replace(&cluster, &daemon, place).await;
    }
    {
        let cluster = cluster.read().await;
        let masters = masters(&cluster).await;
        let began = Instant::now();
        for (index, from) in masters.iter().enumerate() {
            let to = masters[(index + 1) % masters.len()];
            let slots = slots_of(&cluster, *from).await;
            let slots = &slots[..moved];
            migrate(&cluster, slots, *from, to).await;
            until_owned(&cluster, slots[moved - 1], to).await;
        }
        println!(
            "{} slots moved in {:?}",
            moved * masters.len(),
            began.elapsed()
        );
    }
    if has_atomic_moves(&*cluster.read().await).await {
        let cluster = cluster.read().await;
        let masters = masters(&cluster).await;
        let began = Instant::now();
        for (index, from) in masters.iter().enumerate() {
            let to = masters[(index + 1) % masters.len()];
            let slots = slots_of(&cluster, *from).await;
            let slots = &slots[..moved];
            migrate_at_once(&cluster, slots, *from, to).await;
            until_owned(&cluster, slots[moved - 1], to).await;
        }
        println!(
            "{} slots moved at once in {:?}",
            moved * masters.len(),
            began.elapsed()
        );
    }
    let added = cluster.write().await.add_master().await.unwrap();
    {
        let cluster = cluster.read().await;
        let masters = masters(&cluster).await;
        let slots = slots_of(&cluster, masters[0]).await;
        let slots = &slots[..moved];
        migrate(&cluster, slots, masters[0], added).await;
        until_owned(&cluster, slots[moved - 1], added).await;
        daemon.hears_events().await;
        migrate(&cluster, slots, added, masters[1]).await;
        until_owned(&cluster, slots[moved - 1], masters[1]).await;
        let left = id(&cluster, added).await;
        for place in cluster.running().filter(|place| *place != added) {
            let _: redis::Value = cluster
                .ask(place, &["CLUSTER", "FORGET", &left])
                .await
                .unwrap();
        }
    }
    cluster.write().await.nodes[added].kill();
    println!("a node was added and removed");
    daemon.hears_events().await;
    other.hears_events().await;
    let loaded = load.stop().await;

    let count = 2 * keys + loaded;
    until_within(
        Duration::from_secs(600),
        format!("{count} tasks are done"),
        async || rig.with_status(1).await >= count as i64,
    )
    .await;
    rig.each_ran_once(count).await;
    let cancelled = "SELECT COUNT(*) FROM tb_time_limit_task WHERE sts <> 0";
    assert_eq!(rig.number(cancelled).await, 0, "cancelled");
    let mut late: Vec<i64> = rig
        .runs()
        .await
        .iter()
        .map(|run| run.at_ms - run.due_ms)
        .collect();
    late.sort_unstable();
    println!(
        "{count} tasks; lateness p50 {} ms, p99 {} ms, max {} ms",
        late[count / 2],
        late[count * 99 / 100],
        late[count - 1]
    );
}
