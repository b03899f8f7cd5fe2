//! Private servers, a migrated table, daemons, and ways to wait for what should come of it.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapsed::compose::Adapters;
use lapsed::engine::{EngineError, Handle};
use lapsed::handler::Router;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Admin, TaskRecord};
use lapsed::sandbox::{PrivateMaria, PrivateRedis, RedisOptions};
use lapsed::task::State;
use lapsed::{
    Config, Due, Handlers, MysqlTask, MysqlTaskClient, TaskClient, TaskContext, TaskKey, UnixMs,
};
use redis::aio::MultiplexedConnection;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, MySqlPool};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longest wait for a condition. Far beyond what is promised: a machine may be busy, and only a failure waits this long.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Ten times the lateness that is promised while a part of the system is down.
pub const LATE_MS_MAX: i64 = 20_000;

const POLL: Duration = Duration::from_millis(10);

/// What handlers leave behind.
const TRACES: &str = "CREATE TABLE runs (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) COLLATE utf8mb4_bin, \
       task VARCHAR(64), attempt INT, due_ms BIGINT, at_ms BIGINT); \
     CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) COLLATE utf8mb4_bin, task VARCHAR(64))";

/// Waits until it holds.
pub async fn until(what: impl Display, holds: impl AsyncFn() -> bool) {
    until_within(DEADLINE, what, holds).await;
}

/// Waits until it holds, and no longer than this.
pub async fn until_within(deadline: Duration, what: impl Display, holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            sleep(POLL).await;
        }
    };
    if timeout(deadline, held).await.is_err() {
        panic!("after {deadline:?} it still does not hold that {what}");
    }
}

/// SQL: a table of the numbers from 1 to `count`, as its column `seq`. MySQL lacks MariaDB's own.
pub fn numbers(count: i64) -> String {
    format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {count} - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"
    )
}

pub fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

/// How to set up a [`Rig`].
pub struct Setup {
    settings: toml::Table,
    redis: RedisOptions,
    database: u8,
    own_maria: bool,
    migrated: bool,
}

impl Setup {
    /// Settings over the defaults of this suite: no HTTP, retries after 200 ms.
    pub fn new(settings: &str) -> Self {
        let mut table: toml::Table =
            "http.listen = ''\nretry = { ladder = ['200ms'], jitter = 0.0 }"
                .parse()
                .unwrap();
        overlay(&mut table, settings.parse().unwrap());
        Self {
            settings: table,
            redis: PrivateRedis::options(),
            database: 0,
            own_maria: false,
            migrated: true,
        }
    }

    /// A database server that may be killed, whose commits outlive that.
    pub fn own_maria(mut self) -> Self {
        self.own_maria = true;
        self
    }

    pub fn redis(mut self, options: RedisOptions) -> Self {
        self.redis = options;
        self
    }

    pub fn redis_database(mut self, number: u8) -> Self {
        self.database = number;
        self
    }

    /// The table is left for the test to make.
    pub fn without_table(mut self) -> Self {
        self.migrated = false;
        self
    }

    pub async fn start(self) -> Rig {
        // What daemons in this process say is shown if the test fails.
        let log = tracing_subscriber::fmt().with_ansi(false);
        let _ = log.with_test_writer().try_init();
        let redis = self.redis.start().await.unwrap();
        let (maria, ledger_url) = if self.own_maria {
            let maria = PrivateMaria::options().durable(true).start().await.unwrap();
            let url = maria.create_database("lapsed").await.unwrap();
            (Some(maria), url)
        } else {
            (None, shared_database().await)
        };
        let mut settings = self.settings;
        let base = format!(
            "redis.url = 'redis://127.0.0.1:{}/{}'\nledger.url = '{ledger_url}'",
            redis.port(),
            self.database
        );
        overlay(&mut settings, base.parse().unwrap());
        let pool = MySqlPoolOptions::new().acquire_timeout(DEADLINE);
        let rig = Rig {
            sql: pool.connect_lazy(&ledger_url).unwrap(),
            redis,
            maria,
            database: self.database,
            settings,
        };
        rig.run_sql(TRACES).await;
        if self.migrated {
            rig.migrate().await;
        }
        rig
    }
}

