//! Errors of the HTTP API: `application/problem+json`, as RFC 9457 defines it.

mod kind;

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

pub use self::kind::ProblemKind;
use lapsed::client::ClientError;
use lapsed::engine::PullError;
use lapsed::ledger::LedgerError;

/// An error of the HTTP API.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Names the kind of error: a reference below `/problems/`. Does not change between versions.
    #[serde(rename = "type")]
    kind: String,
    /// The same for every error of this kind.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What was expected, and what was found.
    detail: String,
    /// After which time the request may be repeated; a header, not a member.
    #[serde(skip)]
    retry_after: Option<Duration>,
}

impl Problem {
    /// An error of a kind, with what was expected.
    pub fn of(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/problems/{}", kind.slug()),
            title: kind.title(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            retry_after: kind.retry_after(),
        }
    }

    /// The request is not valid.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::of(ProblemKind::Invalid, detail)
    }

    /// There is no such task.
    pub fn no_task() -> Self {
        Self::of(ProblemKind::NoTask, "no row has this key")
    }

    /// The request has no valid credentials.
    pub fn unauthenticated() -> Self {
        Self::of(
            ProblemKind::Unauthenticated,
            "expected `Authorization: Bearer <token>`",
        )
    }

    /// The caller may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::of(ProblemKind::Forbidden, detail)
    }

    /// True if it is of this kind.
    pub fn is(&self, kind: ProblemKind) -> bool {
        self.kind.strip_prefix("/problems/") == Some(kind.slug())
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("it was a status")
    }

    /// What was expected, and what was found.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Invalid(detail) => Self::invalid(detail),
            LedgerError::Unfit { .. } => Self::invalid(error.to_string()),
            LedgerError::Locked { .. } => Self::of(ProblemKind::Locked, error.to_string()),
            error if error.is_transient() => {
                Self::of(ProblemKind::LedgerUnavailable, error.to_string())
            }
            error => Self::of(ProblemKind::LedgerRefuses, error.to_string()),
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Ledger(error) => error.into(),
            error @ ClientError::Exists { .. } => Self::of(ProblemKind::Exists, error.to_string()),
            error @ ClientError::Timer(_) => {
                Self::of(ProblemKind::RedisUnavailable, error.to_string())
            }
            error => Self::invalid(error.to_string()),
        }
    }
}

impl From<PullError> for Problem {
    fn from(error: PullError) -> Self {
        let kind = match error {
            PullError::Ledger(error) => return error.into(),
            PullError::UnknownQueue(_) => ProblemKind::NoQueue,
            PullError::Fenced(_) | PullError::Forged => ProblemKind::ClaimLost,
            PullError::NotYet => ProblemKind::NotYet,
            PullError::NotRunning => ProblemKind::Stopping,
            PullError::Token
            | PullError::Count { .. }
            | PullError::Worker
            | PullError::Groups
            | PullError::Result
            | PullError::Refused => ProblemKind::Invalid,
        };
        Self::of(kind, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
        let (status, retry_after) = (self.status(), self.retry_after);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(after) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        response
    }
}
