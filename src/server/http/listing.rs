//! Lists of tasks as their caller may see them. Every list over HTTP is read here.

use super::access::Caller;
use super::app_state::AppState;
use super::problem::Problem;
use lapsed::ledger::{ListFilter, ListPage, MalformedRow, TaskRecord};

/// A page of tasks that the caller may see.
#[derive(Debug)]
pub struct Listed {
    /// The tasks, without what is masked.
    pub tasks: Vec<TaskRecord>,
    /// Rows that match but whose key is not a task key.
    pub malformed: Vec<MalformedRow>,
    /// `cursor` of the next page; `None` at the end.
    pub next: Option<String>,
    /// If the search stopped before the page was full: the least number of rows it has read.
    pub searched: Option<u64>,
}

/// Lists the tasks of a filter that the caller may see, from the place of `cursor` on.
///
/// # Errors
/// The filter or the cursor does not fit, or the ledger fails.
pub async fn list(
    app: &AppState,
    caller: &Caller,
    filter: ListFilter,
    cursor: Option<&str>,
) -> Result<Listed, Problem> {
    let sealed = caller.is_restricted() || caller.masks.hides_any_arguments();
    let cursors = app.access.cursors(caller, sealed).await;
    let mut filter = visible(caller, filter)?;
    filter.brief = true;
    filter.cursor = cursor.map(|text| cursors.place(text)).transpose()?;
    let ListPage {
        mut tasks,
        mut malformed,
        next,
        mut searched,
    } = app.tasks.list(&filter).await?;
    if caller.is_restricted() {
        // Rows without a class, and a number of rows of all classes.
        malformed.clear();
        searched = searched.map(|_| tasks.len() as u64);
    }
    for task in &mut tasks {
        task.mask(&caller.masks);
        task.key = caller.masks.shown(&task.key);
    }
    for row in &mut malformed {
        row.key = caller.masks.shown_malformed(std::mem::take(&mut row.key));
    }
    Ok(Listed {
        tasks,
        malformed,
        next: next.map(|next| cursors.text(&next)),
        searched,
    })
}

/// Restricts a filter to what the caller may see, so that neither a task nor its absence tells more.
///
/// # Errors
/// The filter asks for what is masked.
pub fn visible(caller: &Caller, filter: ListFilter) -> Result<ListFilter, Problem> {
    let prefix = filter.prefix.as_deref().unwrap_or_default();
    if caller.masks.hides_prefix(prefix) {
        return Err(Problem::invalid(
            "`prefix`: arguments of this class are masked, expected a whole key, or a class and method without arguments",
        ));
    }
    // Their order would tell them.
    let hides_keys = match &filter.class {
        Some(class) => {
            let method = filter.method.as_deref();
            caller.masks.hides_arguments_of(class, method)
        }
        None => caller.masks.hides_arguments_below(prefix),
    };
    let except = match (&filter.error, &filter.error_kind) {
        (None, None) => Vec::new(),
        _ => caller.masks.payloads().to_vec(),
    };
    Ok(ListFilter {
        only: caller.classes.clone(),
        except,
        hides_keys,
        ..filter
    })
}

/// Finds the task in a row, of the ledger or of its archive; `None` if there is none that the caller may touch.
///
/// # Errors
/// The ledger fails.
pub async fn task_in_row(
    app: &AppState,
    caller: &Caller,
    row: u64,
    archived: bool,
) -> Result<Option<TaskRecord>, Problem> {
    let Some(filter) = ListFilter::from_row(row, archived) else {
        return Ok(None);
    };
    let page = app.tasks.list(&filter).await?;
    let mut found = page.tasks.into_iter();
    let found = found.find(|task| task.row() == Some(row));
    Ok(found.filter(|task| caller.may_touch(&task.key)))
}
