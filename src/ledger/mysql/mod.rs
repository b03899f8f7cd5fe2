//! The ledger in MySQL or MariaDB.

mod adopt;
mod adopt_many;
mod cancel;
mod catalog;
mod charset;
mod claim;
mod connection;
mod create;
mod decode;
mod detailed_stats;
mod facts;
mod filter;
mod lease_scan;
mod locks;
mod lost;
mod maintenance;
mod pauses;
mod pool;
mod privileges;
pub mod queries;
mod rates;
mod scan;
mod search;
mod series;
mod settle;
mod transaction;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::connection::{Conn, Pools, error, is_about_data, statement};
use self::decode::LookupRow;
use self::facts::KnownFacts;
use self::locks::Locks;
#[cfg(feature = "cli")]
pub(crate) use self::pool::ENGINE_SESSION;
use self::queries::{Queries, padded};
pub use self::transaction::TaskTransaction;
pub(crate) use self::transaction::{Ending, TransactionError};
use super::migrate;
use super::recurring::SeriesRow;
use super::{
    Adopted, AdoptionRequest, CancelAnswer, CancelCursor, CancelFilter, CancelPage, Claim,
    Claimant, Created, DuePage, DuePlace, DueScan, FoundLease, Known, Lease, LeasePage, Ledger,
    LedgerError, Lookup, NewTask, Pauses, Renewal, RescheduleAnswer, Settled, Settlement, Upcoming,
};
use crate::clock::{self, LedgerClock};
use crate::config::{ConfigError, LedgerConfig};
use crate::task::{Arming, KeyBuckets, State, TableName, TaskKey, UnixMs};

/// Most rows of one statement; above it only latency grows.
const BATCH_MAX: usize = 512;

/// How old a reading of the server's clock may be before a producer asks again.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(30);

/// How often a producer's statement meets another session's lock before its caller hears of it. One about many rows
/// waits for a lock once: its caller may know better than to let all of them wait for one.
const LOCK_ATTEMPTS: u32 = 5;

/// Runs an expression of a connection, again after a deadlock or a lock that was waited for in vain. A macro,
/// because the future of an async closure over borrowed things cannot be shown to be `Send`.
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
                    if $crate::ledger::mysql::connection::is_locked(&error)
                        && attempt < $crate::ledger::mysql::attempts_after(&error, $rows) =>
                {
                    attempt += 1
                }
                result => break result.map_err($crate::ledger::mysql::connection::error),
            }
        }
    }};
}
use retried;

fn attempts_after(error: &sqlx::Error, rows: usize) -> u32 {
    match rows > 1 && !connection::is_deadlock(error) {
        true => 1,
        false => LOCK_ATTEMPTS,
    }
}

/// The ledger in MySQL or MariaDB (or whatever speaks their protocol and has single-row conditional
/// updates). Connects when first used; clones share their connections.
#[derive(Debug, Clone)]
pub struct MysqlLedger {
    pools: Pools,
    queries: Queries,
    table: TableName,
    clock: LedgerClock,
    clock_read: std::sync::Arc<std::sync::Mutex<Option<ClockRead>>>,
    locks: std::sync::Arc<Locks>,
    facts: std::sync::Arc<KnownFacts>,
    /// Read by the first check.
    identity: std::sync::Arc<std::sync::OnceLock<String>>,
}

/// The latest reading of the server's clock.
#[derive(Debug, Clone)]
struct ClockRead {
    at: Instant,
    /// By which server, if that tells.
    server: Option<String>,
}

impl MysqlLedger {
    /// A ledger that connects when first used.
    ///
    /// # Errors
    /// [`ConfigError`] for a URL or a table name that cannot be.
    pub fn new(config: &LedgerConfig) -> Result<Self, ConfigError> {
        let table = TableName::new(&config.table)
            .map_err(|error| ConfigError::one("ledger.table", error.to_string()))?;
        Ok(Self {
            pools: Pools::lazy(config)?,
            queries: Queries::new(&table),
            table,
            clock: LedgerClock::estimated_at(clock::wall()),
            clock_read: std::sync::Arc::default(),
            locks: std::sync::Arc::default(),
            facts: std::sync::Arc::default(),
            identity: std::sync::Arc::default(),
        })
    }

    /// What tells this ledger from every other one, once [`check`](Ledger::check) has read it. A table that was not
    /// migrated since there are identities has none.
    pub fn identity(&self) -> std::sync::Arc<std::sync::OnceLock<String>> {
        std::sync::Arc::clone(&self.identity)
    }

