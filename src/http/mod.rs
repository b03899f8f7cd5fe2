//! HTTP: the API, the dashboard, metrics and probes.
//!
//! ```text
//! connection ── access: who calls? ──┬── api        /v1/..      JSON, problem+json
//!                                    ├── dashboard  /           pages for people
//!                                    └── health     /readyz ..  probes and metrics
//! ```

mod access;
mod api;
mod audit;
mod dashboard;
mod events;
mod health;
mod input;
mod problem;
mod recent;
mod site;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use self::site::Site;

/// Serves until `stop` resolves.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (events, metrics) = (Arc::clone(&site.events), Arc::clone(&site.metrics));
    let _ticking = AbortOnDropHandle::new(tokio::spawn(async move { events.run(&metrics).await }));
    axum::serve(listener, routes(site))
        .with_graceful_shutdown(stop)
        .await
}

fn routes(site: Site) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(api::routes())
        .merge(dashboard::routes())
        .with_state(site)
}
