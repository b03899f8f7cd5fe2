//! HTTP: the API, the dashboard, metrics and probes.
//!
//! ```text
//! connection ── access: who calls? ──┬── api        /v1/..      JSON, problem+json
//!                                    ├── dashboard  /           pages for people
//!                                    └── health     /readyz ..  probes and metrics
//! ```

mod access;
mod api;
mod app_state;
mod checkup;
mod dashboard;
mod events;
mod health;
mod input;
mod listing;
mod named;
mod places;
mod problem;
mod recent;
mod server;
mod stats_cache;
mod why;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

#[cfg(feature = "fuzzing")]
#[doc(hidden)] // for the fuzz targets
pub use self::access::fuzzing as access_fuzzing;
#[cfg(feature = "fuzzing")]
#[doc(hidden)] // for the fuzz targets
pub use self::api::fuzzing as api_fuzzing;
pub use self::app_state::AppState;
pub use self::checkup::Checkup;
#[cfg(all(test, feature = "resp"))]
pub(crate) use self::problem::ProblemKind;
use self::server::Limits;
#[doc(hidden)] // for the benchmark
pub use self::stats_cache::StatsCache;
use lapsed::diagnosis::diagnose;

/// Time for changes of many tasks to end when the server stops.
const WORK_END_WITHIN: Duration = Duration::from_secs(2);

/// Serves until `stop` resolves. Then streams and long polls end, requests that have begun have 2 s to be answered, and the
/// audit log is written. It returns within seconds, whatever clients and the ledger do.
pub async fn serve(
    listener: TcpListener,
    app: AppState,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let (events, metrics) = (Arc::clone(&app.events), Arc::clone(&app.metrics));
    let (engine, thresholds) = (app.engine.clone(), Arc::clone(&app.thresholds));
    let trouble = move || -> Vec<&'static str> {
        let found = diagnose(&engine.facts(), &thresholds).into_iter();
        found.map(|found| found.condition.id).collect()
    };
    let ticking = async move { events.run(&metrics, trouble).await };
    let _ticking = AbortOnDropHandle::new(tokio::spawn(ticking));
    let (stopping, work) = (app.stopping.clone(), app.work.clone());
    let audit_log = app.audit_log.clone();
    let stop = async move {
        stop.await;
        stopping.cancel();
    };
    server::serve(listener, routes(app), Limits::default(), stop).await;
    work.close();
    if timeout(WORK_END_WITHIN, work.wait()).await.is_err() {
        tracing::warn!("a change of many tasks has not ended in time");
    }
    audit_log.flush().await;
}

/// What a request is answered with, without a listener.
#[doc(hidden)] // for the simulator
pub fn routes(app: AppState) -> Router {
    let access = Arc::clone(&app.access);
    let routes = Router::new()
        .merge(access::routes(Arc::clone(&access)))
        .merge(health::routes())
        .merge(api::routes())
        .merge(dashboard::routes())
        .with_state(app);
    access::gate(access, routes)
}
