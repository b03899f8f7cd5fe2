//! The ledger in an SQLite file, for one daemon: nothing else needs a server.

use std::sync::Arc;

use crate::client::{ClientError, SqliteTaskClient};
use crate::config::{Config, ConfigError};
use crate::ledger::Ledger as _;
use crate::ledger::sqlite::SqliteLedger;
use crate::timer::Timer;
use crate::timer::ledger_poll::LedgerPoll;

/// Creates the ledger.
///
/// # Errors
/// [`ConfigError`] for an invalid table name, or a timer in Redis.
pub(super) fn ledger(config: &Config) -> Result<Arc<SqliteLedger>, ConfigError> {
    config.ledger.check_timer(config.timer)?;
    Ok(Arc::new(SqliteLedger::new(&config.ledger)?))
}

/// Creates the timer of this ledger.
pub(super) fn timer(ledger: &SqliteLedger) -> Arc<dyn Timer> {
    Arc::new(LedgerPoll::exact(ledger.clock().clone()))
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
        let alarms = timer(&ledger);
        Ok(Self::with_parts(ledger, alarms))
    }
}
