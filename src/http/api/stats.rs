//! Counts of tasks.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::AnyProblem;
use super::pauses::{PauseView, seen};
use crate::http::access::{Caller, Scope};
use crate::http::divided::stats_of;
use crate::http::problem::Problem;
use crate::http::site::Site;
use crate::ledger::{DetailedStats, MethodStats, Percentiles};

/// Routes of counts.
pub fn routes() -> OpenApiRouter<Site> {
    OpenApiRouter::new().routes(routes!(stats))
}

/// Counts of tasks, at most two seconds old.
#[derive(Debug, Serialize, ToSchema)]
struct StatsView {
    pending: u64,
    /// Waiting for a retry.
    waiting: u64,
    running: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
    /// Pending or waiting, and past the time at which they may start.
    overdue: u64,
    /// How long the oldest of them has been overdue.
    overdue_ms_max: u64,
    /// Overdue rows whose key is not a task key.
    malformed: u64,
    /// The states whose count stopped at a limit: there are at least as many.
    at_least: Vec<&'static str>,
    /// Counts by class and method.
    methods: Vec<MethodView>,
    /// Number of unfinished rows that `methods` covers, earliest due time first; `null` if it covers all.
    methods_of: Option<u32>,
    /// Number of dead rows that `methods` covers; `null` if it covers all.
    methods_of_dead: Option<u32>,
    /// Pauses and holds, oldest first.
    pauses: Vec<PauseView>,
}

/// The tasks of one class and method.
#[derive(Debug, Serialize, ToSchema)]
struct MethodView {
    /// `Class@method`
    name: String,
    pending: u64,
    waiting: u64,
    running: u64,
    overdue: u64,
    overdue_ms_max: u64,
    dead: u64,
    /// Time from due to done of tasks that succeeded at the first attempt within the last hour.
    due_to_done: Option<PercentilesView>,
}

/// Percentiles of durations.
#[derive(Debug, Serialize, ToSchema)]
struct PercentilesView {
    /// Number of durations.
    count: u64,
    p50_ms: u64,
    p99_ms: u64,
    max_ms: u64,
}

/// Counts tasks by state, and by class and method.
///
/// Counts are bounded: with many rows, `at_least` names those that are not complete. A client that is limited to some classes
/// gets the counts of these, without tasks that are done or cancelled; if they are too many to count by class, 403.
#[utoipa::path(
    operation_id = "getStats",
    get, path = "/stats", tag = "operations",
    responses(
        (status = 200, description = "The counts.", body = StatsView),
        AnyProblem,
    ),
)]
async fn stats(State(site): State<Site>, caller: Caller) -> Result<Json<StatsView>, Problem> {
    caller.require(Scope::Read)?;
    let (stats, pauses) = tokio::try_join!(site.stats(), site.pauses())?;
    let stats = stats_of(&stats, &caller)?;
    let DetailedStats {
        counts,
        at_least,
        methods,
        methods_of,
        methods_of_dead,
    } = &*stats;
    Ok(Json(StatsView {
        pending: counts.pending,
        waiting: counts.waiting,
        running: counts.running,
        done: counts.done,
        dead: counts.dead,
        cancelled: counts.cancelled,
        overdue: counts.overdue,
        overdue_ms_max: counts.overdue_ms_max,
        malformed: counts.malformed,
        at_least: at_least.clone(),
        methods: methods.iter().map(MethodView::from).collect(),
        methods_of: *methods_of,
        methods_of_dead: *methods_of_dead,
        pauses: seen(&caller, &pauses),
    }))
}

impl From<&MethodStats> for MethodView {
    fn from(method: &MethodStats) -> Self {
        let MethodStats {
            name,
            pending,
            waiting,
            running,
            overdue,
            overdue_ms_max,
            dead,
            due_to_done,
        } = method;
        Self {
            name: name.clone(),
            pending: *pending,
            waiting: *waiting,
            running: *running,
            overdue: *overdue,
            overdue_ms_max: *overdue_ms_max,
            dead: *dead,
            due_to_done: due_to_done.map(|spread| {
                let Percentiles {
                    count,
                    p50_ms,
                    p99_ms,
                    max_ms,
                } = spread;
                PercentilesView {
                    count,
                    p50_ms,
                    p99_ms,
                    max_ms,
                }
            }),
        }
    }
}
