//! What the sentences around the blocks speak of.

pub use std::collections::HashMap;
pub use std::sync::Arc;
pub use std::time::Duration;

pub use lapsed::handler::{Extension, MysqlTask as _, Next};
pub use lapsed::ledger::CancelAnswer;
pub use lapsed::task::Outcome;
pub use lapsed::testing::{TestKit, TestRun};
pub use lapsed::{
    ClientError, Config, Due, Engine, HandlerError, Handlers, IfPending, MysqlTaskClient, Task,
    TaskClient, TaskContext, TaskKey, TaskType,
};
pub use opentelemetry::propagation::TextMapPropagator as _;
pub use opentelemetry::trace::TraceContextExt as _;
pub use opentelemetry_sdk::propagation::TraceContextPropagator;
pub use serde::{Deserialize, Serialize};
pub use tokio::sync::Semaphore;
pub use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Where an application keeps its connections.
pub struct Shop {
    pub sql: sqlx::MySqlPool,
    pub tasks: MysqlTaskClient,
}

pub enum Payment {
    Taken,
    TooLate,
}

/// One of each.
pub struct All<'a> {
    pub closing: Task,
    pub ctx: TaskContext,
    pub due: Due,
    pub handlers: Handlers,
    pub id: u64,
    pub json: String,
    pub key: TaskKey,
    pub order: u64,
    pub secret: String,
    pub shutdown: std::future::Pending<()>,
    pub task: Task,
    pub tasks: MysqlTaskClient,
    pub tx: sqlx::Transaction<'a, sqlx::MySql>,
}

pub const HOUR: Duration = Duration::from_secs(3600);
pub const PAY_WITHIN: Duration = HOUR;
pub const REMIND_AFTER: Duration = HOUR;
pub const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
pub const END: TaskType<(u64,)> = TaskType::new("Auction", "end");
pub const REMIND: TaskType<(u64,)> = TaskType::new("Order", "remind");
pub static LIMITER: Semaphore = Semaphore::const_new(5);
pub static ALERTS: Alerts = Alerts;

pub struct Alerts;

impl Alerts {
    pub fn send(&self, _text: String) {}
}

pub struct Tenant(pub u64);

pub async fn close(_ctx: TaskContext, _order: u64) -> Result<(), HandlerError> {
    Ok(())
}

pub async fn send(_ctx: TaskContext, _to: String) -> Result<(), HandlerError> {
    Ok(())
}

pub fn handlers() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(CLOSE, close);
    handlers
}

pub async fn check_out(tasks: &TaskClient, order: u64) -> Result<(), ClientError> {
    let task = CLOSE.args(order)?.tag("shop-7");
    tasks.create(task, Duration::from_secs(1800)).await?;
    Ok(())
}

pub async fn is_frozen(_tag: Option<&str>) -> bool {
    false
}

pub fn is_ready(_id: u64) -> bool {
    true
}

pub fn provider_is_busy(_id: u64) -> bool {
    false
}

pub async fn rows_of(_id: u64) -> Result<u64, HandlerError> {
    Ok(0)
}
