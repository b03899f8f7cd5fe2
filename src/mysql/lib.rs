//! The ledger in MySQL or MariaDB.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod admin;
mod adopt_many;
mod adoption;
mod archive;
mod cancel;
mod change;
mod charset;
mod claim;
mod claims;
mod connection;
mod create;
mod decode;
mod detailed_stats;
mod documents;
mod error;
mod error_numbers;
mod facts;
mod filter;
mod key_charset;
mod lease_scan;
mod locks;
mod lookup;
mod lost;
#[doc(hidden)] // for the program and the tests
pub mod migrate;
mod pauses;
mod pool;
mod privileges;
mod producer;
#[doc(hidden)] // for the tests
pub mod queries;
mod rates;
mod retention;
mod scans;
mod search;
mod series;
mod settle;
mod sizes;
mod transactions;
mod transfer;
mod unpaused;

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::connection::{Pools, statement};
pub use self::decode::pause as decode_pause;
use self::error::error;
use self::facts::CachedFacts;
use self::locks::Locks;
pub use self::pool::ENGINE_SESSION;
use self::queries::Queries;
pub use self::transactions::{TaskTransaction, TransactionError};
use lapsed_core::clock::{self, LedgerClock};
use lapsed_core::config::{ConfigError, LedgerConfig};
use lapsed_core::ledger::{Ledger, LedgerError};
use lapsed_core::task::{TableName, UnixMs};

/// Maximum number of rows of one statement. More only add latency.
const BATCH_MAX: usize = 512;

/// Maximum age of a reading of the server's clock. After that, a producer reads it again.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(30);

/// How often a producer's statement may meet another session's lock before its caller gets the error. A statement about
/// many rows waits once: its caller may prefer not to let all of them wait for one.
const LOCK_ATTEMPTS: u32 = 5;

/// Runs an expression that uses a connection, again after a deadlock or a lock wait timeout. A macro, because the future of
/// an async closure that borrows cannot be shown to be `Send`.
macro_rules! retried {
    ($ledger:expr, |$conn:ident| $act:expr) => {
        retried!($ledger, 1, |$conn| $act)
    };
    ($ledger:expr, $rows:expr, |$conn:ident| $act:expr) => {{
        let mut connection = $ledger.pools.acquire().await?;
        let $conn = &mut connection;
        let mut attempt = 1;
        loop {
            match $act.await {
                Err(error)
                    if $crate::error_numbers::is_locked(&error)
                        && attempt < $crate::attempts_after(&error, $rows) =>
                {
                    attempt += 1
                }
                result => break result.map_err($crate::error::error),
            }
        }
    }};
}
use retried;

fn attempts_after(error: &sqlx::Error, rows: usize) -> u32 {
    match rows > 1 && !error_numbers::is_deadlock(error) {
        true => 1,
        false => LOCK_ATTEMPTS,
    }
}

/// The ledger in MySQL or MariaDB, or another server with their protocol and single-row conditional updates. Connects when
/// first used; clones share their connections.
#[derive(Debug, Clone)]
pub struct MysqlLedger {
    pools: Pools,
    queries: Queries,
    /// The statements that read the archive.
    archive: Queries,
    table: TableName,
    clock: LedgerClock,
    clock_read: std::sync::Arc<std::sync::Mutex<Option<ClockRead>>>,
    locks: std::sync::Arc<Locks>,
    facts: std::sync::Arc<CachedFacts>,
    /// Set by the first check.
    identity: std::sync::Arc<std::sync::OnceLock<String>>,
}

/// The latest reading of the server's clock.
#[derive(Debug, Clone)]
struct ClockRead {
    at: Instant,
    /// The server that was read, if the server tells its name.
    server: Option<String>,
}

impl MysqlLedger {
    /// Creates a ledger that connects when first used.
    ///
    /// # Errors
    /// [`ConfigError`] for an invalid URL or table name.
    pub fn new(config: &LedgerConfig) -> Result<Self, ConfigError> {
        let table = TableName::new(&config.table)
            .map_err(|error| ConfigError::one("ledger.table", error.to_string()))?;
        Ok(Self {
            pools: Pools::lazy(config)?,
            queries: Queries::new(&table),
            archive: Queries::of_archive(&table),
            table,
            clock: LedgerClock::estimated_at(clock::wall()),
            clock_read: std::sync::Arc::default(),
            locks: std::sync::Arc::default(),
            facts: std::sync::Arc::default(),
            identity: std::sync::Arc::default(),
        })
    }

