//! Random armings by programs, while one of two daemons hears of them late: a proxy holds what it and Redis say to each
//! other, for up to six seconds, and loses nothing. Every arming runs once, none after its cancellation was acknowledged.
//!
//! `LAPSED_LATE_SEED=7 cargo test --test servers random_operations::lateness` runs one seed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use lapsed::ledger::CancelAnswer;
use lapsed::task::Scope;
use lapsed::{TaskClient, TaskContext};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::support::daemon::Daemon;
use crate::support::handlers::{handlers, write_down};
use crate::support::rig::Rig;
use crate::support::tasks::{create, key};
use crate::support::tcp_proxy::in_front_of;
use crate::support::wait::until;

const SEEDS: u64 = 4;

const KEYS: usize = 60;

/// The first operation on a key is carried out within this time.
const LENGTH_MS: u64 = 9_000;

/// A port in front of Redis that passes nothing on while it is held.
struct Link {
    port: u16,
    held: watch::Sender<bool>,
}

impl Link {
    async fn to(target: u16) -> Self {
        let (held, is_held) = watch::channel(false);
        let port = in_front_of(target, move |client, server| {
            let is_held = is_held.clone();
            async move {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::select! {
                    () = pass_on(from_client, to_server, is_held.clone()) => {}
                    () = pass_on(from_server, to_client, is_held) => {}
                }
            }
        })
        .await;
        Self { port, held }
    }

    /// Holds the bytes again and again, for random times.
    async fn hold_at_random(&self, mut random: StdRng) {
        loop {
            let (rest, hold) = (random.random_range(0..2_000), random.random_range(0..6_000));
            sleep(Duration::from_millis(rest)).await;
            self.held.send_replace(true);
            sleep(Duration::from_millis(hold)).await;
            self.held.send_replace(false);
        }
    }
}

async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_held: watch::Receiver<bool>,
) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if is_held.wait_for(|held| !held).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
}

/// What is done with a key.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Armed,
    /// Its run takes two seconds.
    ArmedSlow,
    /// Again, after it has run.
    ArmedAgain,
    /// To another time, long before it would have fallen due.
    Moved,
    /// Long before it would have fallen due.
    Deleted,
    /// By a client, as soon as it has a row.
    Cancelled,
    /// By a client, after it fell due while it was paused.
    CancelledWhenDue,
}

const DEEDS: [Deed; 7] = [
    Deed::Armed,
    Deed::ArmedSlow,
    Deed::ArmedAgain,
    Deed::Moved,
    Deed::Deleted,
    Deed::Cancelled,
    Deed::CancelledWhenDue,
];

/// What is to come of a key.
struct Expected {
    name: String,
    deed: Deed,
    runs: usize,
    /// No run before this, on the database's clock.
    not_before: i64,
}

struct Trial {
    rig: Rig,
    client: TaskClient,
}

impl Trial {
    async fn state(&self, name: &str) -> Option<(i64, i64)> {
        let row = "SELECT CAST(status AS SIGNED), CAST(end_time * 1000 AS SIGNED) FROM tb_time_limit_task WHERE `key` = ?";
        let row = sqlx::query_as(row).bind(name);
        row.fetch_optional(&self.rig.sql).await.unwrap()
    }

    /// Waits until the row of this key is so.
    async fn until_row(&self, name: &str, is: impl AsyncFn((i64, i64)) -> bool) {
        until(format!("`{name}` has its row"), async || {
            match self.state(name).await {
                Some(row) => is(row).await,
                None => false,
            }
        })
        .await;
    }

    async fn cancel(&self, name: &str) -> usize {
        match self.client.cancel(key(name)).await.unwrap() {
            CancelAnswer::Cancelled => 0,
            CancelAnswer::Running | CancelAnswer::Finished(_) => 1,
            CancelAnswer::Unknown => panic!("`{name}` has a row"),
        }
    }

