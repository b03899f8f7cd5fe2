//! Changes go on when their client leaves: they are committed and recorded, or not made at all.

use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use crate::http::problem::{Problem, ProblemKind};

/// Longest time until the answer of a request begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Answers in time. A change runs in a task of its own.
pub async fn answer(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let answering = async move {
        if reads {
            return next.run(request).await;
        }
        let changing = tokio::spawn(async move { next.run(request).await });
        changing.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request of HTTP has failed");
            Problem::of(ProblemKind::Internal, "this is a fault of lapsed").into_response()
        })
    };
    timeout(ANSWER_WITHIN, answering).await.unwrap_or_else(|_| {
        let detail = format!("there was no answer within {} s", ANSWER_WITHIN.as_secs());
        Problem::of(ProblemKind::TimedOut, detail).into_response()
    })
}
