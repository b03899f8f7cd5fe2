//! The HTTP API below `/v1`.

mod answers;
mod batch;
mod bulk;
mod bulk_work;
mod claims;
mod detached;
mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod idempotency;
mod list;
mod openapi;
mod pauses;
mod precondition;
mod problems;
mod progress;
mod queues;
mod stats;
mod task_changes;
mod task_view;
mod tasks;
mod why;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{any, get};
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;

use super::app_state::AppState;

/// Routes of the API.
pub fn routes() -> Router<AppState> {
    let (router, _) = described().split_for_parts();
    router
        .route("/v1/{*rest}", any(problems::not_found))
        .method_not_allowed_fallback(problems::method_not_allowed)
        .route("/openapi.json", get(openapi::serve))
        .route("/problems/{kind}", get(problems::describe))
}

/// The routes with their description.
fn described() -> OpenApiRouter<AppState> {
    let v1 = OpenApiRouter::new()
        .merge(tasks::routes())
        .merge(why::routes())
        .merge(task_changes::routes())
        .merge(list::routes())
        .merge(batch::routes())
        .merge(bulk::routes())
        .merge(claims::routes())
        .merge(pauses::routes())
        .merge(stats::routes())
        .merge(events::routes())
        .layer(from_fn(detached::answer))
        // A worker that leaves while it waits gets no task.
        .merge(queues::routes());
    OpenApiRouter::with_openapi(openapi::Description::openapi()).nest("/v1", v1)
}
