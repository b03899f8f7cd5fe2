//! What is in the database in the end, and whether it adds up.

use std::fmt;

use anyhow::Result;
use lapsed::ledger::Admin;
use lapsed::ledger::mysql::MysqlLedger;

use crate::shop::{ORDERS, STOCK, Shop};

/// Counts, all of them from the database but `too_late`.
pub(crate) struct Accounts {
    paid: i64,
    closed: i64,
    open: i64,
    stock: i64,
    reminders: i64,
    reminded: i64,
    too_late: i64,
    tasks_done: i64,
    tasks_cancelled: i64,
    tasks_open: i64,
    /// Runs of closings that died with the worker.
    run_again: i64,
}

impl Accounts {
    pub(crate) async fn of(shop: &Shop, ledger: &MysqlLedger, too_late: u64) -> Result<Self> {
        let count = async |query: &'static str| -> Result<i64> {
            Ok(sqlx::query_scalar(query).fetch_one(&shop.sql).await?)
        };
        let stats = ledger.stats().await?;
        Ok(Self {
            paid: count("SELECT COUNT(*) FROM orders WHERE state = 'paid'").await?,
            closed: count("SELECT COUNT(*) FROM orders WHERE state = 'closed'").await?,
            open: count("SELECT COUNT(*) FROM orders WHERE state = 'placed'").await?,
            stock: count("SELECT stock FROM product WHERE id = 1").await?,
            reminders: count("SELECT COUNT(*) FROM reminders").await?,
            reminded: count("SELECT COUNT(DISTINCT order_id) FROM reminders").await?,
            too_late: i64::try_from(too_late)?,
            tasks_done: i64::try_from(stats.done)?,
            tasks_cancelled: i64::try_from(stats.cancelled)?,
            tasks_open: i64::try_from(stats.pending + stats.waiting + stats.running + stats.dead)?,
            run_again: count("SELECT COUNT(*) FROM tb_time_limit_task WHERE attempt > 1").await?,
        })
    }

    /// Each claim, and whether it holds.
    fn claims(&self) -> [(String, bool); 6] {
        let Self {
            paid,
            closed,
            open,
            stock,
            reminders,
            reminded,
            too_late,
            tasks_done,
            tasks_cancelled,
            tasks_open,
            run_again: _,
        } = *self;
        let orders = i64::try_from(ORDERS).unwrap_or(i64::MAX);
        [
            (
                format!("{orders} orders placed = {paid} paid + {closed} closed + {open} open"),
                orders == paid + closed && open == 0,
            ),
            (
                format!("{STOCK} pieces - {paid} paid = {stock} in stock"),
                STOCK - paid == stock,
            ),
            (
                format!("{reminders} reminders to {reminded} buyers of {closed} closed orders"),
                reminders == closed && reminded == closed,
            ),
            (
                format!(
                    "{tasks_done} tasks done = {closed} closings + {reminders} reminders; none open or dead: {tasks_open}"
                ),
                tasks_done == closed + reminders && tasks_open == 0,
            ),
            (
                format!("{tasks_cancelled} closings cancelled by {paid} payments"),
                tasks_cancelled == paid,
            ),
            (
                format!(
                    "{too_late} payments came too late, each for an order that is closed (of {closed}, a third were never paid)"
                ),
                too_late == closed - orders / 3,
            ),
        ]
    }

    pub(crate) fn add_up(&self) -> bool {
        self.claims().iter().all(|(_, holds)| *holds)
    }
}

impl fmt::Display for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for (claim, holds) in self.claims() {
            writeln!(f, "{}  {claim}", if holds { "ok   " } else { "WRONG" })?;
        }
        write!(
            f,
            "       {} runs died with the worker and were run again",
            self.run_again
        )
    }
}
