//! The producers and workers of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lapsed::TaskClient;
use sqlx::mysql::MySqlPoolOptions;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clients::{PATIENCE, RedisClient, Stories};
use crate::file_rig::FileRig;
use crate::history::{Hits, Ms, Window};
use crate::mysql_rig::MysqlRig;
use crate::options::Options;
use crate::stories::{Dice, by_client, by_program, by_redis, by_resp, by_sql, in_bulk};
use crate::target::now;
use crate::workers::{Windows, work};

/// Keys that one kind of producer works on at a time.
const AT_ONCE: usize = 1_000;

/// Workers of the pull queue.
const WORKERS: usize = 6;

/// Keys in one call or statement.
const BULK: u64 = 20;

/// The load on one rig.
pub struct Load {
    pub stories: Stories,
    /// What workers did wrong.
    pub windows: Windows,
    /// True when producers are to end.
    ending: Arc<AtomicBool>,
    /// True when workers are to end.
    pub working: Arc<AtomicBool>,
    producers: Vec<JoinHandle<()>>,
    numbers: Arc<AtomicU64>,
    seed: u64,
}

impl Load {
    fn new(options: &Options) -> Self {
        Self {
            stories: Stories::default(),
            windows: Windows::default(),
            ending: Arc::default(),
            working: Arc::default(),
            producers: Vec::new(),
            numbers: Arc::default(),
            seed: options.seed,
        }
    }

    /// # Errors
    /// If the ledger does not answer.
    pub async fn on_mysql(rig: &MysqlRig, options: &Options) -> anyhow::Result<Self> {
        let mut load = Self::new(options);
        let (config, path) = rig.producer()?;
        let client = TaskClient::connect(&config).await?;
        let pool = MySqlPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(10));
        let sql = pool.connect_lazy(config.ledger.url.expose())?;
        let redis = RedisClient::to(rig.producers.redis.port());
        let rate = options.rate;
        let singles = client.clone();
        load.produce(rate * 35 / 100, 1, 0, move |keys, dice, stories| {
            by_client(
                singles.clone(),
                keys.into_iter().next().expect("one"),
                dice,
                stories,
            )
        });
        load.produce(
            rate * 35 / 100 / BULK,
            BULK,
            0,
            move |keys, dice, stories| in_bulk(client.clone(), keys, dice, stories),
        );
        load.produce(
            rate * 20 / 100 / BULK,
            BULK,
            0,
            move |keys, dice, stories| by_sql(sql.clone(), keys, dice, stories),
        );
        load.produce(rate * 10 / 100, 1, 0, move |keys, dice, stories| {
            by_redis(
                redis.clone(),
                keys.into_iter().next().expect("one"),
                dice,
                stories,
            )
        });
        load.produce_by_program(&options.program, path);
        Ok(load)
    }

    /// Lets the program create a task a second.
    fn produce_by_program(&mut self, program: &Path, config: PathBuf) {
        let program = program.to_owned();
        self.produce(1, 1, 0, move |keys, dice, stories| {
            let key = keys.into_iter().next().expect("one");
            by_program(program.clone(), config.clone(), key, dice, stories)
        });
    }

    /// # Errors
    /// If the ledger cannot be used.
    pub async fn on_file(rig: &FileRig, options: &Options) -> anyhow::Result<Self> {
        let mut load = Self::new(options);
        let (config, path) = rig.producer()?;
        let client = TaskClient::connect(&config).await?;
        let redis = RedisClient::to(rig.resp.port());
        let rate = options.rate;
        load.produce(rate * 70 / 100, 1, 50, move |keys, dice, stories| {
            by_resp(
                redis.clone(),
                keys.into_iter().next().expect("one"),
                dice,
                stories,
            )
        });
        load.produce(rate * 30 / 100, 1, 30, move |keys, dice, stories| {
            by_client(
                client.clone(),
                keys.into_iter().next().expect("one"),
                dice,
                stories,
            )
        });
        load.produce_by_program(&options.program, path);
        for number in 0..WORKERS {
            let redis = RedisClient::to(rig.resp.port());
            let (windows, stop) = (Arc::clone(&load.windows), Arc::clone(&load.working));
            tokio::spawn(work(number, redis, rig.record.clone(), windows, stop));
        }
        Ok(load)
    }

    /// Calls `story` `rate` times a second, each time with `keys` new keys.
    fn produce<F>(
        &mut self,
        rate: u64,
        keys: u64,
        pulled: u32,
        story: impl Fn(Vec<String>, Dice, Stories) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stories, ending, numbers) = (
            self.stories.clone(),
            Arc::clone(&self.ending),
            Arc::clone(&self.numbers),
        );
        let seed = self.seed << 32;
        let mut tick =
            interval(Duration::from_secs(1) / u32::try_from(rate.max(1)).expect("a small rate"));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.producers.push(tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(AT_ONCE));
            while !ending.load(Ordering::Relaxed) {
                tick.tick().await;
                let place = Arc::clone(&places)
                    .acquire_owned()
                    .await
                    .expect("it is not closed");
                let keys = (0..keys).map(|_| {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    Dice::new(seed ^ number).key(&number.to_string(), pulled)
                });
                let keys: Vec<String> = keys.collect();
                let dice = Dice::new(seed ^ numbers.load(Ordering::Relaxed) ^ 1 << 31);
                let done = story(keys, dice, stories.clone());
                tokio::spawn(async move {
                    done.await;
                    drop(place);
                });
            }
            // Those that are under way.
            let all = u32::try_from(AT_ONCE).expect("it fits");
            let _ = timeout(3 * PATIENCE, places.acquire_many(all)).await;
        }));
    }

    /// True when producers are to end.
    pub fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ending)
    }

    /// Ends the producers, and waits for what they have started.
    pub async fn stop(&self) {
        self.ending.store(true, Ordering::Relaxed);
        while self
            .producers
            .iter()
            .any(|producer| !producer.is_finished())
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Watches for pauses of this machine until the workers end.
    pub fn watch_machine(&self, stall_ms: Ms) -> JoinHandle<Vec<Window>> {
        let ended = Arc::clone(&self.working);
        tokio::spawn(watch(stall_ms, move || ended.load(Ordering::Relaxed)))
    }
}

/// A window for each time in which this program did not run.
async fn watch(stall_ms: Ms, stop: impl Fn() -> bool) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut last = now();
    while !stop() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let at = now();
        if at - last > stall_ms {
            windows.push(Window {
                name: "the machine paused".to_owned(),
                from: last,
                to: at,
                hits: Hits::Machine,
            });
        }
        last = at;
    }
    windows
}
