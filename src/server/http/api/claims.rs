//! Claims: workers report how the tasks ended that they have taken.

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::{AnyOther, ClaimLost};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::events::Topic;
use crate::http::input::{InPath, JsonBody, OptionalJson};
use crate::http::problem::{Problem, ProblemKind};
use lapsed::contract::duration_text;
use lapsed::engine::{ClaimToken, Report};
use lapsed::ledger::{Progress, Renewal};
use lapsed::task::{RetryAdvice, parse_length};

/// Routes of claims.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(done))
        .routes(routes!(fail))
        .routes(routes!(snooze))
        .routes(routes!(renew))
        .routes(routes!(release))
}

/// The claim in the path, of a task that the caller may work on.
struct Claim(ClaimToken);

impl FromRequestParts<AppState> for Claim {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.require(Scope::Work)?;
        let InPath(text) = InPath::from_request_parts(parts, app).await?;
        let claim = app.engine.pull().claim(&text).await?;
        caller.require_key(claim.key())?;
        Ok(Self(claim))
    }
}

/// The result of a task.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Done {
    /// Any JSON, at most 64 KiB. It is stored with the task.
    #[schema(value_type = Option<Value>)]
    result: Option<Box<RawValue>>,
}

/// Completes a task. The report may be repeated.
#[utoipa::path(
    operation_id = "completeClaim",
    post, path = "/claims/{claim}/done", tag = "workers", request_body = Option<Done>,
    params(("claim" = String, Path, description = "`claim` of the task.")),
    responses(
        (status = 204, description = "The task is done."),
        ClaimLost,
        AnyOther,
    ),
)]
async fn done(
    State(app): State<AppState>,
    caller: Caller,
    Claim(claim): Claim,
    OptionalJson(done): OptionalJson<Done>,
) -> Result<StatusCode, Problem> {
    let result = done.result.map(|json| json.get().to_owned());
    settle(&app, &caller, &claim, Report::Done { result }).await
}

/// Why a task failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Fail {
    /// For people; cut to 2048 bytes.
    error: String,
    /// True: it is not tried again. The default is up to the retry policy of its route.
    #[serde(default)]
    permanent: bool,
    /// It is tried again after this time: `30s`.
    #[serde(default, deserialize_with = "duration_text")]
    retry_after: Option<String>,
}

/// Reports that a task failed. The retry policy of its route decides, unless a member does.
#[utoipa::path(
    operation_id = "failClaim",
    post, path = "/claims/{claim}/fail", tag = "workers", request_body = Fail,
    params(("claim" = String, Path, description = "`claim` of the task.")),
    responses(
        (status = 204, description = "The failure is recorded."),
        ClaimLost,
        AnyOther,
    ),
)]
async fn fail(
    State(app): State<AppState>,
    caller: Caller,
    Claim(claim): Claim,
    JsonBody(failed): JsonBody<Fail>,
) -> Result<StatusCode, Problem> {
    let Fail {
        error,
        permanent,
        retry_after,
    } = failed;
    let advice = match (permanent, retry_after) {
        (false, None) => RetryAdvice::ByPolicy,
        (true, None) => RetryAdvice::Never,
        (false, Some(after)) => {
            let after = parse_length(&after);
            RetryAdvice::After(
                after.map_err(|error| Problem::invalid(format!("`retry_after`: {error}")))?,
            )
        }
        (true, Some(_)) => {
            return Err(Problem::invalid(
                "expected either `permanent` or `retry_after`, found both",
            ));
        }
    };
    settle(&app, &caller, &claim, Report::Failed { error, advice }).await
}

/// A delay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Snooze {
    /// `30s`
    r#in: String,
}

/// Has a task given out again after a delay. Not a failure.
#[utoipa::path(
    operation_id = "snoozeClaim",
    post, path = "/claims/{claim}/snooze", tag = "workers", request_body = Snooze,
    params(("claim" = String, Path, description = "`claim` of the task.")),
    responses(
        (status = 204, description = "The task waits."),
        ClaimLost,
        AnyOther,
    ),
)]
async fn snooze(
    State(app): State<AppState>,
    caller: Caller,
    Claim(claim): Claim,
    JsonBody(snooze): JsonBody<Snooze>,
) -> Result<StatusCode, Problem> {
    let delay = parse_length(&snooze.r#in);
    let delay = delay.map_err(|error| Problem::invalid(format!("`in`: {error}")))?;
    settle(&app, &caller, &claim, Report::Snoozed(delay)).await
}

/// What a worker says while it works.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Renew {
    /// How far it is.
    progress: Option<ProgressInput>,
}

/// How far a worker is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProgressInput {
    /// From 0 to 100.
    percent: i64,
    /// What it does; cut to 200 characters.
    #[serde(default)]
    text: String,
}

/// Extends a claim by the visibility of its route from now, and stores how far its worker is.
#[utoipa::path(
    operation_id = "renewClaim",
    post, path = "/claims/{claim}/renew", tag = "workers", request_body = Option<Renew>,
    params(("claim" = String, Path, description = "`claim` of the task.")),
    responses(
        (status = 204, description = "The claim is extended."),
        ClaimLost,
        AnyOther,
    ),
)]
async fn renew(
    State(app): State<AppState>,
    Claim(claim): Claim,
    OptionalJson(Renew { progress }): OptionalJson<Renew>,
) -> Result<StatusCode, Problem> {
    let queues = app.engine.pull();
    let renewal = match progress {
        None => queues.renew(std::slice::from_ref(&claim)).await?.pop(),
        Some(ProgressInput { percent, text }) => {
            let progress = Progress::new(percent, &text);
            let progress = progress
                .map_err(|error| Problem::invalid(format!("`progress.percent`: {error}")))?;
            let renewal = queues.report(&claim, progress).await?;
            app.events.touch(Topic::Tasks);
            Some(renewal)
        }
    };
    match renewal {
        Some(Renewal::Held) => Ok(StatusCode::NO_CONTENT),
        Some(Renewal::Locked) => Err(Problem::of(
            ProblemKind::Locked,
            "another session has locked the task",
        )),
        Some(Renewal::Lost) | None => Err(Problem::of(ProblemKind::ClaimLost, "claim was lost")),
    }
}

/// Gives a task back unused. No attempt is counted.
#[utoipa::path(
    operation_id = "releaseClaim",
    post, path = "/claims/{claim}/release", tag = "workers",
    params(("claim" = String, Path, description = "`claim` of the task.")),
    responses(
        (status = 204, description = "The task is pending."),
        ClaimLost,
        AnyOther,
    ),
)]
async fn release(
    State(app): State<AppState>,
    caller: Caller,
    Claim(claim): Claim,
) -> Result<StatusCode, Problem> {
    settle(&app, &caller, &claim, Report::Released).await
}

async fn settle(
    app: &AppState,
    caller: &Caller,
    claim: &ClaimToken,
    report: Report,
) -> Result<StatusCode, Problem> {
    let has_failed = matches!(report, Report::Failed { .. });
    app.engine.pull().settle(claim, report).await?;
    app.events.touch(Topic::Tasks);
    if has_failed && app.tasks.has_died(claim.key(), claim.arming()).await {
        app.audit_task(caller, "fail", claim.key());
    }
    Ok(StatusCode::NO_CONTENT)
}
