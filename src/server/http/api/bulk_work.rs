//! A running bulk operation: its progress, and its entry in the audit log.

use std::ops::ControlFlow;

use tokio::sync::OwnedSemaphorePermit;

use super::progress::{Progress, ProgressLine};
use crate::http::access::Caller;
use crate::http::app_state::AppState;
use crate::http::events::Topic;
use crate::http::problem::{Problem, ProblemKind};
use crate::net::audit_log::Change;

/// Progress of a running bulk operation, and the client that receives it.
pub struct BulkProgress {
    app: AppState,
    line: ProgressLine,
    progress: Progress,
    request: BulkRequest,
    stopped: bool,
}

/// Caller, verb, filter, reason and concurrency permit of a bulk operation.
pub struct BulkRequest {
    pub caller: Caller,
    pub verb: &'static str,
    pub filter: String,
    pub reason: String,
    pub _room: OwnedSemaphorePermit,
}

impl BulkProgress {
    /// Creates the progress of an operation that has changed no task yet.
    pub fn new(app: AppState, progress: Progress, request: BulkRequest) -> Self {
        Self {
            app,
            request,
            line: ProgressLine::default(),
            progress,
            stopped: false,
        }
    }

    /// Updates the numbers and sends them. Breaks if the operation has to end.
    pub fn update(&mut self, change: impl FnOnce(&mut ProgressLine)) -> ControlFlow<()> {
        change(&mut self.line);
        self.app.events.touch(Topic::Tasks);
        let sent = self.progress.send(&self.line);
        self.stopped |= sent.is_break();
        sent
    }

    /// Writes the audit log. Returns the last line.
    pub async fn end(self, ended: Result<(), Problem>) -> ProgressLine {
        let BulkRequest {
            caller,
            verb,
            filter,
            reason,
            _room,
        } = self.request;
        let tasks = self.line.tasks + self.line.running;
        if tasks > 0 {
            let change = Change::of_many(verb, filter, tasks).because(reason);
            self.app.audit(&caller, change).await;
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
