//! Environment of a benchmark: private servers, a private file, or the configured servers with a separate table and key
//! prefix.

mod redis_server;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use lapsed::clock::wall_micros;
use lapsed::compose::Adapters;
use lapsed::config::{Secret, TimerKind};
use lapsed::{Config, TaskClient, TaskKey};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::daemon::StartClock;
use super::private::Private;
use super::process::{Daemon, Numbers, Order};
use super::recorder::Record;
use super::store::Store;
use super::tasks::{BATCH, task};

/// Assumed write rate until it has been measured.
const WRITTEN_PER_S: f64 = 5_000.0;

/// Safety factor on a measured write rate.
const WRITTEN_SHARE: f64 = 0.6;

/// Error bound of the ledger's clock over a network, in microseconds.
const LEDGER_CLOCK_ERROR_US: u64 = 2_000;

/// Smallest number of tasks that a write rate is measured with.
const TELLING: u32 = 20_000;

/// Which servers to use, and how to connect.
pub struct Choice {
    /// The loaded configuration.
    pub config: Config,
    /// Its file, if one was given.
    pub file: Option<PathBuf>,
    /// Start private servers.
    pub private: bool,
    /// Use a private file, and no server.
    pub embedded: bool,
    /// Where to create its directory.
    pub directory: Option<PathBuf>,
    /// Connect to the private database by TCP.
    pub tcp: bool,
    /// Start the private database with a thread pool.
    pub thread_pool: bool,
    /// Concurrency of the daemon, if not as configured.
    pub concurrency: Option<usize>,
    /// Maximum number of rows.
    pub rows: u64,
    /// Size of the private database's buffer pool, if one was asked for.
    pub buffer_pool_mb: Option<u64>,
}

/// Servers with a table for this benchmark. Call [`Environment::clean_up`] at the end in any case.
pub struct Environment {
    /// Configuration with the table, key prefix and servers of the benchmark.
    pub config: Config,
    /// Writes the tasks.
    pub client: TaskClient,
    /// The same connections, for operations that a client does not have.
    pub adapters: Adapters,
    store: Store,
    private: Option<Private>,
    file: Option<PathBuf>,
    /// Environment variables of a daemon.
    settings: Vec<(String, String)>,
    /// Next unused task number.
    next: u32,
    /// Last measured write rate.
    written_per_s: f64,
    /// Tasks that write: they must end before cleaning up.
    pub writers: TaskTracker,
    /// Tells the writers to stop.
    pub stop: CancellationToken,
}

