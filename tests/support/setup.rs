//! How a [`Rig`] is set up.

use std::sync::atomic::{AtomicU32, Ordering};

use lapsed::Config;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed_sandbox::{PrivateMaria, PrivateRedis, RedisOptions};
use sqlx::mysql::MySqlPoolOptions;

use crate::support::maria;
use crate::support::rig::Rig;
use crate::support::wait::DEADLINE;

/// What handlers leave behind.
const TRACES: &str = "CREATE TABLE runs (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) COLLATE utf8mb4_bin, \
       task VARCHAR(64), attempt INT, due_ms BIGINT, at_ms BIGINT); \
     CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) COLLATE utf8mb4_bin, task VARCHAR(64))";

/// How to set up a [`Rig`].
pub struct Setup {
    settings: toml::Table,
    redis: RedisOptions,
    database: u8,
    own_maria: bool,
    ledger: Option<String>,
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
            ledger: None,
            migrated: true,
        }
    }

    /// A database server that may be killed, whose commits outlive that.
    pub fn own_maria(mut self) -> Self {
        self.own_maria = true;
        self
    }

    /// The URL of an empty database on a server that the test has started.
    pub fn ledger(mut self, url: String) -> Self {
        self.ledger = Some(url);
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

    /// The test creates the table.
    pub fn without_table(mut self) -> Self {
        self.migrated = false;
        self
    }

    pub async fn start(self) -> Rig {
        // What daemons in this process say is shown if the test fails.
        let log = tracing_subscriber::fmt().with_ansi(false);
        let _ = log.with_test_writer().try_init();
        let redis = self.redis.start().await.unwrap();
        let (maria, ledger_url) = if let Some(url) = self.ledger {
            (None, url)
        } else if self.own_maria {
            let maria = PrivateMaria::options().durable(true).start().await.unwrap();
            let url = maria.create_database("lapsed").await.unwrap();
            (Some(maria), url)
        } else {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let name = format!("e2e_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
            (None, maria::database(&name).await)
        };
        let mut settings = self.settings;
        let base = format!(
            "redis.url = 'redis://127.0.0.1:{}/{}'\nledger.url = '{ledger_url}'",
            redis.port(),
            self.database
        );
        overlay(&mut settings, base.parse().unwrap());
        let config = Config::from_toml(&toml::to_string(&settings).unwrap()).unwrap();
        let pool = MySqlPoolOptions::new().acquire_timeout(DEADLINE);
        let rig = Rig {
            sql: pool.connect_lazy(&ledger_url).unwrap(),
            ledger: MysqlLedger::new(&config.ledger).unwrap(),
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

/// Lays settings over others.
pub(super) fn overlay(below: &mut toml::Table, above: toml::Table) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, value) => {
                below.insert(name, value);
            }
        }
    }
}
