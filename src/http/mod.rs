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
mod health;
mod problem;
mod site;

use std::future::Future;

use axum::Router;
use tokio::net::TcpListener;

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
