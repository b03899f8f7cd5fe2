//! The ledger in an SQLite file, for one daemon: nothing else needs a server.

use std::sync::Arc;

use super::Adapters;
use crate::client::{ClientError, SqliteTaskClient};
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
    let ledger = ledger(config)?;
    let timer = LedgerPoll::exact(ledger.clock().clone());
    Ok(Adapters {
        ledger,
        timer: Arc::new(timer),
        membership: Arc::new(MemoryMembership::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        metrics: Arc::new(Metrics::default()),
        tracer: None,
    })
}

fn ledger(config: &Config) -> Result<Arc<SqliteLedger>, ConfigError> {
    config.ledger.check_timer(config.timer)?;
    Ok(Arc::new(SqliteLedger::new(&config.ledger)?))
}

impl SqliteTaskClient {
    /// As [`TaskClient::connect`](crate::TaskClient::connect), for a ledger in an SQLite file.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: &Config) -> Result<Self, ClientError> {
        let ledger = ledger(config)?;
        ledger.check().await?;
        let timer = LedgerPoll::exact(ledger.clock().clone());
        Ok(Self::with_parts(ledger, Arc::new(timer)))
    }
}
