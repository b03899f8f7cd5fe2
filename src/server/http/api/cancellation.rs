//! Cancellation of all tasks that match a filter.

use std::time::Duration;

use tokio::time::Instant;

use super::bulk_work::{BulkProgress, BulkRequest};
use super::progress::{Progress, ProgressLine};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::client::{CancelReport, IfSame};
use lapsed::ledger::{CancelAnswer, CancelFilter, ListFilter, ListPage, TaskRecord};
use lapsed::task::{Arming, State as TaskState, TaskKey};

/// Tasks of one transaction, where tasks are cancelled one by one.
pub const PAGE: u32 = 200;

/// Longest count of a dry run; its last page may take as long again.
const COUNT_FOR: Duration = Duration::from_secs(1);

/// Which tasks to cancel.
pub enum Selection {
    /// Those that the ledger finds and cancels by itself.
    Plain(CancelFilter),
    /// Those of a list, if they are unchanged since.
    Listed(Box<ListFilter>),
}

impl Selection {
    /// Counts them, for about a second.
    ///
    /// # Errors
    /// The ledger fails.
    pub async fn count(self, app: &AppState) -> Result<ProgressLine, Problem> {
        let mut line = ProgressLine {
            dry_run: true,
            done: true,
            ..ProgressLine::default()
        };
        match self {
            Self::Plain(filter) => {
                let would = app.tasks.would_cancel(&filter).await?;
                line.tasks = would.report.cancelled;
                line.running = would.report.running;
                line.at_least = would.is_part;
            }
            Self::Listed(mut filter) => {
                let until = Instant::now() + COUNT_FOR;
                loop {
                    let ListPage { tasks, next, .. } = app.tasks.list(&filter).await?;
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

    /// Cancels them, and sends how many so far.
    pub async fn cancel(
        self,
        app: AppState,
        progress: Progress,
        request: BulkRequest,
    ) -> ProgressLine {
        let mut progress = BulkProgress::new(app.clone(), progress, request);
        let ended = match self {
            Self::Plain(filter) => {
                let cancelled = app.tasks.cancel_each(&filter, |report| {
                    let CancelReport {
                        cancelled,
                        running,
                        locked,
                    } = *report;
                    progress.update(|line| {
                        (line.tasks, line.running, line.skipped) = (cancelled, running, locked);
                    })
                });
                cancelled.await.map(drop).map_err(Problem::from)
            }
            Self::Listed(filter) => cancel_listed(&app, *filter, &mut progress).await,
        };
        progress.end(ended).await
    }
}

/// Cancels the tasks of a list, page by page, each page in one transaction.
async fn cancel_listed(
    app: &AppState,
    mut filter: ListFilter,
    progress: &mut BulkProgress,
) -> Result<(), Problem> {
    loop {
        let ListPage { tasks, next, .. } = app.tasks.list(&filter).await?;
        let tasks: Vec<(TaskKey, Arming)> = tasks.iter().filter_map(identity).collect();
        let answers = match tasks.is_empty() {
            true => Vec::new(),
            false => app.tasks.cancel_if(&tasks).await?,
        };
        let sent = progress.update(|line| {
            for answer in answers {
                match answer {
                    IfSame::Same(CancelAnswer::Cancelled) => line.tasks += 1,
                    IfSame::Same(CancelAnswer::Running) => line.running += 1,
                    IfSame::Same(_) | IfSame::Other => line.skipped += 1,
                }
            }
        });
        filter.cursor = next;
        if filter.cursor.is_none() || sent.is_break() {
            return Ok(());
        }
    }
}

fn identity(task: &TaskRecord) -> Option<(TaskKey, Arming)> {
    let arming: Arming = task.id.parse().ok()?;
    Some((task.key.clone(), arming))
}

fn is_running(task: &TaskRecord) -> bool {
    task.state == TaskState::Running
}
