//! Single tasks: create, put, look at.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::{AnyOther, NoTask};
use super::precondition::Unconditional;
use super::task_changes::changed;
use super::task_view::{ReceiptView, etag};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::input::{InQuery, KeyInPath, TaskBody, Truth};
use crate::http::named::{TaskInPath, TaskRef};
use crate::http::problem::{Problem, ProblemKind};
use lapsed::client::{CreateResult, NotArmed, Receipt, Replaced, Task};
use lapsed::contract::{TaskRequest, TaskSpec, TaskView};
use lapsed::ledger::{IfPending, TaskRecord};
use lapsed::task::{Due, Paused, TaskKey};

/// Routes of single tasks.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, put))
}

/// Creates a task.
///
/// If an unfinished task of this key exists, `if_pending` decides. Repeating the request with the same `at` changes nothing;
/// with `in`, it moves the task.
#[utoipa::path(
    operation_id = "createTask",
    post, path = "/tasks", tag = "tasks", request_body = TaskSpec,
    responses(
        (status = 201, description = "The task is committed to the ledger.", body = ReceiptView),
        (status = 200, description = "The task existed already, or `if_pending` kept another one.", body = ReceiptView),
        (status = 409, description = "`if_pending` is `refuse`, and the task exists.", body = Problem, content_type = "application/problem+json"),
        AnyOther,
    ),
)]
async fn create(
    State(app): State<AppState>,
    caller: Caller,
    TaskBody(spec): TaskBody,
) -> Result<Response, Problem> {
    caller.require(Scope::Schedule)?;
    let request = checked(spec, &app)?;
    caller.require_key(request.key())?;
    let created = create_task(&app, request).await?;
    Ok(created.answer(&app, &caller).await)
}

/// Creates a task, or replaces the one of this key.
///
/// Repeating the request with the same `at` changes nothing. A task with the same due time and another payload is replaced.
/// A task that has run at this due time does not run again.
#[utoipa::path(
    operation_id = "putTask",
    put, path = "/tasks/{key}", tag = "tasks", request_body = TaskSpec,
    params(("key" = String, Path, description = "The task key; `/` in it is written as `%2F`.")),
    responses(
        (status = 201, description = "The task is committed to the ledger.", body = ReceiptView),
        (status = 200, description = "The same task existed already.", body = ReceiptView),
        (status = 409, description = "The task runs at this due time with another payload.", body = Problem, content_type = "application/problem+json"),
        AnyOther,
    ),
)]
async fn put(
    State(app): State<AppState>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
    _: Unconditional,
    TaskBody(spec): TaskBody,
) -> Result<Response, Problem> {
    caller.require(Scope::Schedule)?;
    caller.require_key(&key)?;
    let is_moment = spec.at.is_some();
    let moves = spec.if_pending.unwrap_or_default() == IfPending::Move;
    let created = match checked(of_key(spec, &key)?, &app)? {
        // A delay is another due time each time, so there is nothing to compare.
        TaskRequest::Once(task, due) if is_moment && moves => replace(&app, task, due).await?,
        request => create_task(&app, request).await?,
    };
    Ok(created.answer(&app, &caller).await)
}

/// The task with the key in the path, which the body may repeat.
fn of_key(spec: TaskSpec, path: &TaskKey) -> Result<TaskSpec, Problem> {
    if spec.unique {
        return Err(Problem::invalid(
            "`unique` makes a new key each time, which does not go with `PUT`: use `POST /v1/tasks`",
        ));
    }
    match spec.named_key()? {
        Some(named) if named != *path => Err(Problem::invalid(format!(
            "the body names `{named}`, the path `{path}`: expected the same key, or none in the body"
        ))),
        Some(_) => Ok(spec),
        None => Ok(TaskSpec {
            key: Some(path.to_string()),
            ..spec
        }),
    }
}

