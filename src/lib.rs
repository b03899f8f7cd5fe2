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
//! | [`http`] | the HTTP API, the dashboard, metrics and probes |
//! | [`resp`] | the RESP server |
//! | [`trace`] | the trace that running code belongs to, and the seam to a recorder of spans |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `mysql` | the ledger in MySQL or MariaDB; enough for a library of producers and workers |
//! | `sqlite` | the ledger in an SQLite file, without servers; enough for such a library, too |
//! | `webhook` | routes with a `webhook` target |
//! | `http` | [`http`]: the HTTP API, the dashboard, metrics and probes |
//! | `resp` | [`resp`]: the RESP server |
//! | `doctor` | what `lapsed doctor` examines |
//!
//! `mysql` and `sqlite` are on by default. The program `lapsed` is the package `lapsed-cli`, private servers for tests are
//! the package `lapsed-sandbox`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
// They panic when stdout or stderr cannot be written.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod access;
#[cfg(feature = "webhook")]
#[doc(hidden)] // for the program and the tests
pub mod alerts;
pub mod client;
#[doc(hidden)] // for the program and the tests
pub mod clock;
#[doc(hidden)] // for the program and the tests
pub mod compose;
pub mod config;
pub mod contract;
pub mod diagnosis;
#[cfg(feature = "doctor")]
#[doc(hidden)] // for the program
pub mod doctor;
pub mod engine;
#[doc(hidden)] // for the program
pub mod format;
pub mod handler;
#[cfg(feature = "http")]
pub mod http;
pub mod ledger;
pub mod limiter;
pub mod membership;
#[cfg(any(feature = "http", feature = "resp"))]
mod net;
mod redis;
#[cfg(feature = "resp")]
pub mod resp;
pub mod task;
mod telemetry;
pub mod testing;
pub mod timer;
pub mod trace;

#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use ::rusqlite;
#[cfg(feature = "sqlite")]
pub use client::SqliteTaskClient;
#[cfg(feature = "mysql")]
pub use client::{AfterCommit, Cancelled, MysqlTaskClient};
pub use client::{ClientError, IntoDue, IntoKey, IntoTask, Receipt, Task, TaskClient, TaskType};
pub use compose::in_memory;
pub use config::{Config, ConfigError};
pub use engine::Engine;
#[cfg(feature = "mysql")]
pub use handler::MysqlTask;
#[cfg(feature = "sqlite")]
pub use handler::SqliteTask;
pub use handler::{HandlerError, Handlers, Payload, State, TaskContext};
pub use ledger::IfPending;
#[cfg(feature = "mysql")]
pub use ledger::TaskTransaction;
pub use task::{Due, Rate, Recurrence, RetryPolicy, TaskKey, Traceparent, UnixMs};
