//! The application: it opens auctions, and a buyer pays for some. It knows tasks, but no daemon.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use lapsed::ledger::CancelAnswer;
use lapsed::task::UnixMs;
use lapsed::{Config, TaskClient, TaskType};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use sqlx::MySqlPool;
use tokio::time::{Instant, interval, sleep};

use crate::house::{AUCTIONS, CLASS, OPEN_EVERY, Opened, lasts, until_bell};
use crate::report::Effect;

/// How an auction's end is scheduled: `TaskClient::create`; the base class's `create_ms`, a row and then `PSETEX`; its
/// `create`, a row of whole seconds and then `SETEX`.
const RUST: &str = "Rust";
const PSETEX: &str = "PSETEX";
const SETEX: &str = "SETEX (1)";

/// Ends an auction. The worker has its handler; PHP schedules it by name.
pub(crate) const END: TaskType<(u64,)> = TaskType::new(CLASS, "auctionEndCutDown");

/// Closes the deal if the highest bidder has not paid.
pub(crate) const CLOSE_DEAL: TaskType<(u64,)> = TaskType::new(CLASS, "dealCutDown");

/// Only ids are unique, so that an effect that happens twice would be seen.
const TABLES: &str = "
    CREATE TABLE tb_auction_goods (
      id             BIGINT UNSIGNED NOT NULL PRIMARY KEY,
      status         TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 on sale, 1 ended',
      current_bid    BIGINT UNSIGNED NOT NULL DEFAULT 0,
      final_end_time DECIMAL(13,3) UNSIGNED NULL,
      deal_status    TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 none, 1 to be paid, 2 paid, 3 lapsed'
    ) ENGINE=InnoDB;
    CREATE TABLE tb_auction_bid (
      id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      auction_id BIGINT UNSIGNED NOT NULL,
      bidder     BIGINT UNSIGNED NOT NULL,
      amount     BIGINT UNSIGNED NOT NULL,
      KEY ix_auction (auction_id)
    ) ENGINE=InnoDB;
    CREATE TABLE tb_auction_order (
      id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      auction_id BIGINT UNSIGNED NOT NULL,
      bidder     BIGINT UNSIGNED NOT NULL,
      amount     BIGINT UNSIGNED NOT NULL,
      status     TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 to be paid, 1 paid, 2 lapsed',
      created    TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
      KEY ix_auction (auction_id)
    ) ENGINE=InnoDB;
    CREATE TABLE tb_effects (
      id      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      `key`   VARCHAR(255) NOT NULL,
      arming  VARCHAR(64) NOT NULL COMMENT 'row id and due time of the task',
      attempt SMALLINT UNSIGNED NOT NULL,
      due_ms  BIGINT NOT NULL,
      effect  VARCHAR(64) NOT NULL,
      at_ms   BIGINT NOT NULL
    ) ENGINE=InnoDB;";

pub(crate) struct Market {
    pub(crate) db: MySqlPool,
    redis: MultiplexedConnection,
    tasks: TaskClient,
    cancelled: Mutex<BTreeSet<u64>>,
}

impl Market {
    pub(crate) async fn new(config: &Config) -> Result<Self> {
        let db = MySqlPool::connect(config.ledger.url.expose())
            .await
            .context("connect to the database")?;
        sqlx::raw_sql(TABLES)
            .execute(&db)
            .await
            .context("make the tables of the market")?;
        let redis = redis::Client::open(config.redis.url.expose())?
            .get_multiplexed_async_connection()
            .await?;
        Ok(Self {
            db,
            redis,
            tasks: TaskClient::connect(config).await?,
            cancelled: Mutex::default(),
        })
    }

    /// Opens all auctions, half of them from Rust, half as the PHP programs do.
    pub(crate) async fn open_all(&self) -> Result<Vec<Opened>> {
        let started = Instant::now();
        let mut opened = Vec::new();
        let mut pace = interval(OPEN_EVERY);
        for id in 1..=AUCTIONS {
            pace.tick().await;
            self.put_on_sale(id).await?;
            let lasts = lasts(id);
            let (producer, due) = match id % 4 {
                1 => (PSETEX, self.schedule_end_like_php_ms(id, lasts).await?),
                3 => (SETEX, self.schedule_end_like_php(id, lasts).await?),
                _ => {
                    // As people set them: several end at the same time.
                    let lasts = lasts + until_bell(started.elapsed() + lasts);
                    (RUST, self.schedule_end(id, lasts).await?)
                }
            };
            opened.push(Opened { id, producer, due });
        }
        Ok(opened)
    }

    async fn put_on_sale(&self, id: u64) -> Result<()> {
        sqlx::query("INSERT INTO tb_auction_goods (id) VALUES (?)")
            .bind(id)
            .execute(&self.db)
            .await?;
        sqlx::query("INSERT INTO tb_auction_bid (auction_id, bidder, amount) SELECT ?, seq, 100 + seq * ? % 997 FROM seq_1_to_200")
            .bind(id)
            .bind(id)
            .execute(&self.db)
            .await?;
        let _: () = self
            .redis
            .clone()
            .set(format!("auction_gid@{id}@current_bid"), 100)
            .await?;
        Ok(())
    }

    async fn schedule_end(&self, id: u64, lasts: Duration) -> Result<UnixMs> {
        Ok(self.tasks.create(END.args(id), lasts).await?.due())
    }

