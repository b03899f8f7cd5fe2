//! Middleware that logs slow runs.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{HandlerError, Middleware, Next, TaskContext};

/// Middleware that logs a warning when a run exceeds a duration, at that moment, and another one when the run ends.
///
/// In the configuration of a route: `slow_after = "5s"`.
#[derive(Debug, Clone, Copy)]
pub struct SlowLog {
    slow_after: Duration,
}

impl SlowLog {
    /// Warns when a run has taken this long.
    pub fn after(slow_after: Duration) -> Self {
        Self { slow_after }
    }
}

#[async_trait]
impl Middleware for SlowLog {
    async fn around(&self, context: TaskContext, next: Next) -> Result<(), HandlerError> {
        let (class_method, id) = (context.key().class_method().to_owned(), context.id());
        let attempt = context.attempt();
        let started = Instant::now();
        let mut run = std::pin::pin!(next.run(context));
        if let Ok(result) = tokio::time::timeout(self.slow_after, &mut run).await {
            return result;
        }
        let slow_after_ms = ms(self.slow_after);
        tracing::warn!(
            task.class_method = class_method,
            task.id = id,
            task.attempt = attempt,
            slow_after_ms,
            "run is slow, and still running"
        );
        let result = run.await;
        tracing::warn!(
            task.class_method = class_method,
            task.id = id,
            task.attempt = attempt,
            duration_ms = ms(started.elapsed()),
            "slow run is over"
        );
        result
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
