//! Changes of single tasks: move, cancel, run, redrive, discard.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::{AnyOther, NoTask, NotDead, NotPending, OtherArming};
use super::precondition::{IfMatch, Unconditional, changed_meanwhile};
use super::task_view::etag;
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::events::Topic;
use crate::http::input::JsonBody;
use crate::http::named::{TaskInPath, TaskRef};
use crate::http::problem::{Problem, ProblemKind};
use lapsed::client::IfSame;
use lapsed::contract::{due, duration_text};
use lapsed::ledger::{CancelAnswer, RescheduleAnswer, RunNowAnswer};
use lapsed::task::{Arming, State as TaskState, TaskKey};

/// Routes of changes of single tasks.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(reschedule, cancel))
        .routes(routes!(run))
        .routes(routes!(redrive))
        .routes(routes!(discard))
}

/// A new due time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewDue {
    /// As a delay: `30m`. Either this or `at`.
    #[serde(default, deserialize_with = "duration_text")]
    #[schema(example = "30m")]
    r#in: Option<String>,
    /// RFC 3339.
    at: Option<String>,
}

/// Moves a pending task to another due time.
#[utoipa::path(
    operation_id = "moveTask",
    patch, path = "/tasks/{key}", tag = "tasks", request_body = NewDue,
    params(
        TaskInPath,
        ("If-Match" = Option<String>, Header, description = "The `ETag` of the task: another arming is not moved."),
    ),
    responses(
        (status = 200, description = "The task is moved.", body = MovedView),
        NoTask,
        NotPending,
        OtherArming,
        AnyOther,
    ),
)]
async fn reschedule(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
    IfMatch(arming): IfMatch,
    JsonBody(new): JsonBody<NewDue>,
) -> Result<Response, Problem> {
    let TaskRef { key, display_key } = task.resolve(&app, &caller, Scope::Schedule).await?;
    let due = due(new.r#in.as_deref(), new.at.as_deref())?;
    let due = due.ok_or_else(|| Problem::invalid("expected `in` or `at`"))?;
    let answer = match arming {
        None => app.tasks.reschedule(&key, due).await?,
        Some(arming) => match app.tasks.reschedule_if(&key, due, arming).await? {
            IfSame::Same(answer) => answer,
            IfSame::Other => return Err(changed_meanwhile()),
        },
    };
    match answer {
        RescheduleAnswer::Moved(arming) => {
            changed(&app, &caller, "move", &key);
            Ok(MovedView::new(&display_key, arming).into_response())
        }
        RescheduleAnswer::Running => Err(not_pending(&display_key, TaskState::Running)),
        RescheduleAnswer::Finished(state) => Err(not_pending(&display_key, state)),
        RescheduleAnswer::Unknown => Err(Problem::no_task()),
    }
}

/// What a cancellation did.
#[derive(Debug, Serialize, ToSchema)]
struct Cancelled {
    key: String,
    /// `cancelled`: it does not start. `running`: it runs, and no further attempt starts.
    #[schema(example = "cancelled")]
    outcome: &'static str,
}

/// Cancels a task.
///
/// A run that has begun is not stopped, but the task is not tried again. Repeating the request gives the same answer.
#[utoipa::path(
    operation_id = "cancelTask",
    delete, path = "/tasks/{key}", tag = "tasks",
    params(
        TaskInPath,
        ("If-Match" = Option<String>, Header, description = "The `ETag` of the task: another arming is not cancelled."),
    ),
    responses(
        (status = 200, description = "The task is cancelled.", body = Cancelled),
        NoTask,
        (status = 409, description = "The task is done or dead.", body = Problem, content_type = "application/problem+json"),
        OtherArming,
        AnyOther,
    ),
)]
async fn cancel(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
    IfMatch(arming): IfMatch,
) -> Result<Json<Cancelled>, Problem> {
    let TaskRef { key, display_key } = task.resolve(&app, &caller, Scope::Schedule).await?;
    let answer = match arming {
        None => app.tasks.cancel(&key).await?,
        Some(arming) => {
            let answers = app.tasks.cancel_if(&[(key.clone(), arming)]).await?;
            match answers.into_iter().next() {
                Some(IfSame::Same(answer)) => answer,
                Some(IfSame::Other) | None => return Err(changed_meanwhile()),
            }
        }
    };
    let outcome = match answer {
        CancelAnswer::Cancelled => "cancelled",
        CancelAnswer::Running => "running",
        CancelAnswer::Finished(TaskState::Cancelled) => "cancelled",
        CancelAnswer::Finished(state) => return Err(not_pending(&display_key, state)),
        CancelAnswer::Unknown => return Err(Problem::no_task()),
    };
    changed(&app, &caller, "cancel", &key);
    Ok(Json(Cancelled {
        key: display_key.to_string(),
        outcome,
    }))
}