    /// Reads the identity, if that can be done.
    pub(crate) async fn read_identity(&self) {
        let Ok(mut connection) = self.connection().await else {
            return;
        };
        let identity = migrate::identity(&mut connection, &self.table).await;
        if let Ok(Some(identity)) = identity {
            self.identity.get_or_init(|| identity);
        }
    }

    /// The table's name.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// A connection of its own for work that is not the ledger's: migration, diagnosis.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or `Refused`, as the server says.
    pub async fn connection(&self) -> Result<sqlx::MySqlConnection, LedgerError> {
        let mut connection = self.pools.acquire().await?.detach();
        // Such work takes as long as it takes.
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
        let mut connection = self.connection().await?;
        let options = migrate::Options::default();
        migrate::apply(&mut connection, &self.table, &options, &mut |_| {})
            .await
            .map_err(|error| LedgerError::Refused {
                message: error.to_string(),
                source: Some(std::sync::Arc::new(error)),
            })
    }

    /// Waits until every connection is closed.
    pub async fn close(&self) {
        self.pools.close().await;
    }

    /// The server's time, asked for again if what is known is old: for producers, which have no
    /// daemon that follows the clock.
    ///
    /// # Errors
    /// [`LedgerError`] if it has to be asked for and does not answer.
    pub async fn now(&self) -> Result<UnixMs, LedgerError> {
        match self.clock_read().as_ref() {
            Some(read) if read.at.elapsed() < CLOCK_AGE_MAX => return Ok(self.clock.now()),
            _ => {}
        }
        self.sync_clock().await
    }

