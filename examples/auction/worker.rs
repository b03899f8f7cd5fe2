//! The daemon: two handlers on a library that calls them on time, and the RESP server.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use lapsed::compose::Adapters;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::SqliteTransaction;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::rusqlite::{self, OptionalExtension as _, params};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{
    Config, Due, HandlerError, Handlers, SqliteTask as _, SqliteTaskClient, State, TaskContext,
    TaskType,
};
use lapsed_server::resp::Listener;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::house::{CLASS, PAY_WITHIN};
use crate::market::now;

/// Ends an auction. The market schedules it by name.
const END: TaskType<(i64,)> = TaskType::new(CLASS, "auctionEndCutDown");

/// Announces the end. The mailer runs it.
const ANNOUNCE: TaskType<(i64,)> = TaskType::new(CLASS, "announceEnd");

/// Closes the deal if the highest bidder has not paid.
const CLOSE_DEAL: TaskType<(i64,)> = TaskType::new(CLASS, "dealCutDown");

/// What the handlers work with.
#[derive(Clone)]
struct House {
    tasks: SqliteTaskClient,
}

/// Runs until standard input is closed; says `ready` once Redis clients are served.
pub(crate) async fn run(config: &Path) -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter("info,lapsed=debug")
        .init();
    // Not `Config::load`, which lets the environment override: this must never reach another ledger.
    let config = Config::from_toml(&std::fs::read_to_string(config)?)?;
    let ledger = Arc::new(SqliteLedger::new(&config.ledger)?);
    ledger.migrate(false).await?;
    let timer = Arc::new(LedgerPoll::exact(ledger.clock().clone()));
    let tasks = SqliteTaskClient::with_parts(ledger, timer);

    let mut handlers = Handlers::with_state(House { tasks });
    handlers.on(END, end_auction);
    handlers.on(CLOSE_DEAL, close_deal);

    let adapters = Adapters::new(&config)?;
    let engine = adapters.engine(&config, handlers);
    let handle = engine.handle();
    let resp = Listener::open(
        &config.resp,
        adapters.client(),
        Arc::clone(&adapters.metrics),
    )?;
    let resp = resp.context("the configuration has an address")?;
    let stop = CancellationToken::new();
    let serving = resp
        .with_workers(handle.pull())
        .serve(stop.clone().cancelled_owned());
    let serving = tokio::spawn(serving);
    tokio::spawn(async move {
        handle.ready().await;
        println!("ready");
    });
    engine.run_until(stdin_closed()).await?;
    stop.cancel();
    serving.await?;
    Ok(())
}

/// Ends an auction: the highest bid wins, and its bidder has to pay.
///
/// It needs neither a check whether this was done before nor a unique key: the order, both follow-up tasks and the
/// completion are a single transaction, which a second run cannot commit.
async fn end_auction(
    ctx: TaskContext,
    State(House { tasks }): State<House>,
    id: i64,
) -> Result<(), HandlerError> {
    let tx = ctx.begin().await?;
    win(&tx, id)?;
    tasks.create_in(&tx, ANNOUNCE.args(id), Due::NOW)?;
    tasks.create_in(&tx, CLOSE_DEAL.args(id), PAY_WITHIN)?;
    record(&tx, &ctx, "auction ended")?;
    ctx.complete_in(tx).await
}

fn win(tx: &SqliteTransaction, id: i64) -> Result<(), HandlerError> {
    let highest = "SELECT bidder, amount FROM tb_auction_bid WHERE auction_id = ?1 ORDER BY amount DESC, id LIMIT 1";
    let highest = tx
        .query_row(highest, [id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .map_err(retryable)?;
    let Some((bidder, amount)): Option<(i64, i64)> = highest else {
        return Err(HandlerError::permanent("nobody has bid"));
    };
    tx.execute(
        "UPDATE tb_auction_goods SET status = 1, deal_status = 1, current_bid = ?2, ended_ms = ?3 WHERE id = ?1",
        params![id, amount, now().0],
    )
    .map_err(retryable)?;
    tx.execute(
        "INSERT INTO tb_auction_order (auction_id, bidder, amount, created_ms) VALUES (?1, ?2, ?3, ?4)",
        params![id, bidder, amount, now().0],
    )
    .map_err(retryable)?;
    Ok(())
}

/// Closes the deal if the buyer has not paid. The buyer may pay at this moment: the one transaction comes after the other.
async fn close_deal(ctx: TaskContext, id: i64) -> Result<(), HandlerError> {
    let tx = ctx.begin().await?;
    let lapsed = "UPDATE tb_auction_order SET status = 2 WHERE auction_id = ?1 AND status = 0";
    let effect = match tx.execute(lapsed, [id]).map_err(retryable)? {
        0 => "found it paid",
        _ => {
            let goods = "UPDATE tb_auction_goods SET deal_status = 3 WHERE id = ?1";
            tx.execute(goods, [id]).map_err(retryable)?;
            "deal lapsed"
        }
    };
    record(&tx, &ctx, effect)?;
    ctx.complete_in(tx).await
}

/// Records one row for each effect of a task, with the time.
fn record(tx: &SqliteTransaction, ctx: &TaskContext, effect: &str) -> Result<(), HandlerError> {
    tx.execute(
        "INSERT INTO tb_effects (key, arming, attempt, due_ms, effect, at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![ctx.key().as_str(), ctx.id(), ctx.attempt(), ctx.due().0, effect, now().0],
    )
    .map_err(retryable)?;
    Ok(())
}

fn retryable(error: rusqlite::Error) -> HandlerError {
    HandlerError::new(error.to_string())
}

/// Resolves when the parent has closed its end, or has exited.
async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    while matches!(stdin.read(&mut [0; 64]).await, Ok(1..)) {}
}
