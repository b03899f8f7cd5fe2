//! Changes of all tasks that match a filter: cancel, redrive, discard. Dry run first.

use std::num::NonZeroU32;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::{AnyOther, TooManyChanges};
use super::bulk_work::{BulkProgress, BulkRequest};
use super::progress::{ProgressLine, respond};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::input::JsonBody;
use crate::http::listing;
use crate::http::problem::Problem;
use lapsed::client::{Pace, WouldCancel};
use lapsed::contract::TaskFilter;
use lapsed::ledger::{ListFilter, REASON_CHARS_MAX, StateFilter};
use lapsed::task::State as TaskState;

/// Redriven tasks per second, unless the request says otherwise; and at most.
const RATE: NonZeroU32 = NonZeroU32::new(1_000).expect("it is not zero");
const RATE_MAX: u32 = 100_000;

/// Routes of changes of many tasks.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(cancel))
        .routes(routes!(redrive))
        .routes(routes!(discard))
}

/// Which tasks to change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bulk {
    #[serde(flatten)]
    filter: TaskFilter,
    /// Every task; required if no filter is given.
    #[serde(default)]
    all: bool,
    /// Why the caller does it, for the audit log: at most 255 characters in one line.
    #[serde(default)]
    #[schema(max_length = 255)]
    audit_reason: String,
    /// Only count the tasks.
    #[serde(default)]
    dry_run: bool,
    /// `redrive`: tasks per second, 1000 by default.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1)]
    rate: Option<NonZeroU32>,
    /// `redrive` and `discard`: maximum number of tasks.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1)]
    limit: Option<NonZeroU32>,
}

/// Cancels all tasks that match.
///
/// With `dry_run`, counts them. Otherwise the answer is JSON lines with the numbers so far; the last has `done`. The work ends
/// when the client leaves. Tasks that are created meanwhile may be left out.
#[utoipa::path(
    operation_id = "cancelTasks",
    post, path = "/cancel", tag = "operations", request_body = Bulk,
    responses(
        (status = 200, description = "With `dry_run` the count, otherwise lines of progress.", content(
            (ProgressLine = "application/json"), (ProgressLine = "application/x-ndjson"))),
        TooManyChanges,
        AnyOther,
    ),
)]
async fn cancel(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(bulk): JsonBody<Bulk>,
) -> Result<Response, Problem> {
    bulk.require(&caller)?;
    if bulk.rate.is_some() || bulk.limit.is_some() {
        return Err(Problem::invalid(
            "`rate` and `limit` are not members of `cancel`",
        ));
    }
    let filter = bulk.unfinished(&caller, &app)?;
    if bulk.dry_run {
        let WouldCancel { report, is_part } = app.tasks.would_cancel(&filter).await?;
        let mut line = ProgressLine {
            dry_run: true,
            done: true,
            at_least: is_part,
            ..ProgressLine::default()
        };
        line.count(report);
        return Ok(Json(line).into_response());
    }
    let request = bulk.request(caller, "cancel", &app)?;
    Ok(respond(&app.clone(), |progress| async move {
        let mut progress = BulkProgress::new(app.clone(), progress, request);
        let cancelled = app.tasks.cancel_each(&filter, |report| {
            progress.update(|line| line.count(*report))
        });
        let ended = cancelled.await.map(drop);
        progress.end(ended.map_err(Problem::from)).await
    }))
}

/// Makes all dead tasks that match pending, and due at once.
///
/// With `dry_run`, counts them. Otherwise the answer is JSON lines with the numbers so far; the last has `done`. The work ends
/// when the client leaves. The tasks run behind those that fall due meanwhile.
#[utoipa::path(
    operation_id = "redriveTasks",
    post, path = "/redrive", tag = "operations", request_body = Bulk,
    responses(
        (status = 200, description = "With `dry_run` the count, otherwise lines of progress.", content(
            (ProgressLine = "application/json"), (ProgressLine = "application/x-ndjson"))),
        TooManyChanges,
        AnyOther,
    ),
)]
async fn redrive(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(bulk): JsonBody<Bulk>,
) -> Result<Response, Problem> {
    bulk.require(&caller)?;
    let filter = bulk.dead(&caller, &app)?;
    if bulk.dry_run {
        return Ok(Json(count_dead(&app, &filter).await?).into_response());
    }
    let rate = bulk.rate.unwrap_or(RATE);
    if rate.get() > RATE_MAX {
        return Err(Problem::invalid(format!(
            "`rate` is {rate}, expected at most {RATE_MAX}"
        )));
    }
    let request = bulk.request(caller, "redrive", &app)?;
    Ok(respond(&app.clone(), |progress| async move {
        let mut progress = BulkProgress::new(app.clone(), progress, request);
        let redriven = app
            .tasks
            .redrive_each(&filter, Pace::per_second(rate), |count| {
                progress.update(|line| line.tasks = count)
            });
        let ended = redriven.await.map(drop);
        progress.end(ended.map_err(Problem::from)).await
    }))
}

