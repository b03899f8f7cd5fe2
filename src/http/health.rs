//! Probes of an orchestrator, and metrics.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use super::access::{Caller, Scope};
use super::problem::Problem;
use super::site::Site;

/// Routes of probes and metrics. Probes need no credentials: an orchestrator has none, and the answers are not confidential.
pub fn routes() -> Router<Site> {
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

/// What keeps the daemon from starting tasks on time, in sentences.
fn reasons(
    ledger: bool,
    trouble: Option<&str>,
    subscription: Option<bool>,
    hears_keys: bool,
    stopping: bool,
) -> Vec<String> {
    let ledger = (!ledger).then(|| match trouble {
        Some(trouble) => format!("The ledger does not answer, so no task starts: {trouble}."),
        None => "The ledger has not answered yet, so no task starts.".to_owned(),
    });
    let subscription = (subscription == Some(false)).then(|| {
        let what = "No events arrive from Redis: tasks may start up to 2 s late";
        match hears_keys {
            true => format!(
                "{what}, and a bare SETEX is not seen: it is lost if it expires before a scan finds its key."
            ),
            false => format!("{what}."),
        }
    });
    let stopping = stopping
        .then(|| "The daemon is stopping: runs end, and no further task starts here.".to_owned());
    [ledger, subscription, stopping]
        .into_iter()
        .flatten()
        .collect()
}

async fn readyz(State(Site { engine, .. }): State<Site>) -> Response {
    let (ledger, subscription, stopping) = (
        engine.ledger_answers(),
        engine.is_listening(),
        engine.is_stopping(),
    );
    let reason = engine.ledger_trouble();
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
            reasons: reasons(
                ledger,
                reason.as_deref(),
                subscription,
                engine.hears_keys(),
                stopping,
            ),
            reason,
            subscription,
            stopping,
            members: engine.members(),
        }),
    )
        .into_response()
}

async fn metrics(State(site): State<Site>, caller: Caller) -> Result<Response, Problem> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    caller.require(Scope::Read)?;
    caller.require_unlimited()?;
    let text = site.metrics.render();
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response())
}
