//! Selects the adapters that a configuration asks for.

use std::sync::Arc;

use super::Adapters;
#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "sqlite")]
use super::sqlite;
use crate::client::{ClientError, TaskClient};
#[cfg(feature = "doctor")]
use crate::config::LedgerConfig;
use crate::config::{Config, ConfigError};
use crate::engine::Engine;
use crate::handler::Handlers;
#[cfg(feature = "doctor")]
use crate::ledger::mysql::MysqlLedger;
#[cfg(all(feature = "doctor", feature = "sqlite"))]
use crate::ledger::sqlite::SqliteLedger;
#[cfg(feature = "doctor")]
use crate::ledger::transfer::Transfers;
use crate::trace::Tracer;

impl Adapters {
    /// Creates the adapters.
    ///
    /// # Errors
    /// Returns [`ConfigError`] for invalid URLs and names, and for a ledger that this build lacks.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        #[cfg(feature = "sqlite")]
        if config.ledger.sqlite_file().is_some() {
            return sqlite::adapters(config);
        }
        #[cfg(feature = "mysql")]
        return Ok(mysql::adapters(config)?.0);
        #[cfg(not(feature = "mysql"))]
        Err(ConfigError::one(
            "ledger.url",
            "needs a build with the feature `mysql`".to_owned(),
        ))
    }
}

impl Engine {
    /// Creates a daemon on the configured ledger and timer, with these handlers and the configured routes. Connects in
    /// [`run_until`](Engine::run_until).
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the configuration is invalid.
    pub fn new<S>(config: Config, handlers: Handlers<S>) -> Result<Self, ConfigError> {
        Ok(Adapters::new(&config)?.engine(&config, handlers))
    }

    /// As [`new`](Engine::new), with a recorder of the spans of tasks, such as an OpenTelemetry SDK.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the configuration is invalid.
    pub fn with_tracer<S>(
        config: Config,
        handlers: Handlers<S>,
        tracer: Arc<dyn Tracer>,
    ) -> Result<Self, ConfigError> {
        let adapters = Adapters {
            tracer: Some(tracer),
            ..Adapters::new(&config)?
        };
        Ok(adapters.engine(&config, handlers))
    }
}

impl TaskClient {
    /// Connects to the ledger and the timer of a configuration. Redis is connected when first used.
    ///
    /// # Errors
    /// [`ClientError`]: an unusable configuration, or a ledger that cannot be reached or used.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: &Config) -> Result<Self, ClientError> {
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        Ok(adapters.client())
    }
}

/// Creates a ledger alone, for a move.
///
/// # Errors
/// [`ConfigError`] for an invalid URL or table name.
#[cfg(feature = "doctor")]
pub fn ledger_to_move(config: &LedgerConfig) -> Result<Arc<dyn Transfers>, ConfigError> {
    #[cfg(feature = "sqlite")]
    if config.sqlite_file().is_some() {
        return Ok(Arc::new(SqliteLedger::new(config)?));
    }
    Ok(Arc::new(MysqlLedger::new(config)?))
}
