//! Single tasks.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};

use crate::http::access::{Caller, Scope};
use crate::http::problem::Problem;
use crate::http::site::Site;
use crate::ledger::TaskRecord;
use crate::task::TaskKey;

/// Routes of single tasks.
pub fn routes() -> Router<Site> {
    Router::new().route("/tasks/{key}", get(show))
}

async fn show(
    State(site): State<Site>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<Json<TaskRecord>, Problem> {
    caller.require(Scope::Read)?;
    let key = TaskKey::parse(&key).map_err(|error| Problem::invalid(error.to_string()))?;
    caller.require_key(&key)?;
    let found = site.tasks.find(key).await?;
    found.map(Json).ok_or_else(Problem::no_task)
}
