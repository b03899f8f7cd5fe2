//! Pages of the kinds of errors, at the URLs that `type` names.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::http::problem::{Problem, ProblemKind};

/// Describes a kind of error. Needs no credentials.
pub async fn describe(Path(slug): Path<String>) -> Response {
    let found = ProblemKind::ALL.iter().find(|kind| kind.slug() == slug);
    match found {
        Some(kind) => format!(
            "{}\n\nStatus {}. {}\n",
            kind.title(),
            kind.status(),
            kind.remedy()
        )
        .into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such kind of error\n").into_response(),
    }
}

/// The answer for a URL that the API does not have.
pub async fn not_found() -> Problem {
    Problem::of(
        ProblemKind::NotFound,
        "expected a path of `/openapi.json`; a `/` in a key is written as `%2F`",
    )
}

/// The answer for a method that a URL does not have.
pub async fn method_not_allowed(method: Method) -> Problem {
    Problem::of(
        ProblemKind::MethodNotAllowed,
        format!("`{method}` is not a method of this URL"),
    )
}
