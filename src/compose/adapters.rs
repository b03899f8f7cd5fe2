//! The adapters that a configuration selects.

use std::sync::Arc;

use crate::client::TaskClient;
use crate::config::Config;
use crate::engine::{Engine, Parts};
use crate::handler::{Handlers, Router};
use crate::ledger::Ledger;
use crate::limiter::RateLimiter;
use crate::membership::Membership;
use crate::telemetry::Metrics;
use crate::timer::Timer;
use crate::trace::Tracer;

/// The adapters that a configuration selects. Creating them does no I/O.
#[derive(Clone)]
pub struct Adapters {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// The timer.
    pub timer: Arc<dyn Timer>,
    /// The membership.
    pub membership: Arc<dyn Membership>,
    /// The rate limiter.
    pub limiter: Arc<dyn RateLimiter>,
    /// Metrics that all adapters share.
    pub metrics: Arc<Metrics>,
    /// Records the spans of tasks, if any does.
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Adapters {
    /// A producer on these adapters.
    pub fn client(&self) -> TaskClient {
        let tasks = TaskClient::with_parts(Arc::clone(&self.ledger), Arc::clone(&self.timer));
        match &self.tracer {
            Some(tracer) => tasks.with_tracer(Arc::clone(tracer)),
            None => tasks,
        }
    }

    /// Creates an engine on these adapters.
    pub fn engine<S>(&self, config: &Config, handlers: Handlers<S>) -> Engine {
        let parts = Parts {
            ledger: Arc::clone(&self.ledger),
            timer: Arc::clone(&self.timer),
            membership: Arc::clone(&self.membership),
            limiter: Arc::clone(&self.limiter),
            router: Arc::new(Router::new(handlers, config)),
            metrics: Arc::clone(&self.metrics),
            tracer: self.tracer.clone(),
        };
        Engine::with_parts(parts, config)
    }
}
