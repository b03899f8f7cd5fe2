//! Where it is measured: servers of our own, or the configured ones with a table and keys of our own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lapsed::clock::wall_micros;
use lapsed::compose::Adapters;
use lapsed::config::{Secret, TimerKind};
use lapsed::ledger::Ledger;
use lapsed::sandbox::{PrivateMaria, PrivateRedis};
use lapsed::{Config, TaskClient, TaskKey};
use sqlx::{AssertSqlSafe, MySqlConnection};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::daemon::StartClock;
use super::process::{Daemon, Numbers, Order};
use super::recorder::Record;
use super::workload::{BATCH, task};

/// What a row takes in the buffer pool, with its index entries and some air.
const BYTES_PER_ROW: u64 = 700;

/// The buffer pool for everything else.
const POOL_BASE_MB: u64 = 512;

/// How fast tasks can be written, until that is known.
const WRITTEN_PER_S: f64 = 5_000.0;

/// What is known of it is believed no more than so far.
const WRITTEN_SHARE: f64 = 0.6;

/// What is fewer says nothing about it.
const TELLING: u32 = 20_000;

/// A Redis user of private servers that may not touch the notify flags.
const DEAF_USER: &str = "deaf";

/// Which servers, and how they are reached.
pub struct Choice {
    /// The configuration as it was read.
    pub config: Config,
    /// Where from, if a file was named.
    pub file: Option<PathBuf>,
    /// Start servers for this.
    pub private: bool,
    /// Reach the private database by TCP.
    pub tcp: bool,
    /// Runs at a time, if not as configured.
    pub concurrency: Option<usize>,
    /// Most rows there will be.
    pub rows: u64,
}

/// Servers with a table for this measurement. Call [`Environment::clean_up`] at the end, whatever happened.
pub struct Environment {
    /// With our table, prefix and servers.
    pub config: Config,
    /// Writes the tasks.
    pub client: TaskClient,
    /// The same connections, for what a client does not do.
    pub adapters: Adapters,
    private: Option<Private>,
    file: Option<PathBuf>,
    /// What a daemon's environment says.
    settings: Vec<(String, String)>,
    /// Numbers that no task has had yet.
    next: u32,
    /// How fast tasks were written lately.
    written_per_s: f64,
    /// Whoever writes tasks: what they have begun must be over before anything is cleaned up.
    pub writers: TaskTracker,
    /// They shall begin nothing more.
    pub stop: CancellationToken,
}

/// Servers of our own; gone when dropped.
struct Private {
    redis: PrivateRedis,
    maria: PrivateMaria,
}