/// Deletes all dead tasks that match.
///
/// With `dry_run`, counts them. Otherwise the answer is JSON lines with the numbers so far; the last has `done`. The work ends
/// when the client leaves.
#[utoipa::path(
    operation_id = "discardTasks",
    post, path = "/discard", tag = "operations", request_body = Bulk,
    responses(
        (status = 200, description = "With `dry_run` the count, otherwise lines of progress.", content(
            (ProgressLine = "application/json"), (ProgressLine = "application/x-ndjson"))),
        TooManyChanges,
        AnyOther,
    ),
)]
async fn discard(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(bulk): JsonBody<Bulk>,
) -> Result<Response, Problem> {
    bulk.require(&caller)?;
    if bulk.rate.is_some() {
        return Err(Problem::invalid("`rate` is not a member of `discard`"));
    }
    let filter = bulk.dead(&caller, &app)?;
    if bulk.dry_run {
        return Ok(Json(count_dead(&app, &filter).await?).into_response());
    }
    let request = bulk.request(caller, "discard", &app)?;
    Ok(respond(&app.clone(), |progress| async move {
        let mut progress = BulkProgress::new(app.clone(), progress, request);
        let discarded = app
            .tasks
            .discard_each(&filter, |count| progress.update(|line| line.tasks = count));
        let ended = discarded.await.map(drop);
        progress.end(ended.map_err(Problem::from)).await
    }))
}

impl Bulk {
    fn require(&self, caller: &Caller) -> Result<(), Problem> {
        caller.require(Scope::Operate)?;
        Ok(caller.require_class(self.filter.class_of_all())?)
    }

    /// Takes room for the change.
    fn request(
        &self,
        caller: Caller,
        verb: &'static str,
        app: &AppState,
    ) -> Result<BulkRequest, Problem> {
        let chars = self.audit_reason.chars().count();
        if chars > REASON_CHARS_MAX || self.audit_reason.chars().any(char::is_control) {
            return Err(Problem::invalid(format!(
                "`audit_reason` has {chars} characters, expected at most {REASON_CHARS_MAX} in one line"
            )));
        }
        Ok(BulkRequest {
            caller,
            verb,
            reason: self.audit_reason.clone(),
            filter: self.filter.words(),
            _room: app.bulk_room()?,
        })
    }

    /// The tasks that match, as far as the caller may see them.
    fn listed(&self, caller: &Caller, app: &AppState) -> Result<ListFilter, Problem> {
        listing::visible(caller, self.filter.resolve(app.tasks.clock_now())?)
    }

    /// The dead tasks that match.
    fn dead(&self, caller: &Caller, app: &AppState) -> Result<ListFilter, Problem> {
        let mut filter = self.listed(caller, app)?;
        if !filter.states.is_empty() && filter.states != [StateFilter::Is(TaskState::Dead)] {
            return Err(Problem::invalid("`state`: expected `dead`, or none"));
        }
        self.check_open(&filter)?;
        filter.limit = self.limit.map_or(0, NonZeroU32::get);
        Ok(filter)
    }

    /// The unfinished tasks that match.
    fn unfinished(&self, caller: &Caller, app: &AppState) -> Result<ListFilter, Problem> {
        let mut filter = self.listed(caller, app)?;
        self.check_open(&filter)?;
        if self.all && filter.states.is_empty() {
            filter.states = StateFilter::UNFINISHED.to_vec();
        }
        filter.check_cancel()?;
        Ok(filter)
    }

    fn check_open(&self, filter: &ListFilter) -> Result<(), Problem> {
        match (filter.is_open(), self.all) {
            (true, false) => Err(Problem::invalid(
                "this matches every task: give a filter, or `all`",
            )),
            (false, true) => Err(Problem::invalid(
                "`all` and a filter exclude each other: expected one of them",
            )),
            _ => Ok(()),
        }
    }
}

async fn count_dead(app: &AppState, filter: &ListFilter) -> Result<ProgressLine, Problem> {
    let count = app.tasks.count_dead(filter).await?;
    Ok(ProgressLine {
        dry_run: true,
        done: true,
        tasks: count.count,
        at_least: count.is_part,
        ..ProgressLine::default()
    })
}
