//! The HTTP API below `/v1`.

mod tasks;

use axum::Router;

use super::site::Site;

/// Routes of the API.
pub fn routes() -> Router<Site> {
    Router::new().nest("/v1", tasks::routes())
}
