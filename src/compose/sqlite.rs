//! The ledger in an SQLite file, for one daemon: nothing else needs a server.

use std::sync::Arc;

use super::Adapters;
use crate::config::{Config, ConfigError};
use crate::ledger::Ledger;
use crate::ledger::sqlite::SqliteLedger;
use crate::limiter::MemoryLimiter;
use crate::membership::MemoryMembership;
use crate::telemetry::Metrics;
use crate::timer::ledger_poll::LedgerPoll;

/// Creates the adapters.
///
/// # Errors
/// [`ConfigError`] for an invalid table name, or a timer in Redis.
pub(super) fn adapters(config: &Config) -> Result<Adapters, ConfigError> {
    config.ledger.check_timer(config.timer)?;
    let ledger = SqliteLedger::new(&config.ledger)?;
    let timer = LedgerPoll::exact(ledger.clock().clone());
    Ok(Adapters {
        ledger: Arc::new(ledger),
        timer: Arc::new(timer),
        membership: Arc::new(MemoryMembership::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        metrics: Arc::new(Metrics::default()),
    })
}
