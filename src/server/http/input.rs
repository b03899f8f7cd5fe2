//! Input of requests: parts of the path, the query and JSON bodies. What does not fit is a [`Problem`].

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::app_state::AppState;
use super::problem::{Problem, ProblemKind};
use crate::net::room::{NoRoom, Share};
use lapsed::contract::TaskSpec;
use lapsed::task::{TaskKey, parser_message, quoted};

/// Maximum length of a JSON body, in bytes.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Time for a body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(20);

/// Time for a body to arrive when the daemon stops.
const LAST_BODY_WITHIN: Duration = Duration::from_secs(1);

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

/// `true` or `false`, as a query has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Truth {
    /// `true`
    True,
    /// `false`
    False,
}

/// A JSON body. The header `Content-Type` is required: a page of another site cannot send it without asking.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        let (body, _share) = json_body(app, request).await?;
        let value = serde_json::from_slice(&body);
        value.map(Self).map_err(|error| json_problem(&error))
    }
}

/// A task to create, as a JSON body.
pub struct TaskBody(pub TaskSpec);

impl FromRequest<AppState> for TaskBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        let (body, _share) = json_body(app, request).await?;
        Ok(Self(TaskSpec::from_json(&body)?))
    }
}

async fn json_body(app: &AppState, request: Request) -> Result<(Bytes, Share), Problem> {
    require_type(request.headers(), &["application/json"])?;
    body(app, request, BODY_BYTES_MAX).await
}

/// A JSON body that may be left out.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<AppState> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        if request.headers().contains_key(header::CONTENT_TYPE) {
            let JsonBody(value) = JsonBody::from_request(request, app).await?;
            return Ok(Self(value));
        }
        let (body, _share) = body(app, request, BODY_BYTES_MAX).await?;
        match body.is_empty() {
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
                quoted(essence),
                expected.join("` or `")
            ),
        )),
    }
}

/// Reads a body of at most `bytes_max` bytes. Keep the share while the body is used: it counts what all bodies take.
///
/// # Errors
/// The body is too large, arrives too slowly, other bodies take all room, the daemon stops before it has arrived, or the
/// connection ends.
pub async fn body(
    app: &AppState,
    request: Request,
    bytes_max: usize,
) -> Result<(Bytes, Share), Problem> {
    let mut share = app.room.share();
    let body = body_within(request, &mut share, &app.stopping, bytes_max).await?;
    Ok((body, share))
}

async fn body_within(
    request: Request,
    share: &mut Share,
    stopping: &CancellationToken,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::of(
            ProblemKind::TooLarge,
            format!("expected a body of at most {bytes_max} bytes"),
        )
    };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|bytes| bytes.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(too_large());
    }
    let stopped = async {
        stopping.cancelled().await;
        sleep(LAST_BODY_WITHIN).await;
    };
    let body = tokio::select! {
        biased;
        body = timeout(BODY_WITHIN, arrived(request, share, bytes_max)) => body,
        () = stopped => return Err(Problem::of(
            ProblemKind::Stopping,
            "this daemon is stopping: the body has not arrived, nothing is changed",
        )),
    };
    let body = body.map_err(|_| {
        Problem::of(
            ProblemKind::TimedOut,
            format!("the body did not arrive within {} s", BODY_WITHIN.as_secs()),
        )
    })?;
    body.map_err(|error| match error {
        NotArrived::TooLarge => too_large(),
        NotArrived::Ended => Problem::invalid("the connection ended before the body did"),
        NotArrived::NoRoom(error) => Problem::of(ProblemKind::TooMany, error.to_string()),
    })
}

enum NotArrived {
    TooLarge,
    Ended,
    NoRoom(NoRoom),
}

async fn arrived(
    request: Request,
    share: &mut Share,
    bytes_max: usize,
) -> Result<Bytes, NotArrived> {
    let mut body = Limited::new(request.into_body(), bytes_max);
    let mut arrived = Pieces::default();
    loop {
        let frame = tokio::select! {
            biased;
            () = share.closed() => return Err(NotArrived::NoRoom(NoRoom)),
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else {
            // It is copied when it is joined, and when it is used.
            let held = share.hold(arrived.length * 2).await;
            held.map_err(NotArrived::NoRoom)?;
            return Ok(arrived.join());
        };
        let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
            true => NotArrived::TooLarge,
            false => NotArrived::Ended,
        })?;
        if let Ok(data) = frame.into_data() {
            let held = share.hold(arrived.length + data.len()).await;
            held.map_err(NotArrived::NoRoom)?;
            arrived.append(&data);
        }
    }
}

