//! Handlers that leave traces in the database.

use lapsed::{Handlers, MysqlTask, TaskContext};

/// What daemons of this suite can run:
/// `Job@record@..` writes down when it ran; `Job@effect@..` completes together with an effect; `Job@trace@..` completes
/// together with what `Job@record@..` writes.
pub fn handlers() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(
        ("Job", "record"),
        |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
    );
    handlers.on(
        ("Job", "effect"),
        |task: TaskContext, _: Vec<String>| async move {
            let mut tx = task.begin().await?;
            take_effect(&task, &mut tx).await?;
            task.complete_in(tx).await
        },
    );
    handlers.on(
        ("Job", "trace"),
        |task: TaskContext, _: Vec<String>| async move {
            let mut tx = task.begin().await?;
            trace(&task, &mut tx).await?;
            task.complete_in(tx).await
        },
    );
    handlers
}

/// Leaves a trace with the database's time.
pub async fn write_down(task: &TaskContext) -> Result<(), lapsed::HandlerError> {
    let mut tx = task.begin().await?;
    trace(task, &mut tx).await?;
    tx.commit().await?;
    Ok(())
}

async fn trace(
    task: &TaskContext,
    tx: &mut sqlx::MySqlConnection,
) -> Result<(), lapsed::HandlerError> {
    sqlx::query(
        "INSERT INTO runs (name, task, attempt, due_ms, at_ms) \
         VALUES (?, ?, ?, ?, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))",
    )
    .bind(task.key().as_str())
    .bind(task.id())
    .bind(task.attempt())
    .bind(task.due().0)
    .execute(tx)
    .await?;
    Ok(())
}

/// An effect in the handler's own transaction.
pub async fn take_effect(
    task: &TaskContext,
    tx: &mut sqlx::MySqlConnection,
) -> Result<(), lapsed::HandlerError> {
    sqlx::query("INSERT INTO effects (name, task) VALUES (?, ?)")
        .bind(task.key().as_str())
        .bind(task.id())
        .execute(tx)
        .await?;
    Ok(())
}