    /// `create_ms($funcName, $ttl, $params)`: knows the old table's columns and nothing of `lapsed`.
    async fn schedule_end_like_php_ms(&self, id: u64, lasts: Duration) -> Result<UnixMs> {
        let key = format!("{CLASS}@auctionEndCutDown@{id}");
        let ttl_ms = lasts.as_millis() as i64;
        let now_ms = jiff::Timestamp::now().as_millisecond();
        self.record_like_php(&key, now_ms, now_ms + ttl_ms).await?;
        let _: () = self.redis.clone().pset_ex(&key, "", ttl_ms as u64).await?;
        Ok(UnixMs(now_ms + ttl_ms))
    }

    /// `create($funcName, $ttl, $params)`: PHP's `time()` drops the fraction of the second.
    async fn schedule_end_like_php(&self, id: u64, lasts: Duration) -> Result<UnixMs> {
        let key = format!("{CLASS}@auctionEndCutDown@{id}");
        let ttl = lasts.as_secs() as i64;
        let now = jiff::Timestamp::now().as_second();
        self.record_like_php(&key, now * 1_000, (now + ttl) * 1_000)
            .await?;
        let _: () = self.redis.clone().set_ex(&key, "", ttl as u64).await?;
        Ok(UnixMs((now + ttl) * 1_000))
    }

    async fn record_like_php(&self, key: &str, start_ms: i64, end_ms: i64) -> Result<()> {
        let decimal = |ms: i64| format!("{}.{:03}", ms / 1_000, ms % 1_000);
        sqlx::query("INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) VALUES (?, 0, ?, ?, 0)")
            .bind(key)
            .bind(decimal(start_ms))
            .bind(decimal(end_ms))
            .execute(&self.db)
            .await?;
        Ok(())
    }

    /// A buyer who pays for every third auction a second after its end, and calls off the deadline.
    pub(crate) async fn pay_some(&self) -> Result<Infallible> {
        loop {
            let unpaid: Vec<(u64,)> = sqlx::query_as(
                "SELECT DISTINCT auction_id FROM tb_auction_order
                 WHERE status = 0 AND auction_id % 3 = 0 AND created < NOW(3) - INTERVAL 1 SECOND",
            )
            .fetch_all(&self.db)
            .await?;
            for (id,) in unpaid {
                self.pay(id).await?;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn pay(&self, id: u64) -> Result<()> {
        let mut tx = self.db.begin().await?;
        let paid = sqlx::query(
            "UPDATE tb_auction_order SET status = 1 WHERE auction_id = ? AND status = 0",
        )
        .bind(id)
        .execute(&mut *tx)
        .await?;
        if paid.rows_affected() == 0 {
            return Ok(()); // the deadline was faster
        }
        sqlx::query("UPDATE tb_auction_goods SET deal_status = 2 WHERE id = ?")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        // If it runs already, it finds the order paid.
        if self.tasks.cancel(CLOSE_DEAL.args(id)).await? == CancelAnswer::Cancelled {
            self.cancelled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id);
        }
        Ok(())
    }

    /// Auctions whose payment deadline was cancelled, and acknowledged to be.
    pub(crate) fn cancelled(&self) -> BTreeSet<u64> {
        self.cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What the transactions of the handlers left.
    pub(crate) async fn effects(&self) -> Result<Vec<Effect>> {
        let rows: Vec<(String, u16, i64, i64)> =
            sqlx::query_as("SELECT `key`, attempt, due_ms, at_ms FROM tb_effects ORDER BY id")
                .fetch_all(&self.db)
                .await?;
        let effect = |(key, attempt, due_ms, at_ms)| Effect {
            key,
            attempt,
            due_ms,
            at_ms,
        };
        Ok(rows.into_iter().map(effect).collect())
    }

    /// The database's clock.
    pub(crate) async fn now(&self) -> Result<UnixMs> {
        let now = sqlx::query_scalar("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)");
        Ok(UnixMs(now.fetch_one(&self.db).await?))
    }

    /// How many tasks are through, and a line about it.
    pub(crate) async fn progress(&self) -> Result<(u64, String)> {
        let (open, effects): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT COUNT(*) FROM tb_auction_goods WHERE status = 0), (SELECT COUNT(*) FROM tb_effects)",
        )
        .fetch_one(&self.db)
        .await?;
        let [due, paid, lapsed] = self.orders().await?;
        let done = effects.unsigned_abs() + self.cancelled().len() as u64;
        Ok((
            done,
            format!("auctions open: {open}, unpaid: {due}, paid: {paid}, lapsed: {lapsed}"),
        ))
    }

    /// Orders to be paid, paid, lapsed.
    pub(crate) async fn orders(&self) -> Result<[u64; 3]> {
        let counts: (i64, i64, i64) = sqlx::query_as("SELECT COUNT(IF(status = 0, 1, NULL)), COUNT(IF(status = 1, 1, NULL)), COUNT(IF(status = 2, 1, NULL)) FROM tb_auction_order")
            .fetch_one(&self.db)
            .await?;
        Ok([counts.0, counts.1, counts.2].map(i64::unsigned_abs))
    }

    /// Current bids that Redis still shows: of auctions whose end was not announced.
    pub(crate) async fn shown_bids(&self) -> Result<usize> {
        let keys: Vec<String> = self.redis.clone().keys("auction_gid@*@current_bid").await?;
        Ok(keys.len())
    }
}