impl Environment {
    /// Starts private servers if requested, and creates the table.
    pub async fn prepare(choice: Choice) -> anyhow::Result<Self> {
        let Choice {
            mut config,
            file,
            private,
            embedded,
            directory,
            tcp,
            thread_pool,
            concurrency,
            rows,
            buffer_pool_mb,
        } = choice;
        let private = if private {
            Some(Private::start(rows, buffer_pool_mb, thread_pool).await?)
        } else {
            None
        };
        let name = format!("{:08x}", rand::random::<u32>());
        config.ledger.table = format!("lapsed_bench_{name}");
        // No class may begin with `#`: other daemons ignore our keys as foreign.
        config.redis.key_prefix = format!("#bench-{name}:");
        config.http.listen = None;
        if let Some(concurrency) = concurrency {
            config.engine.concurrency = concurrency;
        }
        if let Some(private) = &private {
            config.redis.url = Secret::from(private.redis.url());
            let tcp_url = private.maria.create_database("bench").await?;
            config.ledger.url = Secret::from(if tcp {
                tcp_url
            } else {
                private.maria.socket_url("bench")
            });
        }
        let store = match embedded {
            true => Store::in_file(&mut config, directory.as_deref()).await?,
            false => Store::on_server(&config).await?,
        };
        let adapters = Adapters::new(&config)?;
        let client = adapters.client();
        client.now().await.context("read the ledger's clock")?;
        let set = |name: &str, value: String| (format!("LAPSED__{name}"), value);
        let settings = vec![
            set("REDIS__URL", config.redis.url.expose().to_owned()),
            set("REDIS__KEY_PREFIX", config.redis.key_prefix.clone()),
            set("LEDGER__URL", config.ledger.url.expose().to_owned()),
            set("TIMER", config.timer.as_str().to_owned()),
            set("LEDGER__TABLE", config.ledger.table.clone()),
            set("HTTP__LISTEN", String::new()),
            set("ENGINE__CONCURRENCY", config.engine.concurrency.to_string()),
        ];
        Ok(Self {
            config,
            client,
            adapters,
            store,
            private,
            file,
            settings,
            next: 0,
            written_per_s: WRITTEN_PER_S,
            writers: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Empties the table and the keys, and goes on with another timer.
    pub async fn switch_timer(&mut self, timer: TimerKind) -> anyhow::Result<()> {
        let emptied = self.store.empty().await;
        emptied.context("empty the table of this measurement")?;
        self.start_redis().await?;
        self.delete_keys().await?;
        self.config.timer = timer;
        let before = std::mem::replace(&mut self.adapters, Adapters::new(&self.config)?);
        before.ledger.close().await;
        self.client = self.adapters.client();
        self.client.now().await.context("read the ledger's clock")?;
        let name = "LAPSED__TIMER";
        self.settings.retain(|(setting, _)| setting != name);
        self.settings
            .push((name.to_owned(), timer.as_str().to_owned()));
        Ok(())
    }

    /// Whether the servers, or the file, are private.
    pub fn is_private(&self) -> bool {
        self.private.is_some() || self.is_embedded()
    }

    /// Whether there is no server.
    pub fn is_embedded(&self) -> bool {
        matches!(self.store, Store::File { .. })
    }

    /// Clock that start times are read from.
    pub fn clock(&self) -> StartClock {
        match self.is_private() {
            true => StartClock::Wall,
            false => StartClock::Ledger,
        }
    }

    /// Error bound of that clock, in microseconds.
    pub fn clock_error_us(&self) -> u64 {
        match self.clock() {
            StartClock::Wall => 0,
            StartClock::Ledger => LEDGER_CLOCK_ERROR_US,
        }
    }

    /// Current time of that clock, in microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        match self.clock() {
            StartClock::Wall => wall_micros(),
            StartClock::Ledger => {
                u64::try_from(self.adapters.ledger.clock().now().0).unwrap_or(0) * 1000
            }
        }
    }

    /// Waits until that clock reads `moment_us`.
    pub async fn sleep_until(&self, moment_us: u64) {
        sleep(Duration::from_micros(
            moment_us.saturating_sub(self.now_us()),
        ))
        .await;
    }

    /// Reserves numbers for `count` tasks and returns the first.
    pub fn take_numbers(&mut self, count: u32) -> u32 {
        let first = self.next;
        self.next += count;
        first
    }

    /// Estimated maximum time to write `count` tasks.
    pub fn writing_takes(&self, count: u32) -> Duration {
        Duration::from_secs_f64(f64::from(count) / self.written_per_s)
    }

    /// Updates the write rate.
    pub fn has_written(&mut self, count: u32, took: Duration) {
        if count >= TELLING {
            self.written_per_s = f64::from(count) / took.as_secs_f64() * WRITTEN_SHARE;
        }
    }

    /// Starts a daemon with a RESP server for this many connections, which leaves the tasks to pull workers.
    pub fn daemon_with_resp(&self, connections: u32) -> anyhow::Result<Daemon> {
        Daemon::start(&Order {
            config: self.file.as_deref(),
            settings: &self.settings,
            tasks: Numbers::default(),
            clock: self.clock(),
            resp: Some(connections),
        })
    }

    /// Starts a daemon that records these tasks, with additional settings.
    pub fn daemon(
        &self,
        tasks: Numbers,
        settings: &[(&str, &str)],
        events_off: bool,
    ) -> anyhow::Result<Daemon> {
        let mut all = self.settings.clone();
        all.extend(
            settings
                .iter()
                .map(|(name, value)| (format!("LAPSED__{name}"), (*value).to_owned())),
        );
        if events_off && let Some(url) = self.url_without_events() {
            all.push(("LAPSED__REDIS__URL".to_owned(), url));
        }
        Daemon::start(&Order {
            config: self.file.as_deref(),
            settings: &all,
            tasks,
            clock: self.clock(),
            resp: None,
        })
    }

    /// Process ids of private servers: Redis, database.
    pub fn server_pids(&self) -> (Option<u32>, Option<u32>) {
        self.private.as_ref().map_or((None, None), |private| {
            (private.redis.pid(), private.maria.pid())
        })
    }

    /// Whether the timer needs Redis at all.
    pub fn uses_redis(&self) -> bool {
        self.config.timer.uses_redis()
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Counters of the servers.
    pub async fn counters(&self) -> anyhow::Result<Counters> {
        Ok(Counters::new(self.store.sql().await?, self.redis().await))
    }

    /// Number of done rows in this range, and when the last of them was settled: the start of the statement by the
    /// database's clock, in microseconds since 1970.
    pub async fn settled(&self, rows: (u64, u64)) -> anyhow::Result<(u64, u64)> {
        let settled = self.store.settled(rows).await;
        let (done, last_ms) = settled.context("count what is done")?;
        Ok((done, last_ms * 1000))
    }

    /// Deletes the rows that a run left pending, so that they are not overdue in the next one.
    pub async fn forget_pending(&self, rows: (u64, u64)) -> anyhow::Result<()> {
        let deleted = self.store.forget_pending(rows).await;
        deleted.context("delete rows that did not run")
    }

    /// Deletes the keys of tasks that did not start, if Redis is up: their events would disturb the next run.
    pub async fn disarm(&self, first: u32, record: &Record) {
        let numbers = (first..).zip(&record.runs);
        let idle: Vec<TaskKey> = numbers
            .filter(|(_, runs)| **runs == 0)
            .map(|(number, _)| task(number).key().clone())
            .collect();
        for keys in idle.chunks(BATCH as usize) {
            if self.adapters.timer.disarm(keys).await.is_err() {
                return;
            }
        }
    }

    /// Drops the tables and deletes the keys. Private servers just end.
    pub async fn clean_up(self) -> anyhow::Result<()> {
        if self.is_private() {
            return Ok(());
        }
        self.stop.cancel();
        self.writers.close();
        self.writers.wait().await;
        self.store.drop_tables().await?;
        self.delete_keys().await?;
        self.adapters.ledger.close().await;
        Ok(())
    }
}