    /// Returns the unique identity of this ledger, set once [`check`](Ledger::check) has read it. A table that was last migrated
    /// before identities existed has none.
    pub fn identity(&self) -> std::sync::Arc<std::sync::OnceLock<String>> {
        std::sync::Arc::clone(&self.identity)
    }

    /// Reads the identity, if the table has one.
    ///
    /// # Errors
    /// As [`connection`](Self::connection).
    pub async fn read_identity(&self) -> Result<(), LedgerError> {
        let mut connection = self.connection().await?;
        let identity = migrate::identity(&mut connection, &self.table).await;
        if let Ok(Some(identity)) = identity {
            self.identity.get_or_init(|| identity);
        }
        Ok(())
    }

    /// Returns the table's name.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// Opens a connection for work outside the ledger: migration, diagnosis.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Refused`], as the server answers.
    pub async fn connection(&self) -> Result<sqlx::MySqlConnection, LedgerError> {
        let mut connection = self.pools.acquire().await?.detach();
        // Such work has no time limit.
        let unlimited = sqlx::AssertSqlSafe(pool::statement_limit(None));
        sqlx::Executor::execute(&mut connection, unlimited)
            .await
            .map_err(error)?;
        Ok(connection)
    }

    /// Creates the table, or adopts an existing one, as `lapsed migrate` does.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] says what is in the way.
    pub async fn migrate(&self) -> Result<(), LedgerError> {
        self.migrate_with(&migrate::Options::default()).await
    }

    /// As [`migrate`](Self::migrate), with these options.
    ///
    /// # Errors
    /// As [`migrate`](Self::migrate).
    #[doc(hidden)] // as the options are
    pub async fn migrate_with(&self, options: &migrate::Options) -> Result<(), LedgerError> {
        let mut connection = self.connection().await?;
        migrate::apply(&mut connection, &self.table, options, &mut |_| {})
            .await
            .map_err(|error| LedgerError::Refused {
                message: error.to_string(),
                source: Some(std::sync::Arc::new(error)),
            })
    }

    /// Closes every connection, and waits for that.
    pub async fn close(&self) {
        self.pools.close().await;
    }

    /// Returns the server's time. Reads it again if the latest reading is old: producers have no daemon that follows the clock.
    ///
    /// # Errors
    /// [`LedgerError`] if the time must be read and the server does not answer.
    pub async fn now(&self) -> Result<UnixMs, LedgerError> {
        match self.clock_read().as_ref() {
            Some(read) if read.at.elapsed() < CLOCK_AGE_MAX && !self.clock.has_jumped() => {
                return Ok(self.clock.now());
            }
            _ => {}
        }
        self.sync_clock().await
    }

    fn clock_read(&self) -> std::sync::MutexGuard<'_, Option<ClockRead>> {
        self.clock_read
            .lock()
            .expect("nothing panics while holding it")
    }
}

#[async_trait]
impl Ledger for MysqlLedger {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn now(&self) -> Result<UnixMs, LedgerError> {
        MysqlLedger::now(self).await
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let asked = Instant::now();
        let rows = conn
            .fetch(statement(queries::CLOCK.to_owned()))
            .await
            .map_err(error)?;
        let now_us = decode::first_i64(&rows).map_err(error)?;
        let server = conn.server().map(str::to_owned);
        let read = self.clock_read().replace(ClockRead {
            at: asked,
            server: server.clone(),
        });
        // The estimate was exact for another server's clock, or before a jump.
        if read.is_some_and(|read| read.server != server) || self.clock.has_jumped() {
            self.clock.distrust();
        }
        self.clock.observe_us(now_us, asked);
        Ok(self.clock.now())
    }

    async fn check(&self) -> Result<(), LedgerError> {
        self.sync_clock().await?;
        let mut connection = self.connection().await?;
        migrate::check_tasks(&mut connection, &self.table)
            .await
            .map_err(|error| LedgerError::Refused {
                message: error.to_string(),
                source: Some(std::sync::Arc::new(error)),
            })?;
        self.read_identity().await?;
        self.check_writable().await
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        let mut conn = self.pools.acquire().await?;
        // Matches no row. Refused at once if the privileges are missing.
        let probe = statement(self.queries.with_rows(queries::RENEW, 1))
            .bind(0i64)
            .bind(0u64)
            .bind(0u64)
            .bind(vec![0u8; 16]);
        conn.execute(probe).await.map_err(error)?;
        Ok(())
    }

    async fn close(&self) {
        MysqlLedger::close(self).await;
    }

    fn database(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self)
    }
}
