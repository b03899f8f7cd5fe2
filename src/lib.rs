//! Delayed tasks on the Redis and MySQL you already have: punctual, durable, run once.
//!
//! A task is an expiring Redis key `Class@method@args`, mirrored as a row of the MySQL table
//! `tb_time_limit_task`. When the key expires, a daemon runs the task: Rust code of yours
//! ([`Handlers`]), or a program that a route in its configuration names. The same crate is the
//! daemon (`lapsed listen`), the worker library ([`Engine`]) and the producer library ([`TaskClient`]).
//!
//! **An expiry event is a hint, the ledger row is the truth, a claim is a fenced right to run one attempt,
//! and every run ends in an [`Outcome`](task::Outcome) that a pure function turns into a
//! [`Verdict`](task::Verdict).**
//!
//! # Quick start
//!
//! Without any server, on the ledger in memory:
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
//! On real servers, a whole worker whose effects happen exactly once:
//!
//! ```no_run
//! use lapsed::{Config, Engine, HandlerError, Handlers, MysqlTask, TaskContext, TaskType};
//!
//! const END: TaskType<(u64,)> = TaskType::new("Auction", "end");
//!
//! async fn end(ctx: TaskContext, id: u64) -> Result<(), HandlerError> {
//!     let mut tx = ctx.begin().await?; // on the ledger's database
//!     sqlx::query("UPDATE tb_auction SET ended = 1 WHERE id = ?").bind(id).execute(&mut *tx).await?;
//!     ctx.complete_in(tx).await // effects and completion together, or neither
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
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `mysql` | the ledger in MySQL or MariaDB; alone it makes the library of producers and workers |
//! | `webhook` | routes that call a web server |
//! | `http` | metrics and probes over HTTP |
//! | `cli` | the program `lapsed`, and [`doctor`] |
//! | `bench` | `lapsed bench` |
//! | `sandbox` | private servers for tests and demos |
//!
//! All of them are on unless `default-features = false`.
//!
//! # One task, from `SETEX` to its settled row
//!
//! 1. **Created.** [`TaskClient::create`] resolves "in 30 minutes" once, on the ledger's clock, writes the row
//!    ([`Producer::create`](ledger::Producer::create)), and after the commit arms the key
//!    ([`Timer::arm`](timer::Timer::arm)): `SET Order@close@42 lapsed:<due ms> PX <remaining>`. A program in another
//!    language runs `SETEX Order@close@42 1800 ""` and no more: the daemon hears of it ([`timer::AdoptionCandidate`]), judges it
//!    against the row of that name ([`task::decide_adoption()`]) and writes what is missing
//!    ([`Adoption::adopt`](ledger::Adoption::adopt)).
//! 2. **Expected.** Every second the daemon looks ahead in the ledger and tells its timer what falls due in the next
//!    seconds ([`Timer::expect`](timer::Timer::expect)).
//! 3. **Signalled.** At the due millisecond the timer asks Redis for the key ([`timer::key_expiry`]). That makes Redis
//!    drop it and publish `expired` to every listener there is, however many million keys wait beside it; the answer
//!    is a [`Signal`](timer::Signal) too. If Redis is down or mute, the signal is raised all the same; if even that is
//!    lost, the sweep finds the overdue row within a second or two.
//! 4. **Claimed.** All signals enter by one door, are coalesced by key, and become one conditional `UPDATE` for as
//!    many tasks as there are free slots ([`Claims::claim`](ledger::Claims::claim)). It takes a row only if that is
//!    pending, due *by the database's clock* and leased by nobody: early, stale, forged and repeated signals end here.
//! 5. **Run.** The [`Handler`](handler::Handler) runs in a task of its own, under its time limit, while its lease is
//!    renewed. A panic, a hang or a lost lease is an [`Outcome`](task::Outcome) like any other.
//! 6. **Judged.** [`task::judge`] turns the outcome, the attempt and the retry policy into a
//!    [`Verdict`](task::Verdict): complete, try again at, bury, release.
//! 7. **Settled.** The verdict is written in batches, guarded by row, due time and claim
//!    ([`Claims::settle`](ledger::Claims::settle)). Nothing matches if the task was created anew or taken over
//!    meanwhile: the result is discarded and counted. A retry arms the key again.
//!
//! # Where things are
//!
//! | module | what it is | what it knows |
//! |---|---|---|
//! | [`task`] | keys, states, outcomes, retries, due times: pure | nothing else |
//! | [`ledger`] | the seam to the book of record; in MySQL, in memory | `task` |
//! | [`timer`] | the seam to whatever says "may be due"; Redis keys, or the ledger alone | `task` |
//! | [`redis`] | everything that speaks Redis | `task` |
//! | [`handler`] | the seam to what does the work; registry, routes, targets | `task`, `ledger`, `redis` |
//! | [`membership`] | the other daemons of this ledger: heartbeats, and which of them owns a task | `task`, `redis` |
//! | [`limiter`] | the seam to whoever counts starts over all daemons; in Redis, in the ledger, in memory | `task`, `ledger`, `redis` |
//! | [`engine`] | the only place where the flow is decided | the seams, never a driver |
//! | [`client`], [`http`], [`doctor`] | producing, watching, diagnosing | all of the above |
//! | [`compose`] | puts concrete adapters together | everything |
//! | [`config`] | the settings: each read once, all problems of them told at once | `task` |
//! | [`clock`] | the ledger's time, as it is followed here | `task` |
//! | [`telemetry`] | what is counted, and how often a log line may come | `task` |
//! | [`trace`] | which trace the code that runs belongs to | `task` |
//! | [`testing`] | a kit for the tests of users: no server, no waiting | the engine, in memory |
//! | [`sandbox`] | private servers for tests, demos and measurements | nothing |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
// What only the ledger in MySQL calls.
#![cfg_attr(not(feature = "mysql"), allow(dead_code))]

pub mod client;
pub mod clock;
pub mod compose;
pub mod config;
#[cfg(feature = "cli")]
pub mod doctor;
pub mod engine;
pub mod handler;
#[cfg(feature = "http")]
pub mod http;
pub mod ledger;
pub mod limiter;
pub mod membership;
pub mod redis;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod task;
pub mod telemetry;
pub mod testing;
pub mod timer;
pub mod trace;

#[cfg(feature = "mysql")]
pub use client::{AfterCommit, Cancelled, MysqlTaskClient};
pub use client::{ClientError, IntoDue, IntoKey, IntoTask, Receipt, Task, TaskClient};
pub use compose::in_memory;
pub use config::{Config, ConfigError};
pub use engine::Engine;
#[cfg(feature = "mysql")]
pub use handler::MysqlTask;
pub use handler::{HandlerError, Handlers, Payload, State, TaskContext};
pub use ledger::IfPending;
#[cfg(feature = "mysql")]
pub use ledger::TaskTransaction;
pub use task::{Due, Rate, Recurrence, RetryPolicy, TaskKey, TaskType, Traceparent, UnixMs};
