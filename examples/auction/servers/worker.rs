//! The daemon: three handlers on a library that calls them on time.

use std::path::Path;

use anyhow::Result;
use lapsed::{
    Config, Due, Engine, HandlerError, Handlers, MysqlTask, MysqlTaskClient, State, TaskContext,
    TaskTransaction, TaskType,
};
use tokio::io::AsyncReadExt;

use crate::house::{CLASS, MAIL_TAKES, PAY_WITHIN};
use crate::market::{CLOSE_DEAL, END};

const ANNOUNCE: TaskType<(u64,)> = TaskType::new(CLASS, "announceEnd");

/// What the handlers work with.
#[derive(Clone)]
struct House {
    tasks: MysqlTaskClient,
    redis: redis::Client,
}

/// Runs until standard input is closed; says `ready` once it hears Redis.
pub(crate) async fn run(config: &Path) -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter("info,lapsed=debug")
        .init();
    // Not `Config::load`, which lets the environment override: this must never reach another Redis than the private one.
    let config = Config::from_toml(&std::fs::read_to_string(config)?)?;
    let tasks = MysqlTaskClient::connect(&config).await?;
    let redis = redis::Client::open(config.redis.url.expose())?;

    let mut handlers = Handlers::with_state(House { tasks, redis });
    handlers.on(END, end_auction);
    handlers.on(ANNOUNCE, announce_end);
    handlers.on(CLOSE_DEAL, close_deal);

    let engine = Engine::new(config, handlers)?;
    let handle = engine.handle();
    tokio::spawn(async move {
        handle.ready().await;
        println!("ready");
    });
    engine.run_until(stdin_closed()).await?;
    Ok(())
}

/// Ends an auction: the highest bid wins, and its bidder has to pay.
///
/// It needs neither a check whether this was done before nor a unique key: the order, both follow-up tasks and the
/// completion are a single transaction, which a second run cannot commit.
async fn end_auction(
    ctx: TaskContext,
    State(House { tasks, .. }): State<House>,
    id: u64,
) -> Result<(), HandlerError> {
    let mut tx = ctx.begin().await?;
    let (bidder, amount): (u64, u64) =
        sqlx::query_as("SELECT bidder, amount FROM tb_auction_bid WHERE auction_id = ? ORDER BY amount DESC, id LIMIT 1")
            .bind(id)
            .fetch_one(&mut *tx)
            .await?;
    sqlx::query(
        "UPDATE tb_auction_goods SET status = 1, deal_status = 1, current_bid = ?, final_end_time = UNIX_TIMESTAMP(NOW(3))
         WHERE id = ?",
    )
    .bind(amount)
    .bind(id)
    .execute(&mut *tx)
    .await?;
    sqlx::query("INSERT INTO tb_auction_order (auction_id, bidder, amount) VALUES (?, ?, ?)")
        .bind(id)
        .bind(bidder)
        .bind(amount)
        .execute(&mut *tx)
        .await?;
    let announce = ANNOUNCE.args(id);
    let announce = tasks.create_in(&mut tx, announce, Due::NOW).await?;
    let deadline = CLOSE_DEAL.args(id);
    let deadline = tasks.create_in(&mut tx, deadline, PAY_WITHIN).await?;
    record(&mut tx, &ctx, "auction ended").await?;
    ctx.complete_in(tx).await?;

    // A daemon that is killed here leaves two rows without keys. The next one finds them.
    announce.arm().await;
    deadline.arm().await;
    Ok(())
}

/// Announces the end. Effects outside the database may happen again after a crash. To delete a key and to publish a
/// message twice does no harm; a mail would carry `ctx.id()`, so that the mail server can deduplicate.
async fn announce_end(
    ctx: TaskContext,
    State(House { redis, .. }): State<House>,
    id: u64,
) -> Result<(), HandlerError> {
    let mut redis = redis.get_multiplexed_async_connection().await?;
    redis::pipe()
        .del(format!("auction_gid@{id}@current_bid"))
        .publish(format!("{id}bid/index"), "the auction is over")
        .exec_async(&mut redis)
        .await?;
    tokio::time::sleep(MAIL_TAKES).await; // the mail to the winner

    let mut tx = ctx.begin().await?;
    record(&mut tx, &ctx, "end announced").await?;
    ctx.complete_in(tx).await
}

/// Closes the deal if the buyer has not paid. The buyer may pay at this moment: the lock of the row decides.
async fn close_deal(ctx: TaskContext, id: u64) -> Result<(), HandlerError> {
    let mut tx = ctx.begin().await?;
    let lapsed =
        sqlx::query("UPDATE tb_auction_order SET status = 2 WHERE auction_id = ? AND status = 0")
            .bind(id)
            .execute(&mut *tx)
            .await?;
    let effect = match lapsed.rows_affected() {
        0 => "found it paid",
        _ => {
            sqlx::query("UPDATE tb_auction_goods SET deal_status = 3 WHERE id = ?")
                .bind(id)
                .execute(&mut *tx)
                .await?;
            "deal lapsed"
        }
    };
    record(&mut tx, &ctx, effect).await?;
    ctx.complete_in(tx).await
}

/// Records one row for each effect of a task, with the time of the database.
async fn record(tx: &mut TaskTransaction, ctx: &TaskContext, effect: &str) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO tb_effects (`key`, arming, attempt, due_ms, effect, at_ms)
         VALUES (?, ?, ?, ?, ?, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))",
    )
    .bind(ctx.key().as_str())
    .bind(ctx.id())
    .bind(ctx.attempt())
    .bind(ctx.due().0)
    .bind(effect)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Resolves when the parent has closed its end, or has exited.
async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    while matches!(stdin.read(&mut [0; 64]).await, Ok(1..)) {}
}
