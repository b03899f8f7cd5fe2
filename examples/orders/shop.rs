//! The application: it places orders and takes payments. No daemon in this process.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lapsed::ledger::CancelAnswer;
use lapsed::{Config, MysqlTaskClient, TaskType};
use sqlx::MySqlPool;
use sqlx::mysql::MySqlPoolOptions;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Closes an order that was not paid. The worker has its handler.
pub(crate) const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");

/// How many orders are placed.
pub(crate) const ORDERS: u64 = 240;

/// How many pieces there are.
pub(crate) const STOCK: i64 = 1_000;

/// How long a buyer has to pay.
const PAY_WITHIN: Duration = Duration::from_secs(2);

/// One order after the other.
const PLACE_EVERY: Duration = Duration::from_millis(35);

const TABLES: &str = "CREATE TABLE product (id INT PRIMARY KEY, stock BIGINT NOT NULL); \
    CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, state VARCHAR(8) NOT NULL); \
    CREATE TABLE reminders (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT UNSIGNED NOT NULL); \
    INSERT INTO product VALUES (1, 1000)";

/// The shop; clones share their connections.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) sql: MySqlPool,
    tasks: MysqlTaskClient,
}

/// What paying came to.
#[derive(Debug, PartialEq, Eq)]
enum Payment {
    Taken,
    /// The order is closed, or about to be.
    TooLate,
}

impl Shop {
    /// With its tables, beside the ledger's.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let pool = MySqlPoolOptions::new().max_connections(20);
        let sql = pool.connect(config.ledger.url.expose()).await?;
        sqlx::raw_sql(TABLES).execute(&sql).await?;
        let tasks = MysqlTaskClient::connect(config).await?;
        Ok(Self { sql, tasks })
    }

    /// Places all orders; two of three are paid, many of them at the last moment. Tells how many payments came too late.
    pub(crate) async fn trade(&self) -> Result<u64> {
        let mut buyers = JoinSet::new();
        for order in 1..=ORDERS {
            self.place(order).await.context("place an order")?;
            if order % 3 != 0 {
                let shop = self.clone();
                // From 1.7 s to 2.1 s after the order, which is closed after 2 s.
                let pays_after = PAY_WITHIN - Duration::from_millis(300)
                    + Duration::from_millis(order * 37 % 400);
                buyers.spawn(async move {
                    sleep(pays_after).await;
                    shop.pay(order).await
                });
            }
            sleep(PLACE_EVERY).await;
        }
        let mut too_late = 0;
        while let Some(payment) = buyers.join_next().await {
            too_late += u64::from(payment?.context("pay an order")? == Payment::TooLate);
        }
        Ok(too_late)
    }

    /// The order, its piece and its closing: all of it, or nothing.
    async fn place(&self, order: u64) -> Result<()> {
        let mut tx = self.sql.begin().await?;
        sqlx::query("INSERT INTO orders VALUES (?, 'placed')")
            .bind(order)
            .execute(&mut *tx)
            .await?;
        sqlx::query("UPDATE product SET stock = stock - 1 WHERE id = 1")
            .execute(&mut *tx)
            .await?;
        let closing = CLOSE.args(order);
        let closing = self.tasks.create_in(&mut tx, closing, PAY_WITHIN).await?;
        tx.commit().await?;
        // From here on nothing can be lost: a closing whose key was never armed is found by the worker.
        closing.arm().await;
        Ok(())
    }

    /// The payment and that nothing is closed any more: both, or neither.
    async fn pay(&self, order: u64) -> Result<Payment> {
        let mut tx = self.sql.begin().await?;
        let called_off = self.tasks.cancel_in(&mut tx, CLOSE.args(order)).await?;
        if called_off.answer() != CancelAnswer::Cancelled {
            // It is being closed, or has been.
            tx.rollback().await?;
            return Ok(Payment::TooLate);
        }
        let paid =
            sqlx::query("UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'placed'")
                .bind(order)
                .execute(&mut *tx)
                .await?;
        ensure!(paid.rows_affected() == 1, "order {order} is not open");
        tx.commit().await?;
        called_off.disarm().await;
        Ok(Payment::Taken)
    }
}
