//! Counts of tasks.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::AnyProblem;
use super::pauses::{PauseView, seen};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::ledger::DetailedStats;

/// Routes of counts.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(stats))
}

/// Counts of tasks, at most two seconds old.
#[derive(Debug, Serialize, ToSchema)]
struct StatsView {
    #[serde(flatten)]
    stats: DetailedStats,
    /// Pauses and holds, oldest first.
    pauses: Vec<PauseView>,
}

/// Counts tasks by state, and by class and method.
///
/// Counts are bounded: with many rows, `at_least` names those that are not complete. A client that is limited to some classes
/// gets the counts of these, without tasks that are done or cancelled; if they are too many to count by class, 403.
#[utoipa::path(
    operation_id = "getStats",
    get, path = "/stats", tag = "operations",
    responses(
        (status = 200, description = "The counts.", body = StatsView),
        AnyProblem,
    ),
)]
async fn stats(State(app): State<AppState>, caller: Caller) -> Result<Json<StatsView>, Problem> {
    caller.require(Scope::Read)?;
    let (stats, pauses) = tokio::try_join!(app.stats(), app.pauses())?;
    Ok(Json(StatsView {
        stats: stats.seen_by(&caller)?.into_owned(),
        pauses: seen(&caller, &pauses),
    }))
}