fn overlay(below: &mut toml::Table, above: toml::Table) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, value) => {
                below.insert(name, value);
            }
        }
    }
}

/// One server for all tests that leave it alone; each has its own database.
async fn shared_database() -> String {
    // A static is never dropped: the server dies with the process.
    static MARIA: OnceCell<PrivateMaria> = OnceCell::const_new();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let start = || {
        PrivateMaria::options()
            .set("max-connections", "1000")
            .start()
    };
    let maria = MARIA.get_or_try_init(start).await.unwrap();
    let name = format!("e2e_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    maria.create_database(&name).await.unwrap()
}

/// Servers and what is on them.
pub struct Rig {
    pub redis: PrivateRedis,
    pub maria: Option<PrivateMaria>,
    pub sql: MySqlPool,
    database: u8,
    settings: toml::Table,
}

/// A trace of one run: what was run, and when by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub name: String,
    pub task: String,
    pub attempt: i32,
    pub due_ms: i64,
    pub at_ms: i64,
}

impl Rig {
    pub async fn new(settings: &str) -> Self {
        Setup::new(settings).start().await
    }

    pub fn config(&self) -> Config {
        Config::from_toml(&self.config_text()).unwrap()
    }

    pub fn config_text(&self) -> String {
        toml::to_string(&self.settings).unwrap()
    }

    /// The settings of other daemons on the same servers.
    pub fn config_with(&self, settings: &str) -> Config {
        let mut table = self.settings.clone();
        overlay(&mut table, settings.parse().unwrap());
        Config::from_toml(&toml::to_string(&table).unwrap()).unwrap()
    }

    pub async fn migrate(&self) {
        let ledger = MysqlLedger::new(&self.config().ledger).unwrap();
        let mut connection = ledger.connection().await.unwrap();
        let options = Default::default();
        lapsed::ledger::migrate::apply(&mut connection, ledger.table(), &options, &mut |_| ())
            .await
            .unwrap();
    }

    /// A producer of its own, as another program would be.
    pub async fn client(&self) -> MysqlTaskClient {
        MysqlTaskClient::connect(&self.config()).await.unwrap()
    }

    /// A daemon in this process, with the handlers of [`handlers`].
    pub fn daemon(&self) -> Daemon {
        self.daemon_with(handlers())
    }

    pub fn daemon_with(&self, handlers: Handlers) -> Daemon {
        Daemon::start(&self.config(), handlers)
    }

    /// A daemon that hears expired events.
    pub async fn listening_daemon(&self) -> Daemon {
        let daemon = self.daemon();
        daemon.hears_events().await;
        daemon
    }

    pub fn maria(&mut self) -> &mut PrivateMaria {
        self.maria.as_mut().expect("set up with `own_maria`")
    }

    pub async fn run_sql(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
            .execute(&self.sql)
            .await
            .unwrap();
    }

    pub async fn number(&self, query: impl Into<String>) -> i64 {
        let query = sqlx::query_scalar(AssertSqlSafe(query.into()));
        query.fetch_one(&self.sql).await.unwrap()
    }

