//! Why a task has not run.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::{AnyOther, NoTask};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::named::{TaskInPath, TaskRef};
use crate::http::problem::Problem;
use crate::http::why;
use lapsed::diagnosis::{Why, WhyCause};

/// The route.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// Why a task has not run.
#[derive(Debug, Serialize, ToSchema)]
struct WhyView {
    /// `<row id>-<due ms>`: the arming that it is about.
    #[schema(example = "42-1795291200250")]
    id: String,
    #[schema(example = "Order@close@42")]
    key: String,
    #[serde(flatten)]
    cause: CauseView,
    /// If it is not due yet: what would hinder it if it were.
    #[serde(skip_serializing_if = "Option::is_none")]
    then: Option<CauseView>,
}

/// A cause.
#[derive(Debug, Serialize, ToSchema)]
struct CauseView {
    /// `not_due`, `retry` (it waits for its next attempt), `starting` (it fell due less than 3 s ago), `running`, `ended`;
    /// `paused`, `held`; `no_daemon`, `no_route`, `away` (only daemons that are gone, or accept no task, have a route for it),
    /// `no_worker` (no worker asks any daemon for its queue; without heartbeats: the one that answers), `no_slot` (its concurrency or all slots are used), `rate`,
    /// `ledger` (it does not answer), `unheard` (this daemon cannot start it, and cannot hear the others) or `unknown`.
    #[schema(example = "no_worker")]
    cause: &'static str,
    /// What is so.
    #[schema(
        example = "No worker asks any daemon for the queue `mail` since 2026-11-24T03:10:00.000Z."
    )]
    text: String,
    /// Since when, RFC 3339; `null` if it is not known.
    since: Option<String>,
    /// What to do; `null` if there is nothing to do.
    #[schema(example = "Start the workers of the queue.")]
    remedy: Option<&'static str>,
}

impl From<&WhyCause> for CauseView {
    fn from(cause: &WhyCause) -> Self {
        Self {
            cause: cause.as_str(),
            text: cause.text(),
            since: cause.since().map(|since| since.to_string()),
            remedy: cause.remedy(),
        }
    }
}

/// Says why a task has not run.
#[utoipa::path(
    operation_id = "whyTask",
    get, path = "/tasks/{key}/why", tag = "tasks",
    params(TaskInPath),
    responses(
        (status = 200, description = "Why it has not run, as far as this daemon knows.", body = WhyView),
        NoTask,
        AnyOther,
    ),
)]
async fn show(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
) -> Result<Json<WhyView>, Problem> {
    let TaskRef { key, display_key } = task.resolve(&app, &caller, Scope::Read).await?;
    let (found, facts) = tokio::try_join!(
        async { app.tasks.find(key).await.map_err(Problem::from) },
        why::facts(&app, &caller)
    )?;
    let task = found.ok_or_else(Problem::no_task)?;
    let Why { cause, then } = why::of_task(&app, &caller, &facts, &task);
    Ok(Json(WhyView {
        id: task.id,
        key: display_key.to_string(),
        cause: CauseView::from(&cause),
        then: then.as_ref().map(CauseView::from),
    }))
}