    fn clock_read(&self) -> std::sync::MutexGuard<'_, Option<ClockRead>> {
        self.clock_read
            .lock()
            .expect("nothing panics while holding it")
    }

    /// Where keys stand; those without a row are left out. A key that the server refuses has none: it is asked about the
    /// others without it.
    async fn look_up_rows(
        &self,
        conn: &mut Conn,
        keys: &[&str],
    ) -> sqlx::Result<HashMap<String, LookupRow>> {
        let charset = self.charset_for(conn, keys).await?;
        let fitting = keys.iter().copied().filter(|key| charset.holds(key));
        let mut parts: Vec<Vec<&str>> = vec![fitting.collect()];
        let mut lookups = HashMap::with_capacity(keys.len());
        while let Some(mut part) = parts.pop() {
            match self.look_up_rows_of(conn, &part).await {
                Ok(found) => lookups.extend(found.into_iter().map(|row| (row.key.clone(), row))),
                Err(error) if is_about_data(&error) => {
                    self.facts.forget();
                    let half = part.split_off(part.len() / 2);
                    if !part.is_empty() {
                        parts.extend([part, half]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(lookups)
    }

    async fn look_up_rows_of(
        &self,
        conn: &mut Conn,
        keys: &[&str],
    ) -> sqlx::Result<Vec<LookupRow>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let keys = padded(keys);
        let question = self.queries.with_keys(queries::LOOKUP, keys.len());
        let question = keys.iter().fold(statement(question), |question, key| {
            question.bind((*key).to_owned())
        });
        let rows = conn.fetch(question).await?;
        rows.iter().map(LookupRow::read).collect()
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
        // What was known exactly is another server's time.
        if read.is_some_and(|read| read.server != server) {
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
        self.read_identity().await;
        let mut conn = self.pools.acquire().await?;
        // Matches no row; refused at once if the rights are missing.
        let probe = statement(self.queries.with_rows(queries::RENEW, 1))
            .bind(0i64)
            .bind(0u64)
            .bind(0u64)
            .bind(vec![0u8; 16]);
        conn.execute(probe).await.map_err(error)?;
        Ok(())
    }

    fn pauses(&self) -> &dyn Pauses {
        self
    }

    fn as_mysql(&self) -> Option<&MysqlLedger> {
        Some(self)
    }

    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        self.now().await?;
        let keys: Vec<&TaskKey> = tasks.iter().map(|task| &task.key).collect();
        self.refuse_unfit(&keys).await?;
        let mut created = Vec::with_capacity(tasks.len());
        let tasks: Vec<&NewTask> = tasks.iter().collect();
        for batch in tasks.chunks(BATCH_MAX) {
            created.extend(retried!(self, batch.len(), |conn| self.create_batch(conn, batch))?);
        }
        Ok(created)
    }

    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError> {
        self.now().await?;
        self.series_of(key).await
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError> {
        self.refuse_unfit(&[&task.key]).await?;
        retried!(self, |conn| self.write_series_once(conn, task, over))
    }

    async fn mark_configured(&self, seen: &SeriesRow) -> Result<bool, LedgerError> {
        self.mark_configured_of(seen).await
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        retried!(self, |conn| self.reschedule_once(conn, key, due))
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        let mut answers = Vec::with_capacity(keys.len());
        let texts: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
        for batch in texts.chunks(BATCH_MAX) {
            answers.extend(retried!(self, |conn| self.cancel_once(conn, batch))?);
        }
        Ok(answers)
    }

    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        self.cancel_one_page(filter, before, dry_run).await
    }

    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let mut found = Vec::with_capacity(keys.len());
        let texts: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
        for batch in texts.chunks(BATCH_MAX) {
            let lookups = self.look_up_rows(&mut conn, batch).await.map_err(error)?;
            found.extend(
                batch
                    .iter()
                    .map(|key| lookups.get(*key).map(LookupRow::lookup)),
            );
        }
        Ok(found)
    }

    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        self.scan_page(scan).await
    }

    async fn scan_news(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError> {
        self.news_page(scan, among, known).await
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        let mut claims = Vec::with_capacity(armings.len());
        for batch in armings.chunks(BATCH_MAX) {
            claims.extend(self.claim_batch(batch, by).await?);
        }
        Ok(claims)
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        let mut renewals = HashMap::with_capacity(leases.len());
        for batch in leases.chunks(BATCH_MAX) {
            renewals.extend(self.renew_batch(batch, length).await?);
        }
        Ok(leases.iter().map(|lease| renewals[lease]).collect())
    }

    async fn scan_leases(&self, after: Option<DuePlace>) -> Result<LeasePage, LedgerError> {
        self.lease_page(after).await
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError> {
        self.end_leases_of_daemons(leases).await
    }

    async fn free_of(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        self.free_rows(rows).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let mut settled = Vec::with_capacity(settlements.len());
        for batch in settlements.chunks(BATCH_MAX) {
            settled.extend(self.settle_batch(batch).await?);
        }
        Ok(settled)
    }

    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        self.adopt_all(keys).await
    }

    async fn withdraw(&self, seen: &Lookup, heard: UnixMs) -> Result<bool, LedgerError> {
        let withdraw = || self.withdrawal(seen, heard);
        let matched = retried!(self, |conn| conn.execute(withdraw()))?;
        Ok(matched > 0)
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        let undelete = || {
            statement(self.queries.plain(queries::UNDELETE))
                .bind(arming.row)
                .bind(arming.due.0)
        };
        let matched = retried!(self, |conn| conn.execute(undelete()))?;
        Ok(matched > 0)
    }
}

impl MysqlLedger {
    /// Runs `update`, whose last value is the key, and tells whether it matched and where the key stands then.
    async fn change(
        &self,
        conn: &mut Conn,
        update: connection::Statement<'static>,
        key: &TaskKey,
    ) -> sqlx::Result<(bool, Option<LookupRow>)> {
        if !self.can_hold(conn, key).await? {
            return Ok((false, None));
        }
        let matched = conn.execute(update.bind(key.to_string())).await?;
        let lookup = self
            .look_up_rows(conn, &[key.as_str()])
            .await?
            .remove(key.as_str());
        Ok((matched > 0, lookup))
    }

    async fn reschedule_once(
        &self,
        conn: &mut Conn,
        key: &TaskKey,
        due: UnixMs,
    ) -> sqlx::Result<RescheduleAnswer> {
        let update = statement(self.queries.plain(queries::RESCHEDULE)).bind(due.0);
        let (matched, lookup) = self.change(conn, update, key).await?;
        Ok(match lookup {
            None => RescheduleAnswer::Unknown,
            Some(row) if matched => RescheduleAnswer::Moved(row.arming),
            Some(row) => match row.state() {
                State::Running => RescheduleAnswer::Running,
                state => RescheduleAnswer::Finished(state),
            },
        })
    }

    async fn cancel_once(&self, conn: &mut Conn, keys: &[&str]) -> sqlx::Result<Vec<CancelAnswer>> {
        let charset = self.charset_for(conn, keys).await?;
        let fitting = keys.iter().copied().filter(|key| charset.holds(key));
        let mut sorted: Vec<&str> = fitting.collect();
        if sorted.is_empty() {
            return Ok(vec![CancelAnswer::Unknown; keys.len()]);
        }
        sorted.sort_unstable();
        let sorted = padded(&sorted);
        let update = statement(self.queries.with_keys(queries::CANCEL, sorted.len()));
        conn.execute(
            sorted
                .iter()
                .fold(update, |update, key| update.bind((*key).to_owned())),
        )
        .await?;
        let lookups = self.look_up_rows(conn, keys).await?;
        Ok(keys
            .iter()
            .map(|key| decode::cancel_answer(lookups.get(*key)))
            .collect())
    }
}
