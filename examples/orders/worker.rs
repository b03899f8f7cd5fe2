//! The worker: it closes what was not paid, and reminds.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lapsed::{
    Config, Engine, HandlerError, Handlers, MysqlTask, MysqlTaskClient, State, TaskContext,
    TaskType,
};
use tokio::io::AsyncReadExt;

use crate::shop::CLOSE;

const REMIND: TaskType<(u64,)> = TaskType::new("Order", "remind");

/// When the buyer of a closed order is reminded.
const REMIND_AFTER: Duration = Duration::from_secs(1);

/// How long closing takes, so that there is something to kill.
const CLOSING_TAKES: Duration = Duration::from_millis(150);

/// Runs until standard input is closed; says `ready` once it hears Redis.
pub(crate) async fn run(config: &Path) -> Result<()> {
    let config = Config::from_toml(&std::fs::read_to_string(config)?)?;
    let tasks = MysqlTaskClient::connect(&config).await?;
    let mut handlers = Handlers::with_state(tasks);
    handlers.on(CLOSE, close);
    handlers.on(REMIND, remind);
    let engine = Engine::new(config, handlers)?;
    let handle = engine.handle();
    tokio::spawn(async move {
        handle.ready().await;
        println!("ready");
    });
    engine.run_until(stdin_closed()).await?;
    Ok(())
}

/// The order is closed, its piece is back, the reminder is scheduled, the task is done: all of it once, or nothing.
///
/// Nothing here asks whether it was done before. A run that was killed left nothing behind, and one whose task was cancelled
/// or taken over meanwhile is rolled back by `complete_in`.
async fn close(
    ctx: TaskContext,
    State(tasks): State<MysqlTaskClient>,
    order: u64,
) -> Result<(), HandlerError> {
    let mut tx = ctx.begin().await?;
    sqlx::query("UPDATE orders SET state = 'closed' WHERE id = ?")
        .bind(order)
        .execute(&mut *tx)
        .await?;
    tokio::time::sleep(CLOSING_TAKES).await;
    // Late, because everybody wants this row.
    sqlx::query("UPDATE product SET stock = stock + 1 WHERE id = 1")
        .execute(&mut *tx)
        .await?;
    let reminder = REMIND.args(order);
    let reminder = tasks.create_in(&mut tx, reminder, REMIND_AFTER).await?;
    ctx.complete_in(tx).await?;
    reminder.arm().await;
    Ok(())
}

async fn remind(ctx: TaskContext, order: u64) -> Result<(), HandlerError> {
    let mut tx = ctx.begin().await?;
    sqlx::query("INSERT INTO reminders (order_id) VALUES (?)")
        .bind(order)
        .execute(&mut *tx)
        .await?;
    ctx.complete_in(tx).await
}

async fn stdin_closed() {
    let mut rest = Vec::new();
    // An error says the same.
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}