    /// Does this with a key.
    async fn follow(&self, n: usize, mut random: StdRng) -> Expected {
        let deed = DEEDS[random.random_range(0..DEEDS.len())];
        let method = match deed {
            Deed::ArmedSlow => "slow",
            Deed::CancelledWhenDue => "paused",
            _ => "record",
        };
        let name = format!("Job@{method}@{n}");
        sleep(Duration::from_millis(random.random_range(0..LENGTH_MS))).await;
        let mut not_before = self.rig.now_ms().await;
        let mut arm = async |from_ms: i64, to_ms: i64| {
            let ttl_ms = random.random_range(from_ms..to_ms);
            not_before = self.rig.now_ms().await + ttl_ms - 2;
            self.rig.arm(&name, ttl_ms).await;
            // For what comes after.
            Duration::from_millis(random.random_range(300..1_500))
        };
        let runs = match deed {
            Deed::Armed | Deed::ArmedSlow => {
                arm(100, 4_000).await;
                1
            }
            Deed::ArmedAgain => {
                let pause = arm(100, 4_000).await;
                self.until_row(&name, async |(status, _)| status == 1).await;
                sleep(pause).await;
                arm(100, 4_000).await;
                2
            }
            Deed::Moved => {
                sleep(arm(5_000, 7_000).await).await;
                arm(1_000, 8_000).await;
                1
            }
            Deed::Deleted => {
                sleep(arm(5_000, 7_000).await).await;
                let _: i64 = self.rig.redis_says(&["DEL", &name]).await;
                0
            }
            Deed::Cancelled => {
                arm(4_000, 7_000).await;
                self.until_row(&name, async |_| true).await;
                self.cancel(&name).await
            }
            Deed::CancelledWhenDue => {
                arm(300, 3_000).await;
                let is_due = async |(_, due)| due < self.rig.now_ms().await;
                self.until_row(&name, is_due).await;
                self.cancel(&name).await
            }
        };
        if let Deed::ArmedAgain = deed {
            not_before = 0;
        }
        Expected {
            name,
            deed,
            runs,
            not_before,
        }
    }
}

/// What is wrong.
async fn run_seed(seed: u64) -> Vec<String> {
    let rig = Rig::new("redis.response_timeout = '10s'\nledger.max_connections = 6").await;
    let link = Link::to(rig.redis.port()).await;
    let late = rig.config_with(&format!("redis.url = 'redis://127.0.0.1:{}/0'", link.port));
    let mut configs = [late, rig.config()];
    // Either may be the senior one.
    if seed % 2 == 1 {
        configs.reverse();
    }
    let mut daemons = Vec::new();
    for config in &configs {
        let mut handlers = handlers();
        handlers.on(
            ("Job", "slow"),
            |task: TaskContext, _: Vec<String>| async move {
                write_down(&task).await?;
                sleep(Duration::from_secs(2)).await;
                Ok(())
            },
        );
        handlers.on(
            ("Job", "paused"),
            |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
        );
        let daemon = Daemon::start(config, handlers);
        daemon.hears_events().await;
        daemon.has_audited().await;
        daemons.push(daemon);
    }
    for daemon in &daemons {
        until("both know of each other", async || {
            daemon.status.members() == 2
        })
        .await;
    }
    let client: TaskClient = rig.client().await.into();
    let paused = Scope::method("Job", "paused").unwrap();
    client.pause(&paused, "the test", "").await.unwrap();
    let trial = Trial { rig, client };
    let random = |stream: u64| StdRng::seed_from_u64(seed << 32 | stream);
    let scripts = (0..KEYS).map(|n| trial.follow(n, random(n as u64)));
    let expected = tokio::select! {
        expected = join_all(scripts) => expected,
        () = link.hold_at_random(random(u64::from(u32::MAX))) => unreachable!("it goes on for ever"),
    };
    link.held.send_replace(false);
    trial.client.resume(&paused).await.unwrap();
    until("nothing is pending", async || {
        trial.rig.with_status(0).await == 0
    })
    .await;
    // By then the other daemon has handled what was held.
    create(&trial.client, "Job@record@last", 4_000).await;
    until("the last one has run", async || {
        !trial.rig.runs_of("Job@record@last").await.is_empty()
    })
    .await;
    until("nothing is pending", async || {
        trial.rig.with_status(0).await == 0
    })
    .await;
    let mut runs: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for run in trial.rig.runs().await {
        runs.entry(run.name)
            .or_default()
            .push((run.due_ms, run.at_ms));
    }
    let mut wrong = Vec::new();
    for expected in expected {
        let Expected { name, deed, .. } = &expected;
        let found = runs.remove(name).unwrap_or_default();
        let early = found
            .iter()
            .any(|(due, at)| at < due || *at < expected.not_before);
        if found.len() != expected.runs || early {
            wrong.push(format!(
                "seed {seed}: `{name}` ({deed:?}): expected {} runs from {} on, found (due, at) {found:?}",
                expected.runs, expected.not_before,
            ));
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_with_late_events_repeats_no_task_and_runs_no_cancelled_one() {
    let seeds: Vec<u64> = match std::env::var("LAPSED_LATE_SEED") {
        Ok(seed) => vec![seed.parse().expect("LAPSED_LATE_SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    };
    let wrong = join_all(seeds.into_iter().map(run_seed)).await.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
