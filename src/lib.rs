//! Delayed tasks, on the Redis and MySQL you already have or in one file: punctual, durable, run once.
//!
//! A task is a row of a MySQL table and an expiring Redis key, `Class@method@args`; without servers it is a row in an SQLite
//! file, and the daemon answers Redis clients itself. At the due time a daemon runs the task: Rust code ([`Handlers`]), or a
//! target that a route of its configuration names. This crate is the library for workers
//! ([`Engine`]) and for producers ([`TaskClient`]); the package `lapsed-cli` has the daemon (`lapsed listen`).
//!
//! **An expiry event is a hint, the ledger row is the truth, a claim is a fenced right to run one attempt,
//! and every run ends in an [`Outcome`](task::Outcome) that a pure function turns into a
//! [`Verdict`](task::Verdict).**
//!
//! # Quick start
//!
//! Without servers, on the ledger in memory:
//!
//! ```
//! use std::time::Duration;
//! use lapsed::{Config, HandlerError, Handlers, State, TaskContext, TaskType};
//! use tokio::sync::mpsc::UnboundedSender;
//!
//! /// Shared by the producer and the handler.
//! const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
//!
//! async fn close(
//!     ctx: TaskContext,
//!     State(closed): State<UnboundedSender<u64>>,
//!     order: u64,
//! ) -> Result<(), HandlerError> {
//!     println!("{}: closing order {order}, {} ms late", ctx.id(), ctx.lateness_ms());
//!     closed.send(order)?; // any error is tried again by the retry policy
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (closed, mut orders) = tokio::sync::mpsc::unbounded_channel();
//! let mut handlers = Handlers::with_state(closed);
//! handlers.on(CLOSE, close).timeout(Duration::from_secs(30));
//!
//! let (engine, tasks) = lapsed::in_memory(&Config::default(), handlers);
//! tasks.create(CLOSE.args(42), Duration::from_millis(30)).await?;
//! engine
//!     .run_until(async move { assert_eq!(orders.recv().await, Some(42)) })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! A worker on real servers, whose effects happen exactly once:
//!
//! ```no_run
//! use lapsed::{Config, Engine, HandlerError, Handlers, MysqlTask, TaskContext, TaskType};
//!
//! const END: TaskType<(u64,)> = TaskType::new("Auction", "end");
//!
//! async fn end(ctx: TaskContext, id: u64) -> Result<(), HandlerError> {
//!     let mut tx = ctx.begin().await?; // on the ledger's database
//!     sqlx::query("UPDATE tb_auction SET ended = 1 WHERE id = ?").bind(id).execute(&mut *tx).await?;
//!     ctx.complete_in(tx).await // commits the effects and the completion together
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut handlers = Handlers::new();
//!     handlers.on(END, end);
//!     let shutdown = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
//!     Ok(Engine::new(Config::load(None)?, handlers)?.run_until(shutdown).await?)
//! }
//! ```
//!
//! A producer on a real ledger is a [`TaskClient`]; one that creates tasks in its own transactions is a [`MysqlTaskClient`] or
//! a [`SqliteTaskClient`].
//! Tests of handlers and producers use [`testing`].
//!
//! # Where things are
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | producers: create, cancel, reschedule, look up, administrate |
//! | [`handler`] | handlers: arguments, extractors, errors, middleware, routes |
//! | [`engine`] | the engine, which claims, runs and settles tasks |
//! | [`testing`] | a test kit: no server, no waiting |
//! | [`contract`] | what clients may say of a task and of a filter, the same for every protocol |
//! | [`config`] | the configuration |
//! | [`task`] | keys, due times, states, outcomes, retries, recurrences: pure |
//! | [`ledger`] | the seam to the durable record of tasks; adapters: MySQL, SQLite, memory |
//! | [`timer`] | the seam to the source of signals; adapters: Redis keys, sorted sets, a wheel, the ledger alone |
//! | [`membership`] | the seam to the other daemons on the ledger; adapters: Redis, memory |
//! | [`limiter`] | the seam to the rate limits of all daemons; adapters: Redis, the ledger, memory |
//! | [`trace`] | the trace that running code belongs to, and the seam to a recorder of spans |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `engine` | workers: the engine, handlers and the test kit; without it there are producers alone |
//! | `mysql` | the ledger in MySQL or MariaDB |
//! | `sqlite` | the ledger in an SQLite file, without servers |
//! | `webhook` | routes with a `webhook` target |
//!
//! `engine`, `mysql` and `sqlite` are on by default. The program `lapsed` is the package `lapsed-cli`. What it answers on the
//! network, for programs that embed it, is the package `lapsed-server`; private servers for tests are the package
//! `lapsed-sandbox`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
// They panic when stdout or stderr cannot be written.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod client;
#[doc(hidden)] // for the program and the tests
pub mod compose;
#[cfg(feature = "engine")]
pub mod contract;
#[cfg(feature = "engine")]
pub mod diagnosis;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "engine")]
pub mod handler;
#[cfg(feature = "engine")]
pub mod limiter;
#[cfg(feature = "engine")]
pub mod membership;
#[cfg(feature = "engine")]
pub mod testing;

#[doc(hidden)] // for the program and the tests
pub use lapsed_core::clock;
#[doc(inline)]
pub use lapsed_core::{config, task, trace};
#[cfg(feature = "engine")]
use lapsed_core::{format, telemetry};
#[cfg(feature = "engine")]
use lapsed_redis as redis;

/// The seams to the ledger, the durable record of tasks, and their adapters.
pub mod ledger {
    pub use lapsed_core::ledger::*;
    #[cfg(feature = "mysql")]
    pub use lapsed_mysql::{self as mysql, TaskTransaction, TransactionError, migrate};
    #[cfg(feature = "sqlite")]
    pub use lapsed_sqlite::{self as sqlite, SqliteTransaction};
}

/// The seam to the sources of signals, and its adapters.
pub mod timer {
    pub use lapsed_core::timer::*;
    #[cfg(feature = "engine")]
    pub use lapsed_redis::timer::{key_expiry, sorted_set, wheel};
}

#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use ::rusqlite;
#[cfg(feature = "sqlite")]
pub use client::SqliteTaskClient;
#[cfg(feature = "mysql")]
pub use client::{AfterCommit, Cancelled, MysqlTaskClient};
pub use client::{ClientError, IntoDue, IntoKey, IntoTask, Receipt, Task, TaskClient, TaskType};
#[cfg(feature = "engine")]
pub use compose::in_memory;
#[cfg(feature = "engine")]
pub use engine::Engine;
#[cfg(all(feature = "engine", feature = "mysql"))]
pub use handler::MysqlTask;
#[cfg(all(feature = "engine", feature = "sqlite"))]
pub use handler::SqliteTask;
#[cfg(feature = "engine")]
pub use handler::{HandlerError, Handlers, Payload, State, TaskContext};
pub use lapsed_core::config::{Config, ConfigError};
pub use lapsed_core::ledger::IfPending;
pub use lapsed_core::task::{Due, Rate, Recurrence, RetryPolicy, TaskKey, Traceparent, UnixMs};
#[cfg(feature = "mysql")]
pub use lapsed_mysql::TaskTransaction;
