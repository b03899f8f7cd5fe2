//! The ready list of a framework as the target of a route. The framework's workers take the jobs from there.

use async_trait::async_trait;

use super::{Handler, HandlerError, TaskContext};
use crate::config::{DelayedSetConfig, ReadyList, job_member};
use crate::redis::{Commands, DelayedSet, DueJob, MovedJob};

/// Moves the job of a task from its delayed set to the ready list, unchanged. The run succeeds when the job is in the
/// list, or when another program has removed it from the set.
#[derive(Debug)]
pub(super) struct Move {
    config: DelayedSetConfig,
    set: Result<DelayedSet, String>,
}

impl Move {
    /// Creates a target from its configuration, and its connection or the reason why there is none.
    pub(super) fn new(config: DelayedSetConfig, commands: Result<Commands, String>) -> Self {
        let set =
            commands.map(|commands| DelayedSet::new(commands, config.set(), config.register()));
        Self { config, set }
    }
}

#[async_trait]
impl Handler for Move {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let unusable = |error| HandlerError::new(format!("{}: {error}", self.config));
        let set = self.set.as_ref().map_err(unusable)?;
        let Some(member) = context.payload_json().and_then(job_member) else {
            return Err(HandlerError::permanent(format!(
                "{}: the payload is no job, expected the member of the set",
                self.config
            )));
        };
        let key = context.key();
        let ReadyList {
            list,
            command,
            notify,
        } = self.config.ready(key);
        let moved = set.move_due(DueJob {
            key: key.as_str(),
            member: &member,
            due_ms: context.due().0,
            list: &list,
            command,
            notify: notify.as_deref(),
        });
        let moved = moved.await.map_err(|error| {
            HandlerError::new(format!("{}: {}", self.config, HandlerError::from(error)))
        })?;
        context.keep_result(match moved {
            MovedJob::Moved | MovedJob::Before => format!("moved to `{list}`"),
            MovedJob::Lost => format!("Redis had lost the job: pushed to `{list}`"),
            MovedJob::Gone => {
                "another program has removed the job: the framework's own poller has moved it, or a program has cancelled it".to_owned()
            }
        })
    }
}
