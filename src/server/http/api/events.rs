//! Server-sent events: hints that what a page shows may have changed.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::interval;
use tokio_stream::wrappers::{BroadcastStream, IntervalStream};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::AnyProblem;
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::events::{Events, Hint};
use crate::http::problem::Problem;

/// Interval of comments on a silent stream, so that proxies keep it and a dead client is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Interval of hints for a caller of some classes: what changes is about all classes, so its hints do not depend on it.
const HINT_EVERY: Duration = Duration::from_secs(5);

/// How long a client waits before it connects again.
const RECONNECT_AFTER: Duration = Duration::from_secs(3);

/// Routes of events.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Streams hints, at most two a second; fewer if many clients follow.
///
/// Each event is `changed`; its data is a JSON list of what may have changed: `stats`, `tasks`, `pauses`, `workers`, `audit`.
/// The first event has all of them. The client then asks for what it shows. A client that is limited to some classes gets an
/// event with all of them every five seconds, whether something has changed or not.
#[utoipa::path(
    operation_id = "streamEvents",
    get, path = "/events", tag = "operations",
    responses(
        (status = 200, description = "A stream of events.", body = String, content_type = "text/event-stream"),
        AnyProblem,
    ),
)]
async fn events(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    caller.require(Scope::Read)?;
    let stopping = app.stopping.clone();
    let hints = match caller.is_restricted() {
        false => hints(&app).left_stream(),
        true => regular_hints().right_stream(),
    };
    let hints = hints.take_until(stopping.cancelled_owned());
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(hints).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    // nginx would hold the events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn hints(app: &AppState) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let first = event(&Events::everything()).retry(RECONNECT_AFTER);
    let later = BroadcastStream::new(app.events.subscribe());
    // A client that is too slow has missed some.
    let later = later.map(|hint| event(&hint.unwrap_or_else(|_| Events::everything())));
    stream::once(async { first }).chain(later).map(Ok)
}

fn regular_hints() -> impl Stream<Item = Result<Event, Infallible>> {
    let ticks = IntervalStream::new(interval(HINT_EVERY));
    ticks.map(|_| Ok(event(&Events::everything()).retry(RECONNECT_AFTER)))
}

fn event(hint: &Hint) -> Event {
    Event::default().event("changed").data(&**hint)
}
