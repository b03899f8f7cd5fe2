//! The HTTP API below `/v1`.

mod bulk;
mod events;
mod filter;
mod list;
mod new_task;
mod openapi;
mod pauses;
mod precondition;
mod progress;
mod stats;
mod task_view;
mod tasks;

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;

use super::site::Site;

/// Routes of the API.
pub fn routes() -> Router<Site> {
    let (router, _) = described().split_for_parts();
    router.route("/openapi.json", get(openapi::serve))
}

/// The routes with their description.
fn described() -> OpenApiRouter<Site> {
    let v1 = OpenApiRouter::new()
        .merge(tasks::routes())
        .merge(list::routes())
        .merge(bulk::routes())
        .merge(pauses::routes())
        .merge(stats::routes())
        .merge(events::routes());
    OpenApiRouter::with_openapi(openapi::Description::openapi()).nest("/v1", v1)
}
