//! A change of many tasks that goes on: its numbers, its progress, and its entry in the audit log.

use std::ops::ControlFlow;

use tokio::sync::OwnedSemaphorePermit;

use super::progress::{Progress, ProgressLine};
use crate::http::access::Caller;
use crate::http::audit::Change;
use crate::http::events::Topic;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::site::Site;

/// The numbers of a work that goes on, and whom they are told.
pub struct Told {
    site: Site,
    line: ProgressLine,
    progress: Progress,
    by: By,
    stopped: bool,
}

/// Who asked for a change of many tasks, what it is, and its room among others.
pub struct By {
    pub caller: Caller,
    pub verb: &'static str,
    pub filter: String,
    pub _room: OwnedSemaphorePermit,
}

impl Told {
    /// Nothing is done yet.
    pub fn new(site: Site, progress: Progress, by: By) -> Self {
        Self {
            site,
            by,
            line: ProgressLine::default(),
            progress,
            stopped: false,
        }
    }

    /// Changes the numbers and tells them. Breaks if the work has to end.
    pub fn tell(&mut self, change: impl FnOnce(&mut ProgressLine)) -> ControlFlow<()> {
        change(&mut self.line);
        self.site.events.touch(Topic::Tasks);
        let told = self.progress.tell(&self.line);
        self.stopped |= told.is_break();
        told
    }

    /// Writes the audit log. Returns the last line.
    pub async fn end(self, ended: Result<(), Problem>) -> ProgressLine {
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
