//! Pauses and holds.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::AnyProblem;
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::events::Topic;
use crate::http::input::{InQuery, JsonBody};
use crate::http::problem::{Problem, ProblemKind};
use crate::net::audit_log::Change;
use lapsed::ledger::{REASON_CHARS_MAX, ReleaseAnswer};
use lapsed::task::{Due, Pause, Scope as TaskScope};

/// Routes of pauses.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, pause, resume))
}

/// A pause, the hold, or a release from the hold.
#[derive(Debug, Serialize, ToSchema)]
pub struct PauseView {
    /// `pause`: its tasks do not start. `hold`: tasks due before `due_before` do not start. `release`: its tasks are exempt
    /// from the hold.
    #[schema(example = "pause")]
    pub kind: &'static str,
    /// The class; `null` for everything.
    pub class: Option<String>,
    /// The method; `null` for the whole class.
    pub method: Option<String>,
    /// Since when, RFC 3339.
    pub since: String,
    /// For a hold: tasks with an earlier due time are held.
    pub due_before: Option<String>,
    /// For a pause: when it ends by itself, RFC 3339; `null`: when it is resumed.
    pub until: Option<String>,
    /// Who set it.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl From<&Pause> for PauseView {
    fn from(pause: &Pause) -> Self {
        let Pause {
            kind,
            scope,
            since,
            due_before,
            until,
            by,
            reason,
        } = pause;
        Self {
            kind: kind.as_str(),
            class: scope.class_name().map(str::to_owned),
            method: scope.method_name().map(str::to_owned),
            since: since.to_string(),
            due_before: due_before.map(|due| due.to_string()),
            until: until.map(|until| until.to_string()),
            by: by.clone(),
            reason: reason.clone(),
        }
    }
}

/// All pauses.
#[derive(Debug, Serialize, ToSchema)]
struct PauseList {
    /// Oldest first.
    pauses: Vec<PauseView>,
}

/// Lists pauses, the hold, and releases from it.
#[utoipa::path(
    operation_id = "listPauses",
    get, path = "/pauses", tag = "operations",
    responses(
        (status = 200, description = "All pauses.", body = PauseList),
        AnyProblem,
    ),
)]
async fn list(State(app): State<AppState>, caller: Caller) -> Result<Json<PauseList>, Problem> {
    caller.require(Scope::Read)?;
    let pauses = app.tasks.pauses().await?;
    Ok(Json(PauseList {
        pauses: seen(&caller, &pauses),
    }))
}

/// The pauses that a caller may see.
pub fn seen(caller: &Caller, pauses: &[Pause]) -> Vec<PauseView> {
    let seen = pauses
        .iter()
        .filter_map(|pause| caller.visible_pause(pause));
    seen.map(|pause| PauseView::from(&pause)).collect()
}

/// What to pause.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPause {
    /// A class. Its tasks do not start until it is resumed; current runs continue.
    class: Option<String>,
    /// A method of the class.
    method: Option<String>,
    /// Everything, instead of a class.
    #[serde(default)]
    everything: bool,
    /// It ends by itself after this time, such as `2h`.
    r#for: Option<String>,
    /// It ends by itself then, RFC 3339; instead of `for`.
    until: Option<String>,
    /// Shown to other operators; at most 255 characters.
    #[serde(default)]
    reason: String,
}

