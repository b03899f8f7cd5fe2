//! Private servers, a migrated table, and ways to look at what comes of it.

use std::time::Duration;

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Admin, TaskRecord};
use lapsed::task::State;
use lapsed::{Config, Handlers, MysqlTaskClient, UnixMs};
use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ToSingleRedisArg, cmd};
use sqlx::{AssertSqlSafe, MySqlPool};
use tokio::time::sleep;

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::redis_commands::ask;
use crate::support::redis_stats::{calls, number_after};
use crate::support::setup::{Setup, overlay};
use crate::support::tasks::key;
use crate::support::wait::until;

/// Servers and what is on them.
pub struct Rig {
    pub redis: PrivateRedis,
    pub maria: Option<PrivateMaria>,
    pub sql: MySqlPool,
    pub(super) ledger: MysqlLedger,
    pub(super) database: u8,
    pub(super) settings: toml::Table,
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

    pub async fn text(&self, query: impl Into<String>) -> Option<String> {
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
        let found = match self.ledger.find(&key(name)).await {
            // A test has cut its connection, or killed the server, since the last question.
            Err(error) if error.is_transient() => self.ledger.find(&key(name)).await,
            found => found,
        };
        let found = found.unwrap();
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

    pub async fn redis_says<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&mut self.redis_connection().await, words).await
    }

    /// The number of its database in Redis.
    pub fn redis_database(&self) -> u8 {
        self.database
    }

    /// For how many seconds redis has run.
    pub async fn redis_uptime_s(&self) -> i64 {
        let info: String = self.redis_says(&["INFO", "server"]).await;
        number_after(&info, "uptime_in_seconds:")
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

    /// How many times redis has executed this command.
    pub async fn redis_calls(&self, command: &str) -> i64 {
        calls(&mut self.redis_connection().await, command).await
    }

    /// Milliseconds a key has to live; -2 if it is not there.
    pub async fn pttl(&self, name: &str) -> i64 {
        self.redis_says(&["PTTL", name]).await
    }

    /// As any client could say it.
    pub async fn publish_expired(&self, name: impl ToSingleRedisArg + Send + Sync) {
        let mut publish = cmd("PUBLISH");
        publish.arg("__keyevent@0__:expired").arg(name);
        let heard: i64 = publish
            .query_async(&mut self.redis_connection().await)
            .await
            .unwrap();
        assert!(heard > 0, "nobody listens");
    }
}
