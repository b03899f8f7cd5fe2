//! The dashboard: pages for people, rendered on the server.

use axum::Router;
use axum::extract::State;
use axum::response::Html;
use axum::routing::get;

use super::access::{Caller, Scope};
use super::problem::Problem;
use super::site::Site;

/// Routes of the dashboard.
pub fn routes() -> Router<Site> {
    Router::new().route("/", get(overview))
}

async fn overview(State(site): State<Site>, caller: Caller) -> Result<Html<String>, Problem> {
    caller.require(Scope::Read)?;
    let stats = site.tasks.stats().await?;
    Ok(Html(format!(
        "<!doctype html><html lang=en><title>lapsed</title><h1>lapsed</h1><p>{} pending",
        stats.pending
    )))
}
