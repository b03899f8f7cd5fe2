//! Changes of all tasks that match a filter: cancel, redrive, discard. Dry run first.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::filter::TaskFilter;
use super::progress::{Progress, ProgressLine, respond};
use crate::client::{CancelReport, IfSame, Pace};
use crate::http::access::{Caller, Scope};
use crate::http::audit::Change;
use crate::http::events::Topic;
use crate::http::input::JsonBody;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::site::Site;
use crate::ledger::{CancelAnswer, CancelFilter, ListFilter, ListPage, StateFilter, TaskRecord};
use crate::task::{Arming, State as TaskState, TaskKey};

/// Tasks of one transaction, where tasks are cancelled one by one.
const PAGE: u32 = 200;

/// Longest count of a dry run; its last page may take as long again.
const COUNT_FOR: Duration = Duration::from_secs(1);

/// Redriven tasks per second, unless the request says otherwise; and at most.
const RATE: NonZeroU32 = NonZeroU32::new(1_000).expect("it is not zero");
const RATE_MAX: u32 = 100_000;

/// Routes of changes of many tasks.
pub fn routes() -> OpenApiRouter<Site> {
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
        (status = 429, description = "Too many changes of many tasks go on.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn cancel(
    State(site): State<Site>,
    caller: Caller,
    JsonBody(bulk): JsonBody<Bulk>,
) -> Result<Response, Problem> {
    bulk.require(&caller)?;
    if bulk.rate.is_some() || bulk.limit.is_some() {
        return Err(Problem::invalid(
            "`rate` and `limit` are not members of `cancel`",
        ));
    }
    let which = match bulk.filter.cancel().filter(|_| !bulk.all) {
        Some(filter) => {
            filter.check()?;
            Which::Plain(filter)
        }
        None => Which::Listed(Box::new(bulk.unfinished(&site)?)),
    };
    if bulk.dry_run {
        return Ok(Json(which.count(&site).await?).into_response());
    }
    let by = bulk.by(caller, "cancel", &site)?;
    Ok(respond(&site.clone(), |progress| {
        which.cancel(site, progress, by)
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
        (status = 429, description = "Too many changes of many tasks go on.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn redrive(
    State(site): State<Site>,
    caller: Caller,
    JsonBody(bulk): JsonBody<Bulk>,
) -> Result<Response, Problem> {
    bulk.require(&caller)?;
    let filter = bulk.dead(&site)?;
    if bulk.dry_run {
        return Ok(Json(count_dead(&site, &filter).await?).into_response());
    }
    let rate = bulk.rate.unwrap_or(RATE);
    if rate.get() > RATE_MAX {
        return Err(Problem::invalid(format!(
            "`rate` is {rate}, expected at most {RATE_MAX}"
        )));
    }
    let by = bulk.by(caller, "redrive", &site)?;
    Ok(respond(&site.clone(), |progress| async move {
        let mut told = Told::new(site.clone(), progress, by);
        let redriven = site
            .tasks
            .redrive_each(&filter, Pace::per_second(rate), |count| {
                told.tell(|line| line.tasks = count)
            });
        let ended = redriven.await.map(drop);
        told.end(ended.map_err(Problem::from)).await
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
        (status = 429, description = "Too many changes of many tasks go on.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Any other problem.", body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn discard(
    State(site): State<Site>,
    caller: Caller,
    JsonBody(bulk): JsonBody<Bulk>,
) -> Result<Response, Problem> {
    bulk.require(&caller)?;
    if bulk.rate.is_some() {
        return Err(Problem::invalid("`rate` is not a member of `discard`"));
    }
    let filter = bulk.dead(&site)?;
    if bulk.dry_run {
        return Ok(Json(count_dead(&site, &filter).await?).into_response());
    }
    let by = bulk.by(caller, "discard", &site)?;
    Ok(respond(&site.clone(), |progress| async move {
        let mut told = Told::new(site.clone(), progress, by);
        let discarded = site
            .tasks
            .discard_each(&filter, |count| told.tell(|line| line.tasks = count));
        let ended = discarded.await.map(drop);
        told.end(ended.map_err(Problem::from)).await
    }))
}

impl Bulk {
    fn require(&self, caller: &Caller) -> Result<(), Problem> {
        caller.require(Scope::Operate)?;
        caller.require_class(self.filter.class_of_all())
    }

    /// Takes room for the change.
    fn by(&self, caller: Caller, verb: &'static str, site: &Site) -> Result<By, Problem> {
        Ok(By {
            caller,
            verb,
            filter: self.filter.words(),
            _room: site.bulk_room()?,
        })
    }

    /// The dead tasks that match.
    fn dead(&self, site: &Site) -> Result<ListFilter, Problem> {
        let mut filter = self.filter.list(site.tasks.clock_now())?;
        if !filter.states.is_empty() && filter.states != [StateFilter::Is(TaskState::Dead)] {
            return Err(Problem::invalid("`state`: expected `dead`, or none"));
        }
        self.check_open(&filter)?;
        filter.limit = self.limit.map_or(0, NonZeroU32::get);
        Ok(filter)
    }

    /// The unfinished tasks that match.
    fn unfinished(&self, site: &Site) -> Result<ListFilter, Problem> {
        let mut filter = self.filter.list(site.tasks.clock_now())?;
        self.check_open(&filter)?;
        let is_finished =
            |state: &StateFilter| matches!(state, StateFilter::Is(state) if state.is_finished());
        if filter.states.iter().any(is_finished) {
            return Err(Problem::invalid(
                "`state`: expected states of unfinished tasks: `pending`, `waiting`, `running` or `overdue`",
            ));
        }
        if filter.states.is_empty() {
            let unfinished = [TaskState::Pending, TaskState::Waiting, TaskState::Running];
            filter.states = unfinished.map(StateFilter::Is).to_vec();
        }
        filter.limit = PAGE;
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

/// Which tasks to cancel.
enum Which {
    /// Those that the ledger finds and cancels by itself.
    Plain(CancelFilter),
    /// Those of a list, if they are unchanged since.
    Listed(Box<ListFilter>),
}

impl Which {
    async fn count(self, site: &Site) -> Result<ProgressLine, Problem> {
        let mut line = ProgressLine {
            dry_run: true,
            done: true,
            ..ProgressLine::default()
        };
        match self {
            Self::Plain(filter) => {
                let would = site.tasks.would_cancel(&filter).await?;
                line.tasks = would.report.cancelled;
                line.running = would.report.running;
                line.at_least = would.is_part;
            }
            Self::Listed(mut filter) => {
                let until = Instant::now() + COUNT_FOR;
                loop {
                    let ListPage { tasks, next, .. } = site.tasks.list(&filter).await?;
                    let running = tasks.iter().filter(|task| is_running(task)).count() as u64;
                    line.running += running;
                    line.tasks += tasks.len() as u64 - running;
                    filter.cursor = next;
                    line.at_least = filter.cursor.is_some() && Instant::now() >= until;
                    if filter.cursor.is_none() || line.at_least {
                        break;
                    }
                }
            }
        }
        Ok(line)
    }

    async fn cancel(self, site: Site, progress: Progress, by: By) -> ProgressLine {
        let mut told = Told::new(site.clone(), progress, by);
        let ended = match self {
            Self::Plain(filter) => {
                let cancelled = site.tasks.cancel_each(&filter, |report| {
                    let CancelReport {
                        cancelled,
                        running,
                        locked,
                    } = *report;
                    told.tell(|line| {
                        (line.tasks, line.running, line.skipped) = (cancelled, running, locked);
                    })
                });
                cancelled.await.map(drop).map_err(Problem::from)
            }
            Self::Listed(filter) => cancel_listed(&site, *filter, &mut told).await,
        };
        told.end(ended).await
    }
}

/// Cancels the tasks of a list, page by page, each page in one transaction.
async fn cancel_listed(
    site: &Site,
    mut filter: ListFilter,
    told: &mut Told,
) -> Result<(), Problem> {
    loop {
        let ListPage { tasks, next, .. } = site.tasks.list(&filter).await?;
        let tasks: Vec<(TaskKey, Arming)> = tasks.iter().filter_map(identity).collect();
        let answers = match tasks.is_empty() {
            true => Vec::new(),
            false => site.tasks.cancel_if(&tasks).await?,
        };
        let told = told.tell(|line| {
            for answer in answers {
                match answer {
                    IfSame::Same(CancelAnswer::Cancelled) => line.tasks += 1,
                    IfSame::Same(CancelAnswer::Running) => line.running += 1,
                    IfSame::Same(_) | IfSame::Other => line.skipped += 1,
                }
            }
        });
        filter.cursor = next;
        if filter.cursor.is_none() || told.is_break() {
            return Ok(());
        }
    }
}

fn identity(task: &TaskRecord) -> Option<(TaskKey, Arming)> {
    let row = task.id.split('-').next()?.parse().ok()?;
    let arming = Arming { row, due: task.due };
    Some((task.key.clone(), arming))
}

fn is_running(task: &TaskRecord) -> bool {
    task.state == TaskState::Running
}

async fn count_dead(site: &Site, filter: &ListFilter) -> Result<ProgressLine, Problem> {
    let count = site.tasks.count_dead(filter).await?;
    Ok(ProgressLine {
        dry_run: true,
        done: true,
        tasks: count.count,
        at_least: count.is_part,
        ..ProgressLine::default()
    })
}

/// The numbers of a work that goes on, and whom they are told.
struct Told {
    site: Site,
    line: ProgressLine,
    progress: Progress,
    by: By,
    stopped: bool,
}

/// Who asked for a change of many tasks, what it is, and its room among others.
struct By {
    caller: Caller,
    verb: &'static str,
    filter: String,
    _room: OwnedSemaphorePermit,
}

impl Told {
    fn new(site: Site, progress: Progress, by: By) -> Self {
        Self {
            site,
            by,
            line: ProgressLine::default(),
            progress,
            stopped: false,
        }
    }

    fn tell(&mut self, change: impl FnOnce(&mut ProgressLine)) -> ControlFlow<()> {
        change(&mut self.line);
        self.site.events.touch(Topic::Tasks);
        let told = self.progress.tell(&self.line);
        self.stopped |= told.is_break();
        told
    }

    async fn end(self, ended: Result<(), Problem>) -> ProgressLine {
        let By {
            caller,
            verb,
            filter,
            _room,
        } = self.by;
        let tasks = self.line.tasks + self.line.running;
        if tasks > 0 {
            let change = Change::of_many(verb, filter, tasks);
            self.site.audit(&caller, change).await;
        }
        let problem = match ended {
            Err(problem) => Some(problem),
            Ok(()) if self.stopped => Some(Problem::of(
                ProblemKind::Stopping,
                "this daemon is stopping: the remaining tasks are unchanged",
            )),
            Ok(()) => None,
        };
        ProgressLine {
            problem,
            ..self.line
        }
    }
}
