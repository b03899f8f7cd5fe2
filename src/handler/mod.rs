//! The seam to the code that does the work of a task: a Rust function, or a target of a route.

mod args;
mod context;
mod delayed_set;
mod delivery;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod ending;
mod error;
mod exec;
mod extensions;
mod extract;
#[cfg(feature = "sqlite")]
mod file_transaction;
mod function;
mod handlers;
mod log_target;
mod middleware;
mod options;
mod output;
mod pull_target;
mod registry;
mod router;
mod signature;
mod slow_log;
mod targets;
#[cfg(feature = "mysql")]
mod transaction;
#[cfg(feature = "webhook")]
mod webhook;

pub use args::{FromArg, FromArgs};
pub use context::TaskContext;
pub use error::HandlerError;
pub use extensions::Extensions;
pub use extract::{Extension, FromRef, FromTask, Payload, State};
#[cfg(feature = "sqlite")]
pub use file_transaction::SqliteTask;
pub use function::IntoHandler;
pub use handlers::Handlers;
pub use middleware::{Layers, Middleware, Next, Selection};
pub use options::Registration;
pub use router::{Route, Router, Skills};
pub use signature::VerifyPayload;
pub use slow_log::SlowLog;
#[cfg(feature = "mysql")]
pub use transaction::MysqlTask;
#[cfg(feature = "webhook")]
pub use webhook::Poster;
#[cfg(feature = "fuzzing")]
#[doc(hidden)] // for the fuzz targets
pub use webhook::fuzzing;

use async_trait::async_trait;

/// Does the work of one task. Most handlers are async functions: see [`Handlers::on`].
///
/// A handler may be called again for the same task: after an error, a timeout or a panic, and when a daemon was killed
/// during the run. [`TaskContext::id`] stays the same over attempts, for deduplication. With the MySQL ledger,
/// [`complete_in`](MysqlTask::complete_in) makes effects in its database happen exactly once.
///
/// # Cancel safety
/// The future is dropped when the run times out or loses its lease, and when it has not ended by the end of a graceful
/// stop.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs the task once.
    ///
    /// # Errors
    /// [`HandlerError`] says whether the task is tried again.
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError>;
}
