//! What every request handler works with.

use std::sync::Arc;
use std::time::Duration;

use super::access::{Access, Caller};
use super::audit::{AuditLog, Change};
use super::dashboard::Figures;
use crate::TaskClient;
use crate::config::HttpConfig;
use crate::engine::Handle;
use crate::telemetry::Metrics;

/// How long entries of the audit log are kept.
const AUDIT_KEPT: Duration = Duration::from_secs(90 * 86_400);

/// What every request handler works with. Cheap to clone.
#[derive(Clone)]
pub struct Site {
    /// Creates, moves, cancels and finds tasks.
    pub tasks: TaskClient,
    /// The engine of this daemon.
    pub engine: Handle,
    /// Metrics of the engine.
    pub metrics: Arc<Metrics>,
    /// Who changed what.
    pub audit_log: AuditLog,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What pages show about all tasks.
    pub figures: Arc<Figures>,
    /// `[http]`
    pub config: Arc<HttpConfig>,
}

impl Site {
    /// Serves this engine's tasks as `config` says.
    pub fn new(
        config: &HttpConfig,
        tasks: TaskClient,
        engine: Handle,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            audit_log: AuditLog::new(tasks.ledger(), AUDIT_KEPT),
            tasks,
            engine,
            metrics,
            access: Arc::new(Access::new(config)),
            figures: Arc::default(),
            config: Arc::new(config.clone()),
        }
    }

    /// Adds a change to the audit log. Call it after the change is committed.
    pub async fn audit(&self, caller: &Caller, change: Change) {
        self.audit_log.add(caller, change).await;
    }
}
