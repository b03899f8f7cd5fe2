//! HTTP server of the daemon: liveness, readiness and metrics.

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

/// State that the pages show.
#[derive(Clone)]
pub struct Pages {
    /// The engine.
    pub status: Handle,
    /// Metrics of the engine.
    pub metrics: Arc<Metrics>,
    /// Accepted bearer tokens; empty: no token is required, on a loopback address only.
    pub tokens: Arc<[Secret]>,
}

/// Serves until `stop` resolves.
///
/// # Errors
/// If the listener fails.
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
    // Probes of an orchestrator have no token, and their answers are not confidential.
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

/// Readiness of the daemon, with each part that its punctuality depends on.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    ledger: bool,
    /// The ledger's failure; left out while it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// True if the subscription is up; `null` for a timer without a server.
    subscription: Option<bool>,
    stopping: bool,
    /// Number of daemons that share the ledger, including this one.
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
