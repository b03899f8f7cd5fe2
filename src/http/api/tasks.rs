//! Single tasks: create, look at, move, cancel, run, redrive, discard.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::new_task::{NewTask, Wanted, due};
use super::precondition::{IfMatch, changed_meanwhile};
use super::task_view::{ReceiptView, TaskView};
use crate::client::{IfSame, NotArmed, Receipt, Replaced, Stands, Task};
use crate::http::access::{Caller, Scope};
use crate::http::audit::Change;
use crate::http::events::Topic;
use crate::http::input::{JsonBody, KeyInPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::site::Site;
use crate::ledger::{CancelAnswer, IfPending, RescheduleAnswer, RunNowAnswer};
use crate::task::{Arming, Due, State as TaskState, TaskKey};

/// Routes of single tasks.
pub fn routes() -> OpenApiRouter<Site> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, put, reschedule, cancel))
        .routes(routes!(run))
        .routes(routes!(redrive))
        .routes(routes!(discard))
}

/// Creates a task.
///
/// If an unfinished task of this key exists, `if_pending` decides. Repeating the request with the same `at` changes nothing;
/// with `in`, it moves the task.
#[utoipa::path(
    operation_id = "createTask",
    post, path = "/tasks", tag = "tasks", request_body = NewTask,
    responses(
        (status = 201, description = "The task is committed to the ledger.", body = ReceiptView),
        (status = 200, description = "The task existed already, or `if_pending` kept another one.", body = ReceiptView),
        (status = 409, description = "`if_pending` is `refuse`, and the task exists.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn create(
    State(site): State<Site>,
    caller: Caller,
    JsonBody(new): JsonBody<NewTask>,
) -> Result<Response, Problem> {
    caller.require(Scope::Schedule)?;
    let wanted = new.check(None, &site.tasks)?;
    caller.require_key(wanted.key())?;
    let created = create_wanted(&site, wanted).await?;
    Ok(created.answer(&site, &caller).await)
}

/// Creates a task, or replaces the one of this key.
///
/// Repeating the request with the same `at` changes nothing. A task with the same due time and another payload is replaced.
/// A task that has run at this due time does not run again.
#[utoipa::path(
    operation_id = "putTask",
    put, path = "/tasks/{key}", tag = "tasks", request_body = NewTask,
    params(("key" = String, Path, description = "The task key; `/` in it is written as `%2F`.")),
    responses(
        (status = 201, description = "The task is committed to the ledger.", body = ReceiptView),
        (status = 200, description = "The same task existed already.", body = ReceiptView),
        (status = 409, description = "The task runs at this due time with another payload.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn put(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
    JsonBody(new): JsonBody<NewTask>,
) -> Result<Response, Problem> {
    caller.require(Scope::Schedule)?;
    caller.require_key(&key)?;
    let is_moment = new.at.is_some();
    let moves = new.if_pending.map(IfPending::from).unwrap_or_default() == IfPending::Move;
    let wanted = new.check(Some(key), &site.tasks)?;
    let created = match wanted {
        // A delay is another due time each time, so there is nothing to compare.
        Wanted::Once(task, due) if is_moment && moves => replace(&site, task, due).await?,
        wanted => create_wanted(&site, wanted).await?,
    };
    Ok(created.answer(&site, &caller).await)
}

/// Returns a task.
#[utoipa::path(
    operation_id = "getTask",
    get, path = "/tasks/{key}", tag = "tasks",
    params(("key" = String, Path, description = "The task key; `/` in it is written as `%2F`.")),
    responses(
        (status = 200, description = "The task.", body = TaskView),
        (status = 404, description = "There is no such task.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn show(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
) -> Result<Response, Problem> {
    caller.require(Scope::Read)?;
    caller.require_key(&key)?;
    let (found, paused) = tokio::try_join!(
        async { site.tasks.find(key).await.map_err(Problem::from) },
        site.paused()
    )?;
    let mut task = found.ok_or_else(Problem::no_task)?;
    site.masks.apply(&mut task);
    let mut view = TaskView::new(&task, &paused);
    view.masked = site.masks.hides_payload(&task.key);
    let etag = etag(&view.summary.id);
    Ok(([(header::ETAG, etag)], Json(view)).into_response())
}

/// A new due time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewDue {
    /// As a delay: `30m`. Either this or `at`.
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
        ("key" = String, Path, description = "The task key; `/` in it is written as `%2F`."),
        ("If-Match" = Option<String>, Header, description = "The `ETag` of the task: another arming is not moved."),
    ),
    responses(
        (status = 200, description = "The task is moved.", body = MovedView),
        (status = 404, description = "There is no such task.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task is running, or has finished.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The task has another arming than `If-Match` names.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn reschedule(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
    IfMatch(arming): IfMatch,
    JsonBody(new): JsonBody<NewDue>,
) -> Result<Response, Problem> {
    caller.require(Scope::Schedule)?;
    caller.require_key(&key)?;
    let due = due(new.r#in.as_deref(), new.at.as_deref())?;
    let due = due.ok_or_else(|| Problem::invalid("expected `in` or `at`"))?;
    let answer = match arming {
        None => site.tasks.reschedule(&key, due).await?,
        Some(arming) => match site.tasks.reschedule_if(&key, due, arming).await? {
            IfSame::Same(answer) => answer,
            IfSame::Other => return Err(changed_meanwhile()),
        },
    };
    match answer {
        RescheduleAnswer::Moved(arming) => {
            changed(&site, &caller, "move", &key).await;
            Ok(MovedView::new(&key, arming).into_response())
        }
        RescheduleAnswer::Running => Err(running(&key)),
        RescheduleAnswer::Finished(state) => Err(finished(&key, state)),
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
        ("key" = String, Path, description = "The task key; `/` in it is written as `%2F`."),
        ("If-Match" = Option<String>, Header, description = "The `ETag` of the task: another arming is not cancelled."),
    ),
    responses(
        (status = 200, description = "The task is cancelled.", body = Cancelled),
        (status = 404, description = "There is no such task.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task is done or dead.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The task has another arming than `If-Match` names.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn cancel(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
    IfMatch(arming): IfMatch,
) -> Result<Json<Cancelled>, Problem> {
    caller.require(Scope::Schedule)?;
    caller.require_key(&key)?;
    let answer = match arming {
        None => site.tasks.cancel(&key).await?,
        Some(arming) => {
            let answers = site.tasks.cancel_if(&[(key.clone(), arming)]).await?;
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
        CancelAnswer::Finished(state) => return Err(finished(&key, state)),
        CancelAnswer::Unknown => return Err(Problem::no_task()),
    };
    changed(&site, &caller, "cancel", &key).await;
    Ok(Json(Cancelled {
        key: key.to_string(),
        outcome,
    }))
}

/// Makes a pending task due now.
#[utoipa::path(
    operation_id = "runTask",
    post, path = "/tasks/{key}/run", tag = "tasks",
    params(("key" = String, Path, description = "The task key; `/` in it is written as `%2F`.")),
    responses(
        (status = 200, description = "The task is due.", body = MovedView),
        (status = 404, description = "There is no such task.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task is running, or has finished.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn run(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    caller.require_key(&key)?;
    match site.tasks.run_now(&key).await? {
        RunNowAnswer::Due(arming) => {
            changed(&site, &caller, "run", &key).await;
            Ok(MovedView::new(&key, arming).into_response())
        }
        RunNowAnswer::Refused(TaskState::Running) => Err(running(&key)),
        RunNowAnswer::Refused(state) => Err(finished(&key, state)),
        RunNowAnswer::Unknown => Err(Problem::no_task()),
    }
}

/// Makes a dead task pending, and due at once.
///
/// It keeps its id and its history. Its counters begin again.
#[utoipa::path(
    operation_id = "redriveTask",
    post, path = "/tasks/{key}/redrive", tag = "tasks",
    params(("key" = String, Path, description = "The task key; `/` in it is written as `%2F`.")),
    responses(
        (status = 200, description = "The task is pending.", body = MovedView),
        (status = 404, description = "There is no such task.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task is not dead.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn redrive(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    caller.require_key(&key)?;
    match site.tasks.redrive(&key).await? {
        RunNowAnswer::Due(arming) => {
            changed(&site, &caller, "redrive", &key).await;
            Ok(MovedView::new(&key, arming).into_response())
        }
        RunNowAnswer::Refused(state) => Err(not_dead(&key, state)),
        RunNowAnswer::Unknown => Err(Problem::no_task()),
    }
}

/// Deletes a dead task.
#[utoipa::path(
    operation_id = "discardTask",
    post, path = "/tasks/{key}/discard", tag = "tasks",
    params(("key" = String, Path, description = "The task key; `/` in it is written as `%2F`.")),
    responses(
        (status = 204, description = "The task is deleted."),
        (status = 404, description = "There is no such task.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task is not dead.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn discard(
    State(site): State<Site>,
    caller: Caller,
    KeyInPath(key): KeyInPath,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::Operate)?;
    caller.require_key(&key)?;
    if site.tasks.discard(&key).await? {
        changed(&site, &caller, "discard", &key).await;
        return Ok(StatusCode::NO_CONTENT);
    }
    match site.tasks.find(&key).await? {
        None => Err(Problem::no_task()),
        Some(task) if task.state == TaskState::Dead => Err(Problem::of(
            ProblemKind::Locked,
            format!("another session has locked `{key}`"),
        )),
        Some(task) => Err(not_dead(&key, task.state)),
    }
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

    async fn answer(self, site: &Site, caller: &Caller) -> Response {
        if self.is_new {
            changed(site, caller, "create", &self.key).await;
        }
        let status = match self.is_new {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        let headers = [
            (header::ETAG, etag(&self.view.id)),
            (header::LOCATION, site.url_of(&self.key)),
        ];
        (status, headers, Json(self.view)).into_response()
    }
}

/// Creates what a request asks for.
///
/// # Errors
/// The task exists and is not to be changed, or the ledger fails.
pub async fn create_wanted(site: &Site, wanted: Wanted) -> Result<CreatedTask, Problem> {
    let key = wanted.key().clone();
    let asked = site.tasks.now().await?;
    let receipt = match wanted {
        Wanted::Once(task, due) => site.tasks.create(task, due).await?,
        Wanted::Series(task, recurrence) => site.tasks.create_recurring(task, recurrence).await?,
    };
    let is_new = receipt.stands() == Stands::Asked
        && receipt.since() >= asked
        && receipt.not_armed() != Some(NotArmed::LeftAsItIs);
    Ok(CreatedTask::new(key, &receipt, is_new))
}

async fn replace(site: &Site, task: Task, due: Due) -> Result<CreatedTask, Problem> {
    let key = task.key().clone();
    match site.tasks.replace(task, due).await? {
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
async fn changed(site: &Site, caller: &Caller, verb: &'static str, key: &TaskKey) {
    site.events.touch(Topic::Tasks);
    site.audit(caller, Change::of_task(verb, key)).await;
}

fn etag(id: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{id}\"")).expect("an id has digits and a minus only")
}

fn running(key: &TaskKey) -> Problem {
    Problem::of(ProblemKind::Running, format!("`{key}` is running"))
}

fn finished(key: &TaskKey, state: TaskState) -> Problem {
    Problem::of(ProblemKind::Finished, format!("`{key}` is {state}"))
}

fn not_dead(key: &TaskKey, state: TaskState) -> Problem {
    Problem::of(
        ProblemKind::NotDead,
        format!("`{key}` is {state}, expected a dead task"),
    )
}