impl Environment {
    /// Starts servers if asked to, and makes the table.
    pub async fn prepare(choice: Choice) -> anyhow::Result<Self> {
        let Choice {
            mut config,
            file,
            private,
            tcp,
            concurrency,
            rows,
        } = choice;
        let private = if private {
            Some(Private::start(rows).await?)
        } else {
            None
        };
        let name = format!("{:08x}", rand::random::<u32>());
        config.ledger.table = format!("lapsed_bench_{name}");
        // No class may begin with `#`: to daemons of others our keys are foreign at first sight.
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
        let adapters = Adapters::new(&config)?;
        adapters.ledger.migrate().await.context("make the table")?;
        let client = adapters.client();
        client.now().await.context("read the ledger's clock")?;
        let set = |name: &str, value: String| (format!("LAPSED__{name}"), value);
        let settings = vec![
            set("REDIS__URL", config.redis.url.expose().to_owned()),
            set("REDIS__KEY_PREFIX", config.redis.key_prefix.clone()),
            set("LEDGER__URL", config.ledger.url.expose().to_owned()),
            set("LEDGER__TABLE", config.ledger.table.clone()),
            set("HTTP__LISTEN", String::new()),
            set("ENGINE__CONCURRENCY", config.engine.concurrency.to_string()),
        ];
        Ok(Self {
            config,
            client,
            adapters,
            private,
            file,
            settings,
            next: 0,
            written_per_s: WRITTEN_PER_S,
            writers: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Whether the servers are ours alone.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// By which clock starts are measured.
    pub fn clock(&self) -> StartClock {
        match self.private {
            Some(_) => StartClock::Wall,
            None => StartClock::Ledger,
        }
    }

    /// That clock, in microseconds since 1970.
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

    /// Numbers for so many tasks.
    pub fn take_numbers(&mut self, count: u32) -> u32 {
        let first = self.next;
        self.next += count;
        first
    }

    /// How long it takes at most to write so many tasks.
    pub fn writing_takes(&self, count: u32) -> Duration {
        Duration::from_secs_f64(f64::from(count) / self.written_per_s)
    }

    /// So many tasks were written in this time.
    pub fn has_written(&mut self, count: u32, took: Duration) {
        if count >= TELLING {
            self.written_per_s = f64::from(count) / took.as_secs_f64() * WRITTEN_SHARE;
        }
    }

    /// Starts a daemon that remembers these tasks, with settings of its own above the common ones.
    pub fn daemon(
        &self,
        tasks: Numbers,
        settings: &[(&str, &str)],
        deaf: bool,
    ) -> anyhow::Result<Daemon> {
        let mut all = self.settings.clone();
        all.extend(
            settings
                .iter()
                .map(|(name, value)| (format!("LAPSED__{name}"), (*value).to_owned())),
        );
        if deaf && let Some(private) = &self.private {
            let url = format!(
                "redis://{DEAF_USER}:{DEAF_USER}@127.0.0.1:{}/0",
                private.redis.port()
            );
            all.push(("LAPSED__REDIS__URL".to_owned(), url));
        }
        Daemon::start(&Order {
            config: self.file.as_deref(),
            settings: &all,
            tasks,
            clock: self.clock(),
        })
    }

    /// Processes of the servers, where they are ours: Redis, database.
    pub fn server_pids(&self) -> (Option<u32>, Option<u32>) {
        self.private.as_ref().map_or((None, None), |private| {
            (private.redis.pid(), private.maria.pid())
        })
    }

    /// Whether the timer needs Redis at all.
    pub fn uses_redis(&self) -> bool {
        self.config.timer != TimerKind::LedgerPoll
    }

    /// The ledger's table.
    pub fn table(&self) -> &str {
        &self.config.ledger.table
    }

    /// A connection to the ledger's database.
    pub async fn sql(&self) -> anyhow::Result<MySqlConnection> {
        let connection = self.adapters.ledger.connection().await;
        connection.context("connect to the ledger's database")
    }

    /// A connection to Redis; `None` if there is none to be had.
    pub async fn redis(&self) -> Option<redis::aio::MultiplexedConnection> {
        if !self.uses_redis() {
            return None;
        }
        let client = redis::Client::open(self.config.redis.url.expose()).ok()?;
        client.get_multiplexed_async_connection().await.ok()
    }

    /// What the servers count, from here on.
    pub async fn counters(&self) -> anyhow::Result<Counters> {
        Ok(Counters::new(self.sql().await?, self.redis().await))
    }

    /// Switches expired events of the private Redis on or off; a deaf daemon cannot switch them back.
    pub async fn announce(&self, on: bool) -> anyhow::Result<()> {
        let mut redis = self.redis().await.context("connect to redis")?;
        redis::pipe()
            .cmd("CONFIG")
            .arg("SET")
            .arg("notify-keyspace-events")
            .arg(if on { "Ex" } else { "" })
            .cmd("ACL")
            .arg("SETUSER")
            .arg(DEAF_USER)
            .arg(&["on", ">deaf", "~*", "&*", "+@all", "-config"])
            .exec_async(&mut redis)
            .await
            .context("set the notify flags of the private redis")
    }

    /// Kills the private Redis.
    pub fn stop_redis(&mut self) {
        if let Some(private) = &mut self.private {
            private.redis.kill();
        }
    }

    /// Starts it again, empty, if it is dead.
    pub async fn start_redis(&mut self) -> anyhow::Result<()> {
        if let Some(private) = &mut self.private
            && private.redis.pid().is_none()
        {
            private.redis.start_again().await?;
        }
        Ok(())
    }

    /// How many of these rows are done, and when the last of them was settled: by the database's clock, when the
    /// statement began, in microseconds since 1970.
    pub async fn settled(&self, rows: (u64, u64)) -> anyhow::Result<(u64, u64)> {
        let mut sql = self.sql().await?;
        let text = format!(
            "SELECT COUNT(*), CAST(COALESCE(MAX(finished_at), 0) * 1000 AS SIGNED) FROM `{}` WHERE id BETWEEN ? AND ? AND status = 1",
            self.config.ledger.table
        );
        let (done, last_ms): (i64, i64) = sqlx::query_as(AssertSqlSafe(text))
            .bind(rows.0)
            .bind(rows.1)
            .fetch_one(&mut sql)
            .await
            .context("count what is done")?;
        let last_ms = u64::try_from(last_ms).unwrap_or(0);
        Ok((u64::try_from(done).unwrap_or(0), last_ms * 1000))
    }

    /// Takes away what a run has left undone, so that the next one does not find it overdue.
    pub async fn forget_pending(&self, rows: (u64, u64)) -> anyhow::Result<()> {
        let mut sql = self.sql().await?;
        let text = format!(
            "DELETE FROM `{}` WHERE id BETWEEN ? AND ? AND status = 0",
            self.config.ledger.table
        );
        sqlx::query(AssertSqlSafe(text))
            .bind(rows.0)
            .bind(rows.1)
            .execute(&mut sql)
            .await
            .context("delete what did not run")?;
        Ok(())
    }

    /// Deletes the keys of what did not start, where Redis is up: their events would be noise in the next run.
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

    /// Drops the table and deletes the keys; private servers just end.
    pub async fn clean_up(self) -> anyhow::Result<()> {
        if self.is_private() {
            return Ok(());
        }
        self.stop.cancel();
        self.writers.close();
        self.writers.wait().await;
        let table = self.config.ledger.table.clone();
        let mut sql = self.sql().await?;
        let drop = format!("DROP TABLE IF EXISTS `{table}`, `{table}_pauses`, `{table}_rates`");
        sqlx::query(AssertSqlSafe(drop))
            .execute(&mut sql)
            .await
            .with_context(|| {
                format!("drop the tables `{table}`, `{table}_pauses` and `{table}_rates` of this measurement")
            })?;
        let prefix = &self.config.redis.key_prefix;
        if let Some(mut redis) = self.redis().await {
            delete_keys(&mut redis, prefix)
                .await
                .with_context(|| format!("delete the keys `{prefix}*` of this measurement"))?;
        }
        let ledger = Arc::clone(&self.adapters.ledger);
        ledger.close().await;
        Ok(())
    }
}

impl Private {
    async fn start(rows: u64) -> anyhow::Result<Self> {
        let redis = PrivateRedis::options()
            .set("notify-keyspace-events", "Ex")
            .start();
        let maria = PrivateMaria::options()
            .durable(true)
            .buffer_pool(format!("{}M", pool_mb(rows, memory_mb())))
            .start();
        let (redis, maria) = tokio::join!(redis, maria);
        Ok(Self {
            redis: redis.context("start a private redis")?,
            maria: maria.context("start a private database")?,
        })
    }
}

/// A buffer pool that holds the table, but not more than half of the machine.
fn pool_mb(rows: u64, memory_mb: u64) -> u64 {
    (POOL_BASE_MB + rows * BYTES_PER_ROW / 1_000_000).min(memory_mb / 2)
}

fn memory_mb() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram * u64::from(system.mem_unit) / 1_000_000
}

async fn delete_keys(
    redis: &mut redis::aio::MultiplexedConnection,
    prefix: &str,
) -> redis::RedisResult<()> {
    let mut cursor = 0u64;
    loop {
        let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{prefix}*"))
            .arg("COUNT")
            .arg(5_000)
            .query_async(redis)
            .await?;
        if !keys.is_empty() {
            redis::cmd("UNLINK").arg(&keys).exec_async(redis).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_holds_the_table_and_leaves_half_of_the_machine() {
        assert_eq!(pool_mb(0, 16_000), 512);
        assert_eq!(pool_mb(1_000_000, 16_000), 1_212);
        assert_eq!(pool_mb(100_000_000, 16_000), 8_000);
    }
}
