//! Producers on the ledger and the timer that a configuration asks for.

use std::sync::Arc;

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(not(feature = "mysql"))]
use super::not_in_this_build;
#[cfg(feature = "sqlite")]
use super::sqlite;
use crate::client::{ClientError, TaskClient};
use crate::config::{Config, ConfigError, LedgerConfig};
use crate::ledger::Ledger;
#[cfg(feature = "mysql")]
use crate::ledger::mysql::MysqlLedger;
#[cfg(feature = "sqlite")]
use crate::ledger::sqlite::SqliteLedger;
use crate::ledger::transfer::Transfers;
use crate::timer::AlarmStore;

impl TaskClient {
    /// Connects to the ledger and the timer of a configuration. Redis is connected when first used.
    ///
    /// # Errors
    /// [`ClientError`]: an unusable configuration, a ledger that this build lacks, that cannot be reached or used.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: &Config) -> Result<Self, ClientError> {
        let (ledger, alarms) = ledger_and_alarms(config)?;
        ledger.check().await?;
        Ok(Self::with_parts(ledger, alarms))
    }
}

type LedgerAndAlarms = (Arc<dyn Ledger>, Arc<dyn AlarmStore>);

fn ledger_and_alarms(config: &Config) -> Result<LedgerAndAlarms, ConfigError> {
    #[cfg(feature = "sqlite")]
    if config.ledger.sqlite_file().is_some() {
        let ledger = sqlite::ledger(config)?;
        let timer = sqlite::timer(&ledger);
        return Ok((ledger, timer));
    }
    #[cfg(feature = "mysql")]
    {
        let ledger = mysql::ledger(config)?;
        let alarms = mysql::alarms(config, &ledger)?;
        Ok((ledger, alarms))
    }
    #[cfg(not(feature = "mysql"))]
    Err(not_in_this_build(&config.ledger))
}

/// Creates a ledger alone, for a move.
///
/// # Errors
/// [`ConfigError`] for an invalid URL or table name, and for a ledger that this build lacks.
pub fn ledger_to_move(config: &LedgerConfig) -> Result<Arc<dyn Transfers>, ConfigError> {
    #[cfg(feature = "sqlite")]
    if config.sqlite_file().is_some() {
        return Ok(Arc::new(SqliteLedger::new(config)?));
    }
    #[cfg(feature = "mysql")]
    return Ok(Arc::new(MysqlLedger::new(config)?));
    #[cfg(not(feature = "mysql"))]
    Err(not_in_this_build(config))
}
