//! Errors of the HTTP API: `application/problem+json`, as RFC 9457 defines it.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::client::ClientError;
use crate::ledger::LedgerError;

/// An error of the HTTP API.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// Names the kind of error: a reference below `/problems/`. Does not change between versions.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: String,
}

impl Problem {
    /// An error of a kind, with what was expected.
    pub fn new(
        status: StatusCode,
        slug: &str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: format!("/problems/{slug}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("it was a status")
    }

    /// What was expected and what was found.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The request is not valid.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid",
            "the request is not valid",
            detail,
        )
    }

    /// There is no such task.
    pub fn no_task() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-task",
            "there is no such task",
            "no row has this key",
        )
    }

    /// The request has no valid credentials.
    pub fn unauthenticated() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "credentials are required",
            "expected `Authorization: Bearer <token>`",
        )
    }

    /// The caller may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "the caller may not do this",
            detail,
        )
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Invalid(detail) => Self::invalid(detail),
            error if error.is_transient() => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ledger-unavailable",
                "the ledger does not answer",
                error.to_string(),
            ),
            error => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "ledger-refuses",
                "the ledger refuses this",
                error.to_string(),
            ),
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Ledger(error) => error.into(),
            error @ ClientError::Exists { .. } => Self::new(
                StatusCode::CONFLICT,
                "exists",
                "the task exists",
                error.to_string(),
            ),
            error => Self::invalid(error.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
        let status = self.status();
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM);
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