/// Parses a task and checks it: only the ledger can refuse it then.
///
/// # Errors
/// The first member that does not fit.
pub fn checked(spec: TaskSpec, app: &AppState) -> Result<TaskRequest, Problem> {
    let request = spec.resolve(app.tasks.clock_now())?;
    request.check(&app.tasks)?;
    Ok(request)
}

/// The query of a single task.
#[derive(Deserialize)]
struct ShowQuery {
    #[serde(default)]
    archived: Option<Truth>,
}

/// Returns a task.
#[utoipa::path(
    operation_id = "getTask",
    get, path = "/tasks/{key}", tag = "tasks",
    params(
        TaskInPath,
        ("archived" = Option<bool>, Query, description = "True for a task that retention has moved to the archive: of a key, the latest."),
    ),
    responses(
        (status = 200, description = "The task.", body = TaskView),
        NoTask,
        AnyOther,
    ),
)]
async fn show(
    State(app): State<AppState>,
    caller: Caller,
    task: TaskInPath,
    InQuery(query): InQuery<ShowQuery>,
) -> Result<Response, Problem> {
    if query.archived == Some(Truth::True) {
        let found = task.archived(&app, &caller).await?;
        return Ok(shown(
            &found.ok_or_else(Problem::no_task)?,
            &Paused::default(),
            &caller,
        ));
    }
    let TaskRef { key, display_key } = task.resolve(&app, &caller, Scope::Read).await?;
    let (found, paused) = tokio::try_join!(
        async { app.tasks.find(key).await.map_err(Problem::from) },
        app.paused()
    )?;
    let mut task = found.ok_or_else(Problem::no_task)?;
    task.mask(&caller.masks);
    task.key = display_key;
    Ok(shown(&task, &paused, &caller))
}

/// The answer that shows a task, from which has been taken what is masked.
fn shown(task: &TaskRecord, paused: &Paused, caller: &Caller) -> Response {
    let view = TaskView {
        masked: Some(caller.masks.hides_payload(&task.key)),
        ..TaskView::single(task, paused)
    };
    ([(header::ETAG, etag(&task.id))], Json(view)).into_response()
}

/// A task that was created, or existed.
pub struct CreatedTask {
    key: TaskKey,
    /// Whether this request has written it.
    pub is_new: bool,
    /// The answer.
    pub view: ReceiptView,
}

impl CreatedTask {
    fn new(key: TaskKey, receipt: &Receipt, is_new: bool) -> Self {
        Self {
            view: ReceiptView::new(&key, receipt),
            key,
            is_new,
        }
    }

    async fn answer(self, app: &AppState, caller: &Caller) -> Response {
        if self.is_new {
            changed(app, caller, "create", &self.key);
        }
        let status = match self.is_new {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        let headers = [
            (header::ETAG, etag(&self.view.id)),
            (header::LOCATION, app.url_of(&self.key)),
        ];
        (status, headers, Json(self.view)).into_response()
    }
}

/// Creates what a request asks for.
///
/// # Errors
/// The task exists and is not to be changed, or the ledger fails.
pub async fn create_task(app: &AppState, request: TaskRequest) -> Result<CreatedTask, Problem> {
    let key = request.key().clone();
    let asked = app.tasks.now().await?;
    let receipt = request.create(&app.tasks).await?;
    let is_new = receipt.result() == CreateResult::Written
        && receipt.since() >= asked
        && receipt.not_armed() != Some(NotArmed::LeftAsItIs);
    Ok(CreatedTask::new(key, &receipt, is_new))
}

async fn replace(app: &AppState, task: Task, due: Due) -> Result<CreatedTask, Problem> {
    let key = task.key().clone();
    match app.tasks.replace(task, due).await? {
        Replaced::Written(receipt) => Ok(CreatedTask::new(key, &receipt, true)),
        Replaced::Same(receipt) => Ok(CreatedTask::new(key, &receipt, false)),
        Replaced::Running => Err(Problem::of(
            ProblemKind::Running,
            format!(
                "`{key}` runs at this due time with another payload, tag or limit, and is unchanged"
            ),
        )),
    }
}
