//! Changes go on when their client leaves: they are committed and recorded, or not made at all.

use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use crate::http::problem::{Problem, ProblemKind};
use lapsed::task::Traceparent;
use lapsed::trace;

/// Longest time until the answer of a request begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Answers in time. A change runs in a task of its own.
pub async fn answer(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let trace = caller_trace(&request);
    let answering = async move {
        if reads {
            return next.run(request).await;
        }
        let changing = tokio::spawn(trace::within(trace, next.run(request)));
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

/// The trace of the request, if it names one: tasks that it creates belong to it. An invalid one is ignored, as W3C Trace
/// Context has it.
fn caller_trace(request: &Request) -> Option<Traceparent> {
    let header = request.headers().get(Traceparent::HEADER)?;
    header.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::any;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use tokio::sync::Semaphore;

    use super::*;

    /// A server whose requests begin, wait, and end.
    struct Slow {
        begun: Semaphore,
        may_end: Semaphore,
        ended: Semaphore,
    }

    async fn begun(method: Method, slow: &Arc<Slow>) -> tokio::task::JoinHandle<()> {
        let server = Arc::clone(slow);
        let handler = move || async move {
            server.begun.add_permits(1);
            let _ = server.may_end.acquire().await;
            server.ended.add_permits(1);
        };
        let router = Router::new()
            .route("/", any(handler))
            .layer(from_fn(answer));
        let request = axum::http::Request::builder().method(method).uri("/");
        let request = request.body(Body::empty()).unwrap();
        let asking = tokio::spawn(async move {
            let _ = TowerToHyperService::new(router).call(request).await;
        });
        slow.begun.acquire().await.unwrap().forget();
        asking
    }

    fn slow() -> Arc<Slow> {
        Arc::new(Slow {
            begun: Semaphore::new(0),
            may_end: Semaphore::new(0),
            ended: Semaphore::new(0),
        })
    }

    #[tokio::test]
    async fn a_change_goes_on_when_its_client_leaves_and_a_look_does_not() {
        for (method, goes_on) in [(Method::PUT, true), (Method::GET, false)] {
            let slow = slow();
            let asking = begun(method, &slow).await;
            asking.abort();
            let _ = asking.await;
            slow.may_end.add_permits(1);
            match goes_on {
                true => drop(slow.ended.acquire().await.unwrap()),
                false => {
                    tokio::task::yield_now().await;
                    assert_eq!(slow.ended.available_permits(), 0);
                }
            }
        }
    }
}
