//! One run of a handler, without an engine.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::kit::START;
use crate::client::{Task, TaskClient};
use crate::clock::LedgerClock;
use crate::handler::{HandlerError, Handlers, TaskContext};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{Claimant, Ledger};
use crate::timer::ledger_poll::LedgerPoll;

/// A run with which a test calls a handler.
///
/// ```
/// use lapsed::testing::TestRun;
/// use lapsed::{HandlerError, Task, TaskContext};
///
/// /// Gives up on the third attempt.
/// async fn close(ctx: TaskContext, (order,): (u64,)) -> Result<(), HandlerError> {
///     match ctx.attempt() {
///         3.. => Err(HandlerError::permanent(format!("order {order} is gone"))),
///         _ => Err(HandlerError::new("not yet")),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let run = TestRun::of(Task::new("Order", "close", [42])?).attempt(3);
/// let error = close(run.context().await, (42,)).await.unwrap_err();
/// assert_eq!(error.to_string(), "order 42 is gone");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TestRun {
    task: Task,
    attempt: u16,
    lateness: Duration,
}

impl TestRun {
    /// The first attempt of this task, on time.
    pub fn of(task: Task) -> Self {
        Self {
            task,
            attempt: 1,
            lateness: Duration::ZERO,
        }
    }

    /// Sets the number of the attempt; 1 is the first.
    #[must_use]
    pub fn attempt(self, attempt: u16) -> Self {
        Self { attempt, ..self }
    }

    /// Sets the lateness.
    #[must_use]
    pub fn late_by(self, lateness: Duration) -> Self {
        Self { lateness, ..self }
    }

    /// Returns the context of the run.
    ///
    /// # Panics
    /// If the task is invalid, for example if its payload is not JSON.
    pub async fn context(&self) -> TaskContext {
        let Self {
            task,
            attempt,
            lateness,
        } = self;
        let clock = LedgerClock::frozen_at(START);
        let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::on(clock.clone()));
        let timer = Arc::new(LedgerPoll::new(clock.clone()));
        let tasks = TaskClient::with_parts(Arc::clone(&ledger), timer);
        let created = tasks.create(task.clone(), START).await;
        let receipt = created.unwrap_or_else(|error| panic!("`{}`: {error}", task.key()));
        clock.set(START.plus(*lateness));
        let claimant = Claimant {
            daemon: "test".to_owned(),
            lease: Duration::from_secs(3600),
        };
        let claims = ledger.claim(&[receipt.arming()], &claimant).await;
        let claim = claims.ok().and_then(|claims| claims.into_iter().next());
        let mut claim = claim.expect("the task was just created, and is due");
        claim.attempt.number = *attempt;
        let lateness_ms = u64::try_from(lateness.as_millis()).unwrap_or(u64::MAX);
        let stopping = CancellationToken::new();
        TaskContext::new(claim, lateness_ms, None, ledger, stopping, None)
    }

    /// Calls the handler of the task inside its middleware and `before` hooks.
    ///
    /// # Errors
    /// Those of the handler and its middleware.
    ///
    /// # Panics
    /// If the task has no handler, as for [`context`](Self::context), and if the handler panics.
    pub async fn call<S>(&self, handlers: &Handlers<S>) -> Result<(), HandlerError> {
        let handlers = handlers.registry();
        let result = handlers.run(self.context().await).await;
        result.unwrap_or_else(|| {
            panic!(
                "no handler is registered for `{}`; there are {:?}",
                self.task.key(),
                handlers.names()
            )
        })
    }
}
