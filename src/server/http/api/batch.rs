//! Creation of many tasks in one request. Each line of the answer stands for a task.

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::idempotency::{IdempotencyCheck, IdempotencyKey, Once};
use super::task_view::ReceiptView;
use super::tasks::{checked, create_task};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::events::Topic;
use crate::http::input::{body, require_type};
use crate::http::problem::{Problem, ProblemKind};
use crate::net::audit_log::Change;
use lapsed::client::{CreateResult, Task};
use lapsed::contract::{AtMost, TaskRequest, TaskSpec};
use lapsed::task::{Due, TaskKey, parser_message};

/// Maximum number of tasks of a batch.
const TASKS_MAX: usize = 1_000;

/// Maximum number of bytes of a batch.
const BYTES_MAX: usize = 16 << 20;

const NDJSON: &str = "application/x-ndjson";
const JSON: &str = "application/json";

/// Routes of batches.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(create))
}

/// What became of one task of a batch.
#[derive(Debug, Serialize, ToSchema)]
struct BatchLine {
    /// Its place in the request, from 1.
    line: usize,
    /// 201: committed. 200: it existed already. Otherwise `problem` says why it is not created.
    status: u16,
    /// The task.
    #[serde(flatten)]
    task: Option<ReceiptView>,
    /// Why it is not created.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// Creates up to 1000 tasks.
///
/// The body is a JSON array, or JSON lines. The answer is JSON lines, one for each task, in the order of the request; a task
/// that is refused does not stop the others. If the request fails as a whole, no task is acknowledged, and some may be created.
/// With an `Idempotency-Key`, a repeated request is carried out once, and gets the same answer for a day.
#[utoipa::path(
    operation_id = "createTasks",
    post, path = "/tasks/batch", tag = "tasks",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters, chosen by the client for this batch.")),
    request_body(content((Vec<TaskSpec> = "application/json"), (TaskSpec = "application/x-ndjson"))),
    responses(
        (status = 200, description = "A line for each task.", body = BatchLine, content_type = "application/x-ndjson"),
        (status = "default", description = "The request was refused as a whole.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn create(
    State(app): State<AppState>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    request: Request,
) -> Result<Response, Problem> {
    caller.require(Scope::Schedule)?;
    require_type(request.headers(), &[JSON, NDJSON])?;
    let is_array = require_type(request.headers(), &[JSON]).is_ok();
    let (body, _share) = body(&app, request, BYTES_MAX).await?;
    let (texts, count) = match is_array {
        true => elements(&body)?,
        false => lines(&body),
    };
    if count == 0 || count > TASKS_MAX {
        return Err(Problem::of(
            ProblemKind::Invalid,
            format!("found {count} tasks, expected 1 to {TASKS_MAX}"),
        ));
    }
    let Some(key) = key else {
        let answer = Batch::new(&app, &caller).create(&texts).await?;
        return Ok(lines_of(answer, false));
    };
    let once = match Once::begin(&app, &caller, &key, &body).await? {
        IdempotencyCheck::Before(answer) => return Ok(lines_of(answer, true)),
        IdempotencyCheck::New(once) => once,
    };
    let answer = Batch::new(&app, &caller).create(&texts).await;
    once.finish(&app, answer.as_deref().ok()).await;
    Ok(lines_of(answer?, false))
}

fn lines_of(answer: String, replayed: bool) -> Response {
    let mut response = ([(header::CONTENT_TYPE, NDJSON)], answer).into_response();
    if replayed {
        let headers = response.headers_mut();
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

/// The first elements of an array, and the number of all.
pub(super) fn elements(body: &Bytes) -> Result<(Vec<&[u8]>, usize), Problem> {
    let elements: Result<AtMost<&RawValue, TASKS_MAX>, _> = serde_json::from_slice(body);
    let elements = elements.map_err(|error| {
        let error = parser_message(&error.to_string());
        Problem::invalid(format!("body: expected a JSON array of tasks: {error}"))
    })?;
    let texts = elements.first.into_iter();
    let texts = texts.map(|element| element.get().as_bytes());
    Ok((texts.collect(), elements.count))
}

/// The first lines that are not empty, and the number of all.
pub(super) fn lines(body: &Bytes) -> (Vec<&[u8]>, usize) {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.is_empty());
    let first: Vec<&[u8]> = lines.by_ref().take(TASKS_MAX).collect();
    let count = first.len() + lines.count();
    (first, count)
}

/// The tasks of a batch, and what became of them.
struct Batch<'a> {
    app: &'a AppState,
    caller: &'a Caller,
    answers: Vec<Option<BatchLine>>,
}

impl<'a> Batch<'a> {
    fn new(app: &'a AppState, caller: &'a Caller) -> Self {
        Self {
            app,
            caller,
            answers: Vec::new(),
        }
    }

    /// Creates the tasks, and returns the lines of the answer.
    async fn create(mut self, texts: &[&[u8]]) -> Result<String, Problem> {
        self.answers.resize_with(texts.len(), || None);
        let mut once: Vec<(usize, TaskKey, (Task, Due))> = Vec::new();
        for (place, text) in texts.iter().enumerate() {
            match self.check(text) {
                Ok(TaskRequest::Once(task, due)) => {
                    once.push((place, task.key().clone(), (task, due)));
                }
                Ok(recurring @ TaskRequest::Recurring(..)) => {
                    // Lines take effect in their order.
                    self.write(std::mem::take(&mut once)).await?;
                    match create_task(self.app, recurring).await {
                        Ok(created) => self.accept(place, created.view, created.is_new),
                        Err(problem) => self.refuse(place, problem),
                    }
                }
                Err(problem) => self.refuse(place, problem),
            }
        }
        self.write(once).await?;
        self.finish().await
    }

    fn check(&self, text: &[u8]) -> Result<TaskRequest, Problem> {
        let request = checked(TaskSpec::from_json(text)?, self.app)?;
        self.caller.require_key(request.key())?;
        Ok(request)
    }

    /// Writes tasks that run once.
    async fn write(&mut self, once: Vec<(usize, TaskKey, (Task, Due))>) -> Result<(), Problem> {
        if once.is_empty() {
            return Ok(());
        }
        let asked = self.app.tasks.now().await?;
        let mut places = Vec::with_capacity(once.len());
        let mut tasks = Vec::with_capacity(once.len());
        for (place, key, task) in once {
            places.push((place, key));
            tasks.push(task);
        }
        match self.app.tasks.create_many(tasks).await {
            Ok(receipts) => {
                for ((place, key), receipt) in places.into_iter().zip(&receipts) {
                    if receipt.result() == CreateResult::Refused {
                        self.refuse(place, receipt.exists(key).into());
                        continue;
                    }
                    let is_new =
                        receipt.result() == CreateResult::Written && receipt.since() >= asked;
                    self.accept(place, ReceiptView::new(&key, receipt), is_new);
                }
                Ok(())
            }
            Err(error) => {
                let problem = Problem::from(error);
                for (place, _) in places {
                    self.refuse(place, problem.clone());
                }
                // Nothing is acknowledged yet: the request as a whole failed.
                match self
                    .answers
                    .iter()
                    .flatten()
                    .any(|line| line.task.is_some())
                {
                    true => Ok(()),
                    false => Err(problem),
                }
            }
        }
    }

    fn accept(&mut self, place: usize, view: ReceiptView, is_new: bool) {
        let status = match is_new {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        self.answers[place] = Some(BatchLine {
            line: place + 1,
            status: status.as_u16(),
            task: Some(view),
            problem: None,
        });
    }

    fn refuse(&mut self, place: usize, problem: Problem) {
        self.answers[place] = Some(BatchLine {
            line: place + 1,
            status: problem.status().as_u16(),
            task: None,
            problem: Some(problem),
        });
    }

    async fn finish(self) -> Result<String, Problem> {
        let answers: Vec<BatchLine> = self.answers.into_iter().flatten().collect();
        let created = answers.iter().filter(|line| line.status == 201);
        let created: Vec<&ReceiptView> = created.filter_map(|line| line.task.as_ref()).collect();
        if !created.is_empty() {
            self.app.events.touch(Topic::Tasks);
            let change = Change::of_many("create", "batch", created.len() as u64);
            let change = change.naming(created.iter().map(|task| task.key.clone()));
            self.app.audit(self.caller, change).await;
        }
        let mut text = String::new();
        for line in &answers {
            text += &serde_json::to_string(line).expect("it can be written as JSON");
            text.push('\n');
        }
        Ok(text)
    }
}
