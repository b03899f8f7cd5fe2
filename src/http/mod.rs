//! The daemon's own HTTP: whether it lives, whether it is ready, what it has counted.

use std::future::Future;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use crate::config::Secret;
use crate::engine::Handle;
use crate::telemetry::Metrics;

/// What the pages show.
#[derive(Clone)]
pub struct Pages {
    /// The engine.
    pub status: Handle,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    /// Who may read them; empty on a loopback address for everybody.
    pub tokens: Arc<[Secret]>,
}

/// Serves until `stop` resolves.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    pages: Pages,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, routes(pages))
        .with_graceful_shutdown(stop)
        .await
}

fn routes(pages: Pages) -> Router {
    // Probes of an orchestrator have no token, and learn nothing that is worth one.
    let open = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz));
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route_layer(middleware::from_fn_with_state(pages.clone(), require_token));
    open.merge(guarded).with_state(pages)
}

async fn healthz() -> &'static str {
    "ok\n"
}

/// Each part that must work for the daemon to be as punctual as it can be.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    ledger: bool,
    /// What the ledger did not do; left out while it does what it is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// `null` for a timer that needs no server.
    subscription: Option<bool>,
    stopping: bool,
    /// Daemons that are known to share the ledger, this one included.
    members: usize,
}

async fn readyz(State(Pages { status, .. }): State<Pages>) -> Response {
    let (ledger, subscription, stopping) = (
        status.ledger_answers(),
        status.is_listening(),
        status.is_stopping(),
    );
    let ready = ledger && subscription != Some(false) && !stopping;
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        code,
        Json(Readiness {
            ready,
            ledger,
            reason: status.ledger_trouble(),
            subscription,
            stopping,
            members: status.members(),
        }),
    )
        .into_response()
}

async fn metrics(State(pages): State<Pages>) -> impl IntoResponse {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, OPENMETRICS)],
        pages.metrics.render(),
    )
}

async fn require_token(State(pages): State<Pages>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let fits = |token: &Secret| {
        given.is_some_and(|given| bool::from(token.expose().as_bytes().ct_eq(given)))
    };
    if pages.tokens.is_empty() || pages.tokens.iter().any(fits) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (
        StatusCode::UNAUTHORIZED,
        challenge,
        "expected `Authorization: Bearer <one of http.tokens>`\n",
    )
        .into_response()
}