/// Makes a pending task due now.
#[utoipa::path(
    operation_id = "runTask",
    post, path = "/tasks/{key}/run", tag = "tasks",
    params(TaskInPath),
    responses(
        (status = 200, description = "The task is due.", body = MovedView),
        NoTask,
        NotPending,
        AnyOther,
    ),
)]
async fn run(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
    _: Unconditional,
) -> Result<Response, Problem> {
    let task = task.resolve(&app, &caller, Scope::Operate).await?;
    let answer = app.tasks.run_now(&task.key).await?;
    made_due(&app, &caller, "run", &task, answer, not_pending).await
}

/// Makes a dead task pending, and due at once.
///
/// It keeps its id and its history. Its counters begin again.
#[utoipa::path(
    operation_id = "redriveTask",
    post, path = "/tasks/{key}/redrive", tag = "tasks",
    params(TaskInPath),
    responses(
        (status = 200, description = "The task is pending.", body = MovedView),
        NoTask,
        NotDead,
        AnyOther,
    ),
)]
async fn redrive(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
    _: Unconditional,
) -> Result<Response, Problem> {
    let task = task.resolve(&app, &caller, Scope::Operate).await?;
    let answer = app.tasks.redrive(&task.key).await?;
    made_due(&app, &caller, "redrive", &task, answer, not_dead).await
}

/// Answers a request to make a task due at once.
///
/// # Errors
/// There is no such task, or it is in another state than expected: the problem that `refusal` makes.
async fn made_due(
    app: &AppState,
    caller: &Caller,
    verb: &'static str,
    task: &TaskRef,
    answer: RunNowAnswer,
    refusal: fn(&TaskKey, TaskState) -> Problem,
) -> Result<Response, Problem> {
    let TaskRef { key, display_key } = task;
    match answer {
        RunNowAnswer::Due(arming) => {
            changed(app, caller, verb, key);
            Ok(MovedView::new(display_key, arming).into_response())
        }
        RunNowAnswer::Refused(state) => Err(refusal(display_key, state)),
        RunNowAnswer::Unknown => Err(Problem::no_task()),
    }
}

/// Deletes a dead task.
#[utoipa::path(
    operation_id = "discardTask",
    post, path = "/tasks/{key}/discard", tag = "tasks",
    params(TaskInPath),
    responses(
        (status = 204, description = "The task is deleted."),
        NoTask,
        NotDead,
        AnyOther,
    ),
)]
async fn discard(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
    _: Unconditional,
) -> Result<StatusCode, Problem> {
    let TaskRef { key, display_key } = task.resolve(&app, &caller, Scope::Operate).await?;
    if app.tasks.discard(&key).await? {
        changed(&app, &caller, "discard", &key);
        return Ok(StatusCode::NO_CONTENT);
    }
    match app.tasks.find(&key).await? {
        None => Err(Problem::no_task()),
        Some(task) if task.state == TaskState::Dead => Err(Problem::of(
            ProblemKind::Locked,
            format!("another session has locked `{display_key}`"),
        )),
        Some(task) => Err(not_dead(&display_key, task.state)),
    }
}

/// A task that is due at another time now.
#[derive(Debug, Serialize, ToSchema)]
struct MovedView {
    #[schema(example = "Order@close@42")]
    key: String,
    /// `<row id>-<due ms>`: names this arming. It is the value of the header `ETag`.
    id: String,
    /// The due time, RFC 3339.
    due: String,
}

impl MovedView {
    fn new(key: &TaskKey, arming: Arming) -> Self {
        Self {
            key: key.to_string(),
            id: arming.to_string(),
            due: arming.due.to_string(),
        }
    }
}

impl IntoResponse for MovedView {
    fn into_response(self) -> Response {
        ([(header::ETAG, etag(&self.id))], Json(self)).into_response()
    }
}

/// Records a change that is committed.
pub fn changed(app: &AppState, caller: &Caller, verb: &'static str, key: &TaskKey) {
    app.events.touch(Topic::Tasks);
    app.audit_task(caller, verb, key);
}

fn not_pending(key: &TaskKey, state: TaskState) -> Problem {
    let kind = match state {
        TaskState::Running => ProblemKind::Running,
        _ => ProblemKind::Finished,
    };
    Problem::of(kind, format!("`{key}` is {state}"))
}

fn not_dead(key: &TaskKey, state: TaskState) -> Problem {
    Problem::of(
        ProblemKind::NotDead,
        format!("`{key}` is {state}, expected a dead task"),
    )
}