    /// Milliseconds on the clock that decides.
    pub async fn now_ms(&self) -> i64 {
        self.number("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
            .await
    }

    /// Waits until the database's clock has passed this.
    pub async fn until_clock(&self, moment: UnixMs) {
        loop {
            match moment.0 - self.now_ms().await {
                ..0 => return,
                left => sleep(Duration::from_millis(left as u64 + 1)).await,
            }
        }
    }

    pub async fn runs(&self) -> Vec<Run> {
        let rows: Vec<(String, String, i32, i64, i64)> =
            sqlx::query_as("SELECT name, task, attempt, due_ms, at_ms FROM runs ORDER BY id")
                .fetch_all(&self.sql)
                .await
                .unwrap();
        let run = |(name, task, attempt, due_ms, at_ms)| Run {
            name,
            task,
            attempt,
            due_ms,
            at_ms,
        };
        rows.into_iter().map(run).collect()
    }

    pub async fn runs_of(&self, name: &str) -> Vec<Run> {
        let mut runs = self.runs().await;
        runs.retain(|run| run.name == name);
        runs
    }

    pub async fn record(&self, name: &str) -> TaskRecord {
        let ledger = MysqlLedger::new(&self.config().ledger).unwrap();
        let found = ledger.find(&key(name)).await.unwrap();
        ledger.close().await;
        found.unwrap_or_else(|| panic!("`{name}` has no row"))
    }

    pub async fn state(&self, name: &str) -> State {
        self.record(name).await.state
    }

    pub async fn until_state(&self, name: &str, state: State) {
        until(format!("`{name}` is {state}"), async || {
            self.state(name).await == state
        })
        .await;
    }

    /// How many rows have this status.
    pub async fn with_status(&self, status: u8) -> i64 {
        self.number(format!(
            "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = {status}"
        ))
        .await
    }

    pub async fn until_done(&self, count: usize) {
        until(format!("{count} tasks are done"), async || {
            self.with_status(1).await == count as i64
        })
        .await;
    }

    /// Every one of `count` tasks has run, each exactly once, none before its time by the database's clock.
    pub async fn each_ran_once(&self, count: usize) {
        let runs = self.runs().await;
        let names: std::collections::BTreeSet<&str> =
            runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!((names.len(), runs.len()), (count, count), "names, runs");
        for run in &runs {
            assert!(run.at_ms >= run.due_ms, "early: {run:?}");
            assert_eq!(run.attempt, 1, "{run:?}");
        }
    }

    /// Every one of `count` effects is there exactly once.
    pub async fn each_effect_once(&self, count: usize) {
        let effects = self.number("SELECT COUNT(*) FROM effects").await;
        let names = self
            .number("SELECT COUNT(DISTINCT name) FROM effects")
            .await;
        assert_eq!(
            (names, effects),
            (count as i64, count as i64),
            "names, effects"
        );
    }

    pub async fn redis_connection(&self) -> MultiplexedConnection {
        self.redis.connect(self.database).await.unwrap()
    }

    pub async fn redis_says<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command
            .query_async(&mut self.redis_connection().await)
            .await
            .unwrap()
    }

    /// For how many seconds redis has run.
    pub async fn redis_uptime_s(&self) -> i64 {
        let info: String = self.redis_says(&["INFO", "server"]).await;
        let uptime = info
            .lines()
            .find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.unwrap().trim().parse().unwrap()
    }

    /// A bare key, as any program arms it.
    pub async fn arm(&self, name: &str, delay_ms: i64) {
        let () = self
            .redis_says(&["PSETEX", name, &delay_ms.to_string(), ""])
            .await;
    }

    /// Waits until the key has a row.
    pub async fn until_adopted(&self, name: &str) -> TaskRecord {
        let rows = format!("SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` = '{name}'");
        until(format!("`{name}` has a row"), async || {
            self.number(&rows[..]).await == 1
        })
        .await;
        self.record(name).await
    }

    /// Milliseconds a key has to live; -2 if it is not there.
    pub async fn pttl(&self, name: &str) -> i64 {
        self.redis_says(&["PTTL", name]).await
    }

    /// As any client could say it.
    pub async fn publish_expired(&self, name: impl redis::ToSingleRedisArg + Send + Sync) {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg("__keyevent@0__:expired").arg(name);
        let heard: i64 = publish
            .query_async(&mut self.redis_connection().await)
            .await
            .unwrap();
        assert!(heard > 0, "nobody listens");
    }
}

/// What daemons of this suite can run:
/// `Job@record@..` writes down when it ran; `Job@effect@..` completes together with an effect.
pub fn handlers() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "record"),
        |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
    );
    handlers.on(
        ("Job", "effect"),
        |task: TaskContext, _: Vec<String>| async move {
            let mut tx = task.begin().await?;
            take_effect(&task, &mut tx).await?;
            task.complete_in(tx).await
        },
    );
    handlers
}