/// A body that arrives, in pieces of one size: one that grew as a whole would leave its former sizes behind, which the
/// allocator keeps.
#[derive(Default)]
struct Pieces {
    parts: Vec<Vec<u8>>,
    length: usize,
}

/// Bytes of a piece.
const PART_BYTES: usize = 64 << 10;

impl Pieces {
    fn append(&mut self, mut data: &[u8]) {
        self.length += data.len();
        while !data.is_empty() {
            let last = self.parts.last_mut();
            let Some(last) = last.filter(|last| last.len() < PART_BYTES) else {
                // Most bodies are short.
                let capacity = match self.parts.is_empty() {
                    true => data.len().min(PART_BYTES),
                    false => PART_BYTES,
                };
                self.parts.push(Vec::with_capacity(capacity));
                continue;
            };
            let (begin, rest) = data.split_at(data.len().min(PART_BYTES - last.len()));
            last.extend_from_slice(begin);
            data = rest;
        }
    }

    fn join(mut self) -> Bytes {
        if self.parts.len() <= 1 {
            return self.parts.pop().unwrap_or_default().into();
        }
        let mut whole = Vec::with_capacity(self.length);
        for part in self.parts {
            whole.extend_from_slice(&part);
        }
        whole.into()
    }
}

/// The problem of a text that is not the JSON that was expected.
pub fn json_problem(error: &serde_json::Error) -> Problem {
    Problem::invalid(format!("body: {}", parser_message(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use futures_util::{StreamExt as _, stream};
    use tokio::time::Instant;

    use super::*;
    use crate::net::room::Room;

    /// A request whose body has begun and does not end.
    fn endless() -> Request {
        let begun = stream::once(async { Ok::<_, Infallible>("{") });
        Request::new(Body::from_stream(begun.chain(stream::pending())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_given_up() {
        let stopping = CancellationToken::new();
        let mut share = Room::new(1 << 20).share();
        let begun = Instant::now();
        let late = body_within(endless(), &mut share, &stopping, 100).await;
        let late = late.unwrap_err();
        assert_eq!(
            (late.status().as_u16(), begun.elapsed()),
            (504, BODY_WITHIN)
        );
        stopping.cancel();
        let begun = Instant::now();
        let stopped = body_within(endless(), &mut share, &stopping, 100).await;
        let stopped = stopped.unwrap_err();
        assert_eq!(
            (stopped.status().as_u16(), begun.elapsed()),
            (503, LAST_BODY_WITHIN)
        );
        let whole = Request::new(Body::from("{}"));
        let whole = body_within(whole, &mut share, &stopping, 100).await;
        assert_eq!(whole.unwrap(), "{}");
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_do_not_end_give_way_to_others() {
        const PART: usize = 20 << 10;
        let room = Room::new(64 << 10);
        let stopping = CancellationToken::new();
        let mut endless = Vec::new();
        for _ in 0..10 {
            let (mut share, stopping) = (room.share(), stopping.clone());
            let begun = stream::once(async { Ok::<_, Infallible>(vec![b'x'; PART]) });
            let request = Request::new(Body::from_stream(begun.chain(stream::pending())));
            endless.push(tokio::spawn(async move {
                let read = body_within(request, &mut share, &stopping, 1 << 20).await;
                read.unwrap_err().status().as_u16()
            }));
        }
        tokio::task::yield_now().await;
        let mut share = room.share();
        let asked = Instant::now();
        let whole = Request::new(Body::from(vec![b'x'; PART]));
        let whole = body_within(whole, &mut share, &stopping, 1 << 20)
            .await
            .unwrap();
        assert_eq!(whole.len(), PART);
        assert!(asked.elapsed() < BODY_WITHIN / 2, "{:?}", asked.elapsed());
        drop(share);
        let mut refused = 0;
        for reading in endless {
            refused += usize::from(reading.await.unwrap() == 429);
        }
        assert!(refused >= 7, "{refused}");
    }
}
