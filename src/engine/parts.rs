//! The components of an engine.

use std::sync::Arc;

use crate::handler::Router;
use crate::ledger::Ledger;
use crate::limiter::RateLimiter;
use crate::membership::Membership;
use crate::telemetry::Metrics;
use crate::timer::Timer;
use crate::trace::Tracer;

/// The components of an engine.
#[derive(Clone)]
pub struct Parts {
    /// The ledger, which stores the tasks.
    pub ledger: Arc<dyn Ledger>,
    /// The source of signals.
    pub timer: Arc<dyn Timer>,
    /// The other daemons on the ledger.
    pub membership: Arc<dyn Membership>,
    /// Rate limits of routes, shared by all daemons.
    pub limiter: Arc<dyn RateLimiter>,
    /// Handlers and routes.
    pub router: Arc<Router>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Records the spans of tasks, if any does.
    pub tracer: Option<Arc<dyn Tracer>>,
}
