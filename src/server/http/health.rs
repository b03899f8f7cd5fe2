//! Probes of an orchestrator, and metrics.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use super::access::{Caller, Scope};
use super::app_state::AppState;
use super::problem::Problem;
use lapsed::diagnosis::{Found, LedgerState, Thresholds, diagnose};

/// Routes of probes and metrics. Probes need no credentials: an orchestrator has none, and the answers are not confidential.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
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
    /// What is wrong, in sentences; empty if nothing is.
    reasons: Vec<String>,
}

async fn readyz(State(AppState { engine, .. }): State<AppState>) -> Response {
    let facts = engine.facts();
    let found = diagnose(&facts, &Thresholds::default());
    let unready = found.iter().filter(|found| found.condition.is_unready);
    let reasons: Vec<String> = unready.map(Found::sentences).collect();
    let ready = reasons.is_empty();
    let code = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let readiness = Readiness {
        ready,
        ledger: facts.ledger == LedgerState::Answers,
        reason: engine.ledger_trouble(),
        subscription: facts.is_listening,
        stopping: facts.is_stopping,
        members: engine.members(),
        reasons,
    };
    (code, Json(readiness)).into_response()
}

async fn metrics(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    caller.require(Scope::Read)?;
    caller.require_unrestricted()?;
    let text = app.metrics.render();
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response())
}
