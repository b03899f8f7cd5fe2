//! Input of requests: parts of the path, the query and JSON bodies. What does not fit is a [`Problem`].

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;

use super::problem::{Problem, ProblemKind};
use crate::task::TaskKey;

/// The task key in the path, where `/` is written as `%2F`.
pub struct KeyInPath(pub TaskKey);

impl<S: Send + Sync> FromRequestParts<S> for KeyInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let InPath(text) = InPath::from_request_parts(parts, state).await?;
        let key = TaskKey::parse(&text).map_err(|error| Problem::invalid(error.to_string()))?;
        Ok(Self(key))
    }
}

/// The only parameter in the path.
pub struct InPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(text))
    }
}

/// The parameters of the query. An unknown one is refused if `T` refuses it.
pub struct InQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = Query::try_from_uri(&parts.uri);
        let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(query))
    }
}

/// A JSON body. The header `Content-Type` is required: a page of another site cannot send it without asking.
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        require_type(request.headers(), &["application/json"])?;
        let body = body(request, state).await?;
        let value = serde_json::from_slice(&body);
        value.map(Self).map_err(|error| json_problem(&error))
    }
}

/// A JSON body that may be left out.
pub struct OptionalJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if request.headers().contains_key(header::CONTENT_TYPE) {
            let JsonBody(value) = JsonBody::from_request(request, state).await?;
            return Ok(Self(value));
        }
        match body(request, state).await?.is_empty() {
            true => Ok(Self(T::default())),
            false => Err(Problem::of(
                ProblemKind::UnsupportedType,
                "expected `Content-Type: application/json` with a body",
            )),
        }
    }
}

/// Refuses a body of another media type. Parameters of the type are ignored.
///
/// # Errors
/// The type is none of `expected`.
pub fn require_type(headers: &HeaderMap, expected: &[&str]) -> Result<(), Problem> {
    let found = headers.get(header::CONTENT_TYPE);
    let found = found.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = found.split(';').next().unwrap_or("").trim();
    match expected.iter().any(|it| it.eq_ignore_ascii_case(essence)) {
        true => Ok(()),
        false => Err(Problem::of(
            ProblemKind::UnsupportedType,
            format!(
                "`Content-Type` is `{}`, expected `{}`",
                essence.escape_debug(),
                expected.join("` or `")
            ),
        )),
    }
}

/// Reads the body, up to the limit of its route.
///
/// # Errors
/// The body is too large, or the connection ends.
pub async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    let body = Bytes::from_request(request, state).await;
    body.map_err(|error| match error {
        BytesRejection::FailedToBufferBody(error) if error.status() == 413 => Problem::of(
            ProblemKind::TooLarge,
            "the body has more bytes than this request may have",
        ),
        error => Problem::invalid(error.body_text()),
    })
}

/// The problem of a text that is not the JSON that was expected.
pub fn json_problem(error: &serde_json::Error) -> Problem {
    Problem::invalid(format!("body: {error}"))
}
