//! Pull queues: workers take tasks.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::AnyOther;
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::input::{InPath, OptionalJson};
use crate::http::problem::Problem;
use lapsed::contract::duration_text;
use lapsed::engine::{Leased, TakenTasks};
use lapsed::task::{TaskJson, parse_length};

/// Longest wait of a take. Proxies end a silent request after a minute or so.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Routes of pull queues.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(take))
}

/// What a worker asks for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Take {
    /// Maximum number of tasks: 1 (the default) to 512.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 512)]
    count: Option<usize>,
    /// How long to wait for a task, at most `50s`. Without it, the answer comes at once.
    #[schema(example = "20s")]
    #[serde(default, deserialize_with = "duration_text")]
    wait: Option<String>,
    /// Name of the worker, shown to operators.
    worker: Option<String>,
}

/// Tasks for a worker.
#[derive(Debug, Serialize, ToSchema)]
struct Taken<'a> {
    /// Empty if none was due.
    tasks: Vec<TakenTask<'a>>,
}

/// A task for a worker.
#[derive(Debug, Serialize, ToSchema)]
struct TakenTask<'a> {
    /// Settles the task: `POST /v1/claims/{claim}/done`. It is secret: who has it can settle the task.
    claim: String,
    /// How long the claim is valid, unless it is renewed.
    visibility_ms: u64,
    #[serde(flatten)]
    task: TaskJson<'a>,
}

impl<'a> TakenTask<'a> {
    fn new(leased: &'a Leased) -> Self {
        let Leased { claim, task } = leased;
        Self {
            claim: claim.to_string(),
            visibility_ms: u64::try_from(claim.visibility().as_millis()).unwrap_or(u64::MAX),
            task: task.json(),
        }
    }
}

/// Takes tasks of a pull queue that are due.
///
/// Each task is leased to the worker for the visibility of its route. If the worker does not settle or renew it by then, it is
/// given out again. Tasks whose answer cannot be sent are given back at once.
#[utoipa::path(
    operation_id = "takeTasks",
    post, path = "/queues/{queue}/take", tag = "workers", request_body = Option<Take>,
    params(("queue" = String, Path, description = "The name in `pull = { queue = \"..\" }` of a route.")),
    responses(
        (status = 200, description = "The tasks.", body = Taken),
        (status = 404, description = "No route of this daemon has this queue.", body = Problem, content_type = "application/problem+json"),
        AnyOther,
    ),
)]
async fn take(
    State(app): State<AppState>,
    caller: Caller,
    InPath(queue): InPath,
    OptionalJson(asked): OptionalJson<Take>,
) -> Result<Response, Problem> {
    caller.require(Scope::Work)?;
    let wait = asked.wait.as_deref().map(parse_length).transpose();
    let wait = wait.map_err(|error| Problem::invalid(format!("`wait`: {error}")))?;
    if wait.is_some_and(|wait| wait > WAIT_MAX) {
        return Err(Problem::invalid(format!(
            "`wait` is too long, expected at most `{}s`",
            WAIT_MAX.as_secs()
        )));
    }
    let worker = asked.worker.unwrap_or_default();
    let queues = app.engine.pull();
    let count = asked.count.unwrap_or(1);
    let taken = queues.take_of(&caller.classes, &queue, count, wait, &worker);
    let taken = tokio::select! {
        taken = taken => taken?,
        // The worker asks another daemon.
        () = app.stopping.cancelled() => return Ok(axum::Json(Taken { tasks: Vec::new() }).into_response()),
    };
    let answer = Taken {
        tasks: taken.tasks().iter().map(TakenTask::new).collect(),
    };
    let text = serde_json::to_vec(&answer).expect("texts and numbers can be written as JSON");
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((
        headers,
        Body::from_stream(kept_when_sent(text.into(), taken)),
    )
        .into_response())
}

/// The text of an answer with tasks. They are given back if the connection ends before the text is sent.
fn kept_when_sent(text: Bytes, taken: TakenTasks) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((Some(text), taken)), |sending| async {
        match sending? {
            (Some(text), taken) => Some((Ok(text), Some((None, taken)))),
            (None, taken) => {
                // The server sends what it has before it asks again.
                tokio::task::yield_now().await;
                taken.keep();
                None
            }
        }
    })
}
