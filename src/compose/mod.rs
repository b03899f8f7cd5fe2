//! The composition root of the library: the one place besides `main` that names concrete adapters.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod adapters;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod selection;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub use self::adapters::Adapters;
#[cfg(feature = "doctor")]
pub(crate) use self::mysql::name_of;
#[cfg(feature = "doctor")]
#[doc(hidden)] // for the program
pub use self::selection::ledger_to_move;
use crate::client::TaskClient;
use crate::config::Config;
use crate::engine::{Engine, Parts};
use crate::handler::{Handlers, Router};
use crate::ledger::Ledger;
use crate::ledger::memory::MemoryLedger;
use crate::limiter::MemoryLimiter;
use crate::membership::MemoryMembership;
use crate::telemetry::Metrics;
use crate::timer::Timer;
use crate::timer::ledger_poll::LedgerPoll;

/// Creates an engine and a producer on a ledger in memory, to try and test handlers without servers.
///
/// Uses tokio's clock, so tests can pause it. Nothing survives the process.
pub fn in_memory<S>(config: &Config, handlers: Handlers<S>) -> (Engine, TaskClient) {
    let ledger = Arc::new(MemoryLedger::default());
    let timer: Arc<dyn Timer> = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, Arc::clone(&timer));
    let parts = Parts {
        ledger,
        timer,
        membership: Arc::new(MemoryMembership::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        router: Arc::new(Router::new(handlers, config)),
        metrics: Arc::new(Metrics::default()),
        tracer: None,
    };
    (Engine::with_parts(parts, config), tasks)
}