/// Leaves a trace with the database's time.
pub async fn write_down(task: &TaskContext) -> Result<(), lapsed::HandlerError> {
    let mut tx = task.begin().await?;
    sqlx::query(
        "INSERT INTO runs (name, task, attempt, due_ms, at_ms) \
         VALUES (?, ?, ?, ?, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))",
    )
    .bind(task.key().as_str())
    .bind(task.id())
    .bind(task.attempt())
    .bind(task.due().0)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

/// An effect in the handler's own transaction.
pub async fn take_effect(
    task: &TaskContext,
    tx: &mut sqlx::MySqlConnection,
) -> Result<(), lapsed::HandlerError> {
    sqlx::query("INSERT INTO effects (name, task) VALUES (?, ?)")
        .bind(task.key().as_str())
        .bind(task.id())
        .execute(tx)
        .await?;
    Ok(())
}

/// An engine in this process; dropped, it stops at once as if killed.
pub struct Daemon {
    pub tasks: MysqlTaskClient,
    pub status: Handle,
    adapters: Adapters,
    router: Arc<Router>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), EngineError>>,
}

impl Daemon {
    pub fn start(config: &Config, handlers: Handlers) -> Self {
        let adapters = Adapters::new(config).unwrap();
        let engine = adapters.engine(config, handlers);
        let status = engine.handle();
        let router = Arc::clone(&engine.parts().router);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(engine.run_until(async move {
            let _ = stopped.await;
        }));
        let tasks = adapters.client();
        Self {
            tasks,
            status,
            adapters,
            router,
            stop: Some(stop),
            running,
        }
    }

    pub async fn hears_events(&self) {
        until("the daemon hears events", async || {
            self.status.is_listening() == Some(true)
        })
        .await;
    }

    /// What it can run.
    pub fn router(&self) -> Arc<Router> {
        Arc::clone(&self.router)
    }

    /// The value of a counter or gauge; 0 for one that was never touched.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.adapters.metrics.render();
        let values = text.lines().filter_map(|line| line.rsplit_once(' '));
        values
            .filter(|(found, _)| *found == name)
            .filter_map(|(_, value)| value.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a counter or gauge says so: what the ledger shows is counted a moment later.
    pub async fn until_counted(&self, name: &str, holds: impl Fn(f64) -> bool) {
        let mut found = self.metric(name);
        let counted = async {
            while !holds(found) {
                sleep(POLL).await;
                found = self.metric(name);
            }
        };
        if timeout(DEADLINE, counted).await.is_err() {
            panic!("after {DEADLINE:?} `{name}` is {found}");
        }
    }

    /// Its first audit is over: what happens from now on is seen by nothing that was about the past.
    pub async fn has_audited(&self) {
        let audited = async || {
            self.adapters
                .metrics
                .render()
                .contains("lapsed_audits_total{")
        };
        until("the daemon has audited", audited).await;
    }

    pub fn signals(&self, source: &str) -> f64 {
        self.metric(&format!("lapsed_signals_total{{source=\"{source}\"}}"))
    }

    pub async fn until_counted_adopted(&self, reason: &str, holds: impl Fn(f64) -> bool) {
        let name = format!("lapsed_adopted_total{{reason=\"{reason}\"}}");
        self.until_counted(&name, holds).await;
    }

    pub fn dropped(&self, reason: &str) -> f64 {
        self.metric(&format!(
            "lapsed_signals_dropped_total{{reason=\"{reason}\"}}"
        ))
    }

    /// A task by name, due after so many milliseconds.
    pub async fn create(&self, name: &str, delay_ms: i64) -> lapsed::client::Receipt {
        create(&self.tasks, name, delay_ms).await
    }

    /// Stops it gracefully.
    pub async fn stop(mut self) {
        let _ = self.stop.take().expect("stopped once").send(());
        let ended = timeout(DEADLINE, &mut self.running).await;
        ended.expect("the daemon stops").unwrap().unwrap();
    }

    /// Ends it without a word, as SIGKILL would.
    pub fn kill(self) {
        self.running.abort();
    }

    pub fn is_alive(&self) -> bool {
        !self.running.is_finished()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Creates a task by name, due after so many milliseconds.
pub async fn create(tasks: &TaskClient, name: &str, delay_ms: i64) -> lapsed::client::Receipt {
    let due = Due::after_ms(delay_ms).unwrap();
    tasks.create(key(name), due).await.unwrap()
}
