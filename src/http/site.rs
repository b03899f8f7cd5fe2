//! What every request handler works with.

use std::sync::Arc;

use super::access::Access;
use crate::TaskClient;
use crate::config::HttpConfig;
use crate::engine::Handle;
use crate::telemetry::Metrics;

/// What every request handler works with. Cheap to clone.
#[derive(Clone)]
pub struct Site {
    /// Creates, moves, cancels and finds tasks.
    pub tasks: TaskClient,
    /// The engine of this daemon.
    pub engine: Handle,
    /// Metrics of the engine.
    pub metrics: Arc<Metrics>,
    /// Who may do what.
    pub access: Arc<Access>,
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
            tasks,
            engine,
            metrics,
            access: Arc::new(Access::new(config)),
            config: Arc::new(config.clone()),
        }
    }
}
