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
mod checkup;
mod dashboard;
mod events;
mod health;
mod input;
mod problem;
mod recent;
mod server;
mod site;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use self::checkup::{Checkup, CheckupFinding, CheckupSeverity};
use self::server::Limits;
pub use self::site::Site;

/// Serves until `stop` resolves. Requests that have begun are answered; streams and long polls end.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let (events, metrics) = (Arc::clone(&site.events), Arc::clone(&site.metrics));
    let _ticking = AbortOnDropHandle::new(tokio::spawn(async move { events.run(&metrics).await }));
    let (stopping, work) = (site.stopping.clone(), site.work.clone());
    let audit_log = site.audit_log.clone();
    let stop = async move {
        stop.await;
        stopping.cancel();
    };
    server::serve(listener, routes(site), Limits::default(), stop).await;
    work.close();
    work.wait().await;
    audit_log.flush().await;
}

fn routes(site: Site) -> Router {
    let routes = Router::new()
        .merge(access::routes())
        .merge(health::routes())
        .merge(api::routes())
        .merge(dashboard::routes())
        .with_state(site.clone());
    access::gate(&site, routes)
}