/// Pauses a class, a method or everything, in all daemons.
///
/// Within 2 s after the answer, no more of its tasks start. Pausing twice replaces the end, and changes nothing else.
#[utoipa::path(
    operation_id = "pause",
    post, path = "/pauses", tag = "operations", request_body = NewPause,
    responses(
        (status = 201, description = "The tasks are paused.", body = PauseView),
        (status = 200, description = "They were paused before.", body = PauseView),
        AnyProblem,
    ),
)]
async fn pause(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<NewPause>,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    let scope = scope(new.class, new.method, new.everything)?;
    require_scope(&caller, &scope)?;
    let chars = new.reason.chars().count();
    if chars > REASON_CHARS_MAX || new.reason.chars().any(char::is_control) {
        return Err(Problem::invalid(format!(
            "`reason` has {chars} characters, expected at most {REASON_CHARS_MAX} in one line"
        )));
    }
    let end = match (new.r#for, new.until) {
        (None, None) => None,
        (Some(length), None) => Some(Due::parse_delay(&length)),
        (None, Some(moment)) => Some(Due::parse_moment(&moment)),
        (Some(_), Some(_)) => {
            let both = "expected either `for` or `until`, found both";
            return Err(Problem::invalid(both));
        }
    };
    let answer = match end {
        None => app.tasks.pause(&scope, &caller.name, &new.reason).await?,
        Some(end) => {
            let end = end.map_err(|error| Problem::invalid(error.to_string()))?;
            let pausing = app
                .tasks
                .pause_until(&scope, end, &caller.name, &new.reason);
            pausing.await?
        }
    };
    app.forget_pauses().await;
    app.events.touch(Topic::Pauses);
    if !answer.already || answer.end_changed {
        let until = answer.pause.until.map(|until| format!("until {until}"));
        let parts = [until, Some(new.reason).filter(|it| !it.is_empty())];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let change = Change::of_many("pause", scope.to_string(), 0).because(parts.join(": "));
        app.audit(&caller, change).await;
    }
    let status = match answer.already {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    Ok((status, Json(PauseView::from(&answer.pause))).into_response())
}

/// What to resume.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Resumed {
    /// The class, exactly as it was paused.
    class: Option<String>,
    /// The method, exactly as it was paused.
    method: Option<String>,
    /// The pause of everything; pauses of single classes remain.
    #[serde(default)]
    everything: bool,
    /// Releases tasks that are held for review: of the class, or with `everything` all.
    #[serde(default)]
    held: bool,
}

/// Lifts a pause, or releases held tasks.
///
/// Returns the pause that was lifted. A pause of a wider scope remains.
#[utoipa::path(
    operation_id = "resume",
    delete, path = "/pauses", tag = "operations", params(Resumed),
    responses(
        (status = 200, description = "The pause was lifted, or the tasks are released.", body = PauseView),
        (status = 404, description = "There is no such pause.", body = Problem, content_type = "application/problem+json"),
        AnyProblem,
    ),
)]
async fn resume(
    State(app): State<AppState>,
    caller: Caller,
    InQuery(asked): InQuery<Resumed>,
) -> Result<Json<PauseView>, Problem> {
    caller.require(Scope::Operate)?;
    let scope = scope(asked.class, asked.method, asked.everything)?;
    require_scope(&caller, &scope)?;
    let lifted = match asked.held {
        false => app.tasks.resume(&scope).await?,
        true => match app.tasks.resume_held(&scope, &caller.name).await? {
            ReleaseAnswer::Released(hold) | ReleaseAnswer::Already(hold) => Some(hold),
            ReleaseAnswer::NoHold => None,
        },
    };
    app.forget_pauses().await;
    app.events.touch(Topic::Pauses);
    let lifted = lifted.ok_or_else(|| {
        let what = match asked.held {
            true => "nothing is held".to_owned(),
            false => format!("`{scope}` was not paused by this name"),
        };
        Problem::of(ProblemKind::NotPaused, what)
    })?;
    let verb = match asked.held {
        true => "release",
        false => "resume",
    };
    app.audit(&caller, Change::of_many(verb, scope.to_string(), 0))
        .await;
    let lifted = caller.visible_pause(&lifted).unwrap_or(lifted);
    Ok(Json(PauseView::from(&lifted)))
}

fn scope(
    class: Option<String>,
    method: Option<String>,
    everything: bool,
) -> Result<TaskScope, Problem> {
    let invalid = |error: lapsed::task::ScopeError| Problem::invalid(error.to_string());
    match (class, method, everything) {
        (None, None, true) => Ok(TaskScope::EVERYTHING),
        (Some(class), None, false) => TaskScope::class(&class).map_err(invalid),
        (Some(class), Some(method), false) => TaskScope::method(&class, &method).map_err(invalid),
        _ => Err(Problem::invalid(
            "expected `class`, `class` and `method`, or `everything`",
        )),
    }
}

fn require_scope(caller: &Caller, scope: &TaskScope) -> Result<(), Problem> {
    Ok(caller.require_class(scope.class_name())?)
}
