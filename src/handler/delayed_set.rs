//! The ready list of a framework as the target of a route. The framework's workers take the jobs from there.

use std::time::Duration;

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
    /// Length of a lease.
    lease: Duration,
}

impl Move {
    /// Creates a target from its configuration, and its connection or the reason why there is none.
    pub(super) fn new(
        config: DelayedSetConfig,
        commands: Result<Commands, String>,
        lease: Duration,
    ) -> Self {
        let set =
            commands.map(|commands| DelayedSet::new(commands, config.set(), config.register()));
        Self { config, set, lease }
    }

    /// Moves a job. What Redis cannot tell, the ledger does: a command that arrives after the end of its lease moves
    /// nothing that a later run has moved.
    async fn move_due(
        &self,
        set: &DelayedSet,
        job: DueJob<'_>,
        context: &TaskContext,
    ) -> Result<MovedJob, HandlerError> {
        let moved = set.move_due(job).await?;
        if moved != MovedJob::Unconfirmed {
            return Ok(moved);
        }
        context.confirm(self.lease).await?;
        let confirmed = true;
        Ok(set.move_due(DueJob { confirmed, ..job }).await?)
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
        let job = DueJob {
            key: key.as_str(),
            member: &member,
            due_ms: context.due().0,
            list: &list,
            command,
            notify: notify.as_deref(),
            confirmed: false,
        };
        let moved = self.move_due(set, job, &context).await;
        let moved = moved.map_err(|error| match error.is_fenced() {
            true => error,
            false => HandlerError::new(format!("{}: {error}", self.config)),
        })?;
        context.keep_result(match moved {
            MovedJob::Moved | MovedJob::Before => format!("moved to `{list}`"),
            MovedJob::Lost => format!("Redis had lost the job: pushed to `{list}`"),
            MovedJob::Gone | MovedJob::Unconfirmed => {
                "another program has removed the job: the framework's own poller has moved it, or a program has cancelled it".to_owned()
            }
        })
    }
}
