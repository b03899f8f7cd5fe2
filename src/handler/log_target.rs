//! A log line as the target of a route.

use async_trait::async_trait;

use super::{Handler, HandlerError, TaskContext};

/// Logs one line for each task, and succeeds.
#[derive(Debug)]
pub struct Log;

#[async_trait]
impl Handler for Log {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        tracing::info!(
            task.key = %context.key(),
            task.id = context.id(),
            task.attempt = context.attempt(),
            lateness_ms = context.lateness_ms(),
            "task fell due"
        );
        Ok(())
    }
}
