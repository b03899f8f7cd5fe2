//! Lists of tasks, page by page.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::AnyProblem;
use super::task_view::{MalformedView, TaskSummary};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::input::{InQuery, Truth};
use crate::http::listing::{self, Listed};
use crate::http::problem::Problem;
use lapsed::contract::TaskFilter;
use lapsed::ledger::ListFilter;

/// Tasks of a page, unless the request says otherwise.
const LIMIT: u32 = 100;

/// Maximum number of tasks of a page.
const LIMIT_MAX: u32 = 1_000;

/// Routes of lists.
pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The query of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(flatten)]
    filter: TaskFilter,
    #[serde(default)]
    archived: Option<Truth>,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    cursor: Option<String>,
}

impl ListQuery {
    /// The filter for the ledger.
    ///
    /// # Errors
    /// The first parameter that does not fit.
    fn filter(&self, app: &AppState) -> Result<ListFilter, Problem> {
        let limit = self.limit.unwrap_or(LIMIT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid(format!(
                "`limit` is {limit}, expected 1 to {LIMIT_MAX}"
            )));
        }
        Ok(ListFilter {
            archived: self.archived == Some(Truth::True),
            limit,
            ..self.filter.resolve(app.tasks.clock_now())?
        })
    }
}

/// A page of tasks.
#[derive(Debug, Serialize, ToSchema)]
struct TaskPage {
    /// The tasks, without payload, history and result.
    tasks: Vec<TaskSummary>,
    /// Rows that match but whose key is not a task key.
    malformed: Vec<MalformedView>,
    /// `cursor` of the next page; `null` at the end.
    next: Option<String>,
    /// If the search stopped before the page was full, since it took too long: the least number of rows it has read. There
    /// may be more tasks behind `next`.
    searched: Option<u64>,
}

/// Lists tasks.
///
/// The order depends on the filters and is that of an index: by id, by key, or by state and due time. A page costs the same
/// wherever it begins, and holds no payloads.
#[utoipa::path(
    operation_id = "listTasks",
    get, path = "/tasks", tag = "tasks",
    params(
        TaskFilter,
        ("archived" = Option<bool>, Query, description = "True for tasks that retention has moved to the archive."),
        ("limit" = Option<u32>, Query, description = "Maximum number of tasks: 1 to 1000, 100 by default.", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page. The filters have to be the same."),
    ),
    responses(
        (status = 200, description = "A page of tasks.", body = TaskPage),
        AnyProblem,
    ),
)]
async fn list(
    State(app): State<AppState>,
    caller: Caller,
    InQuery(query): InQuery<ListQuery>,
) -> Result<Json<TaskPage>, Problem> {
    caller.require(Scope::Read)?;
    let filter = query.filter(&app)?;
    let (page, paused) = tokio::try_join!(
        listing::list(&app, &caller, filter, query.cursor.as_deref()),
        app.paused()
    )?;
    let Listed {
        tasks,
        malformed,
        next,
        searched,
    } = page;
    let tasks = tasks.iter().map(|task| TaskSummary::new(task, &paused));
    Ok(Json(TaskPage {
        tasks: tasks.collect(),
        malformed: malformed.iter().map(MalformedView::new).collect(),
        next,
        searched,
    }))
}
