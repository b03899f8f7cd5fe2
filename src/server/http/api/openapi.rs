//! The description of the API, OpenAPI 3.1. It is committed beside this file, so that changes of the API are seen in reviews.

use axum::http::header;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

/// The committed description.
pub const TEXT: &str = include_str!("openapi.json");

/// What all endpoints have in common.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "lapsed",
        description = "Delayed tasks. An answer with a status 2xx means that the change is committed to the ledger. Errors are `application/problem+json`, as RFC 9457 defines it.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "tasks", description = "Create, look at, move, cancel, run and redrive tasks."),
        (name = "workers", description = "Take tasks of pull queues, and report how they ended."),
        (name = "operations", description = "Pauses, counts and changes of many tasks."),
    ),
    modifiers(&BearerToken),
    security(("token" = [])),
)]
pub struct Description;

/// The scheme of credentials.
struct BearerToken;

impl utoipa::Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", scheme);
    }
}

/// Serves the description. It needs no credentials: it is public, and the same for every installation.
pub async fn serve() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT)
}

#[cfg(test)]
mod tests {
    use super::TEXT;
    use crate::http::api::described;

    /// To bring it up to date: `LAPSED_UPDATE_SNAPSHOTS=1 cargo test --lib openapi`.
    #[test]
    fn the_committed_description_is_current() {
        let (_, api) = described().split_for_parts();
        let current = api.to_pretty_json().unwrap() + "\n";
        if std::env::var_os("LAPSED_UPDATE_SNAPSHOTS").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/http/api/openapi.json");
            std::fs::write(file, &current).unwrap();
            return;
        }
        assert!(
            TEXT == current,
            "the API has changed: run `LAPSED_UPDATE_SNAPSHOTS=1 cargo test --lib openapi`"
        );
    }
}
