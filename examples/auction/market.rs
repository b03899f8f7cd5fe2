//! The application: it opens auctions, and a buyer pays for some. It knows the Redis protocol and its own database, but
//! nothing of `lapsed`'s library.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use lapsed::rusqlite::{self, Connection, params};
use lapsed::task::UnixMs;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, interval, sleep};

use crate::house::{AUCTIONS, CLASS, OPEN_EVERY, Opened, lasts, until_bell};
use crate::report::Effect;

/// How an auction's end is scheduled.
const SQL: &str = "INSERT (1)";
const PSETEX: &str = "PSETEX";
const SETEX: &str = "SETEX";

/// Only ids are unique, so that an effect that happens twice would be seen.
const TABLES: &str = "
    CREATE TABLE tb_auction_goods (
      id          INTEGER PRIMARY KEY,
      status      INTEGER NOT NULL DEFAULT 0, -- 0 on sale, 1 ended
      current_bid INTEGER NOT NULL DEFAULT 0,
      ended_ms    INTEGER,
      deal_status INTEGER NOT NULL DEFAULT 0 -- 0 none, 1 to be paid, 2 paid, 3 lapsed
    ) STRICT;
    CREATE TABLE tb_auction_bid (
      id INTEGER PRIMARY KEY, auction_id INTEGER NOT NULL, bidder INTEGER NOT NULL, amount INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX ix_bid ON tb_auction_bid (auction_id);
    CREATE TABLE tb_auction_order (
      id INTEGER PRIMARY KEY, auction_id INTEGER NOT NULL, bidder INTEGER NOT NULL, amount INTEGER NOT NULL,
      status     INTEGER NOT NULL DEFAULT 0, -- 0 to be paid, 1 paid, 2 lapsed
      created_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX ix_order ON tb_auction_order (auction_id);
    CREATE TABLE tb_shown_bid (auction_id INTEGER NOT NULL, amount INTEGER NOT NULL) STRICT;
    CREATE TABLE tb_effects (
      id INTEGER PRIMARY KEY, key TEXT NOT NULL, arming TEXT NOT NULL, attempt INTEGER NOT NULL,
      due_ms INTEGER NOT NULL, effect TEXT NOT NULL, at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX ix_effects ON tb_effects (arming);";

pub(crate) struct Market {
    db: Mutex<Connection>,
    door: redis::Client,
    cancelled: Mutex<BTreeSet<u64>>,
}

impl Market {
    /// Opens the database that the daemon has made, and adds the tables of the market.
    pub(crate) fn new(database: &Path, port: u16) -> Result<Self> {
        let db = Connection::open(database).context("open the database")?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.execute_batch(TABLES)
            .context("make the tables of the market")?;
        Ok(Self {
            db: Mutex::new(db),
            door: redis::Client::open(format!("redis://127.0.0.1:{port}"))?,
            cancelled: Mutex::default(),
        })
    }

    /// Opens all auctions: half of them with SQL, half with Redis commands.
    pub(crate) async fn open_all(&self) -> Result<Vec<Opened>> {
        let started = Instant::now();
        let mut opened = Vec::new();
        let mut pace = interval(OPEN_EVERY);
        for id in 1..=AUCTIONS.cast_signed() {
            pace.tick().await;
            let lasts = lasts(id.cast_unsigned());
            let (producer, due) = match id % 4 {
                1 => {
                    self.put_on_sale(id, None)?;
                    (PSETEX, self.expire(id, "PSETEX", lasts.as_millis()).await?)
                }
                3 => {
                    self.put_on_sale(id, None)?;
                    (
                        SETEX,
                        self.expire(id, "SETEX", u128::from(lasts.as_secs()))
                            .await?,
                    )
                }
                _ => {
                    // As people set them: several end at the same time.
                    let lasts = lasts + until_bell(started.elapsed() + lasts);
                    let due = UnixMs(now().0 + lasts.as_millis() as i64);
                    self.put_on_sale(id, Some(due))?;
                    (SQL, due)
                }
            };
            opened.push(Opened {
                id: id.cast_unsigned(),
                producer,
                due,
            });
        }
        Ok(opened)
    }

    /// Puts goods on sale. With `ends`, the task that ends the auction is part of the transaction.
    fn put_on_sale(&self, id: i64, ends: Option<UnixMs>) -> Result<()> {
        let mut db = self.db();
        let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute("INSERT INTO tb_auction_goods (id) VALUES (?1)", [id])?;
        tx.execute("INSERT INTO tb_shown_bid VALUES (?1, 100)", [id])?;
        tx.execute(
            "WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < 200)
             INSERT INTO tb_auction_bid (auction_id, bidder, amount) SELECT ?1, n, 100 + n * ?1 % 997 FROM seq",
            [id],
        )?;
        if let Some(due) = ends {
            tx.execute(
                "INSERT INTO tb_time_limit_task (key, start_time, end_time) VALUES (?1, ?2, ?3)",
                params![end_of(id), now().0, due.0],
            )?;
        }
        Ok(tx.commit()?)
    }

    /// `SETEX` or `PSETEX`. Returns the due time that the daemon has committed.
    async fn expire(&self, id: i64, command: &str, ttl: u128) -> Result<UnixMs> {
        let key = end_of(id);
        let ttl = ttl.to_string();
        let mut commands = redis::pipe();
        commands.cmd(command).arg(&[&key[..], &ttl, ""]).ignore();
        commands.cmd("PEXPIRETIME").arg(&key);
        let ((due,), _) = self.until_answered(&commands).await?;
        Ok(UnixMs(due))
    }

    /// Sends commands until there is an answer. Returns whether it took more than one try, too.
    async fn until_answered<T: redis::FromRedisValue>(
        &self,
        commands: &redis::Pipeline,
    ) -> Result<(T, bool)> {
        let mut again = false;
        loop {
            match self.ask(commands).await {
                Ok(answer) => return Ok((answer, again)),
                // There is no daemon at this moment.
                Err(error) if error.is_io_error() => sleep(Duration::from_millis(50)).await,
                Err(error) => return Err(error.into()),
            }
            again = true;
        }
    }

    async fn ask<T: redis::FromRedisValue>(&self, commands: &redis::Pipeline) -> RedisResult<T> {
        let mut door: MultiplexedConnection = self.door.get_multiplexed_async_connection().await?;
        commands.query_async(&mut door).await
    }

    /// A buyer who pays for every third auction a second after its end, and calls off the deadline.
    pub(crate) async fn pay_some(&self) -> Result<Infallible> {
        loop {
            for id in self.unpaid()? {
                self.pay(id).await?;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn unpaid(&self) -> Result<Vec<i64>> {
        let db = self.db();
        let mut unpaid = db.prepare_cached(
            "SELECT DISTINCT auction_id FROM tb_auction_order
             WHERE status = 0 AND auction_id % 3 = 0 AND created_ms < ?1",
        )?;
        let ids = unpaid.query_map([now().0 - 1_000], |row| row.get(0))?;
        Ok(ids.collect::<rusqlite::Result<_>>()?)
    }

    async fn pay(&self, id: i64) -> Result<()> {
        let paid = {
            let mut db = self.db();
            let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let paid = tx.execute(
                "UPDATE tb_auction_order SET status = 1 WHERE auction_id = ?1 AND status = 0",
                [id],
            )?;
            tx.execute(
                "UPDATE tb_auction_goods SET deal_status = 2 WHERE id = ?1 AND ?2",
                params![id, paid > 0],
            )?;
            tx.commit()?;
            paid
        };
        if paid == 0 {
            return Ok(()); // the deadline was faster
        }
        let mut cancel = redis::pipe();
        cancel.cmd("DEL").arg(format!("{CLASS}@dealCutDown@{id}"));
        let ((cancelled,), again): ((u8,), bool) = self.until_answered(&cancel).await?;
        // If it runs already, it finds the order paid. If the first answer was lost, the row says what it was.
        if cancelled == 1 || again && self.is_cancelled(id)? {
            self.cancelled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id.cast_unsigned());
        }
        Ok(())
    }

    fn is_cancelled(&self, id: i64) -> Result<bool> {
        const CANCELLED: u8 = 3;
        let key = format!("{CLASS}@dealCutDown@{id}");
        let status = "SELECT status FROM tb_time_limit_task WHERE key = ?1";
        let status: u8 = self.db().query_row(status, [key], |row| row.get(0))?;
        Ok(status == CANCELLED)
    }

    /// Auctions whose payment deadline was cancelled, and acknowledged to be.
    pub(crate) fn cancelled(&self) -> BTreeSet<u64> {
        self.cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Tasks that are unfinished, and those of them that are running.
    pub(crate) fn open_and_running(&self) -> Result<(u64, u64)> {
        let counts =
            "SELECT COUNT(*), COUNT(iif(lease_until > ?1, 1, NULL)) FROM tb_time_limit_task
                      WHERE status = 0 AND sts = 0";
        let [open, running] = self.counts(counts, [now().0])?;
        Ok((open, running))
    }

    /// What the transactions of the handlers left.
    pub(crate) fn effects(&self) -> Result<Vec<Effect>> {
        let db = self.db();
        let mut effects =
            db.prepare("SELECT key, attempt, due_ms, at_ms FROM tb_effects ORDER BY id")?;
        let effects = effects.query_map([], |row| {
            Ok(Effect {
                key: row.get(0)?,
                attempt: row.get(1)?,
                due_ms: row.get(2)?,
                at_ms: row.get(3)?,
            })
        })?;
        Ok(effects.collect::<rusqlite::Result<_>>()?)
    }

    /// How many tasks are through, and a line about it.
    pub(crate) fn progress(&self) -> Result<(u64, String)> {
        let counts = "SELECT (SELECT COUNT(*) FROM tb_auction_goods WHERE status = 0), (SELECT COUNT(*) FROM tb_effects)";
        let [open, effects] = self.counts(counts, [])?;
        let [due, paid, lapsed] = self.orders()?;
        Ok((
            effects + self.cancelled().len() as u64,
            format!("auctions open: {open}, unpaid: {due}, paid: {paid}, lapsed: {lapsed}"),
        ))
    }

    /// Orders to be paid, paid, lapsed.
    pub(crate) fn orders(&self) -> Result<[u64; 3]> {
        const COUNTS: &str = "SELECT COUNT(iif(status = 0, 1, NULL)), COUNT(iif(status = 1, 1, NULL)), \
                              COUNT(iif(status = 2, 1, NULL)) FROM tb_auction_order";
        self.counts(COUNTS, [])
    }

    /// Current bids that are still shown: of auctions whose end was not announced.
    pub(crate) fn shown_bids(&self) -> Result<usize> {
        let [count] = self.counts("SELECT COUNT(*) FROM tb_shown_bid", [])?;
        Ok(usize::try_from(count)?)
    }

    /// The row of a statement that counts.
    fn counts<const N: usize>(
        &self,
        statement: &str,
        params: impl rusqlite::Params,
    ) -> Result<[u64; N]> {
        let db = self.db();
        let mut statement = db.prepare_cached(statement)?;
        let counts = statement.query_row(params, |row| {
            let mut counts = [0; N];
            for (place, count) in counts.iter_mut().enumerate() {
                *count = row.get::<_, i64>(place)?.cast_unsigned();
            }
            Ok(counts)
        })?;
        Ok(counts)
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that ends an auction.
fn end_of(id: i64) -> String {
    format!("{CLASS}@auctionEndCutDown@{id}")
}

/// This machine's clock, which is the ledger's.
pub(crate) fn now() -> UnixMs {
    UnixMs(jiff::Timestamp::now().as_millisecond())
}
