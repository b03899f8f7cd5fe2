//! The execute stage: one run of one task, from its claim to its outcome.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use super::deps::Deps;
use super::occurrence;
use super::pauses::PauseWatch;
use super::queue::permits::Permits;
use crate::handler::{HandlerError, Layers, Route, TaskContext};
use crate::ledger::Claim;
use crate::task::{Outcome, PAYLOAD_BYTES_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use crate::trace;

/// How long a run that was told to end may take to let go of its thread.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// A run that is over.
pub struct Ended {
    /// What was run.
    pub claim: Claim,
    /// By what.
    pub route: Route,
    /// How it ended.
    pub outcome: Outcome,
    /// JSON that its handler wants to be kept.
    pub result: Option<String>,
}

/// The execute stage: runs claimed tasks.
pub struct Executor {
    deps: Arc<Deps>,
    pauses: Arc<PauseWatch>,
    /// Taken by a run that is suspected of killing its daemon: one at a time.
    suspects: Semaphore,
}

impl Executor {
    /// An execute stage in which nothing runs.
    pub fn new(deps: Arc<Deps>, pauses: Arc<PauseWatch>) -> Self {
        Self {
            deps,
            pauses,
            suspects: Semaphore::new(1),
        }
    }

    /// Runs a claimed task and sends its outcome to the settle stage. The permits are free again afterwards.
    pub async fn run(
        self: Arc<Self>,
        claim: Claim,
        route: Route,
        interrupted: CancellationToken,
        mut permits: Permits,
        ended: mpsc::Sender<Ended>,
    ) {
        let (outcome, result) = match (claim.oversize, claim.attempt.crashes) {
            (Some(bytes), _) => (too_long(bytes), None),
            (None, POISON_CRASHES..) => (Outcome::Poisoned, None),
            (None, _) => match self.instead_of_running(&claim).await {
                Some(outcome) => {
                    permits.give_start_back();
                    (outcome, None)
                }
                None => self.run_with_care(&claim, &route, &interrupted).await,
            },
        };
        // Bounded: when the ledger is slow, runs wait here with their slots and no more are claimed.
        let sent = ended
            .send(Ended {
                claim,
                route,
                outcome,
                result,
            })
            .await;
        drop(permits);
        sent.unwrap_or_else(|_| {
            tracing::debug!("stopped before a run was settled; its lease will run out")
        });
    }

    /// What becomes of a claim that is not to be run, and so needs no start: what was paused since it was taken in
    /// waits, and with an occurrence something else may be done.
    async fn instead_of_running(&self, claim: &Claim) -> Option<Outcome> {
        if !self.pauses.may_start(claim) {
            self.deps.metrics.dropped("paused", 1);
            return Some(Outcome::Interrupted);
        }
        occurrence::instead_of_running(&self.deps, claim).await
    }

    /// How it ended, and what the handler wants to be kept of it.
    async fn run_with_care(
        &self,
        claim: &Claim,
        route: &Route,
        ended: &CancellationToken,
    ) -> (Outcome, Option<String>) {
        match claim.attempt.crashes {
            // It may have taken its daemon down twice: at worst it takes the next one down alone. The others go back,
            // so that they do not hold slots while they wait for their turn.
            SUSPECT_CRASHES.. => match self.suspects.try_acquire() {
                Ok(_alone) => self.handle(claim, route, ended).await,
                Err(_) => (Outcome::Interrupted, None),
            },
            _ => self.handle(claim, route, ended).await,
        }
    }

    async fn handle(
        &self,
        claim: &Claim,
        route: &Route,
        ended: &CancellationToken,
    ) -> (Outcome, Option<String>) {
        if self.deps.lifecycle.stopping.is_cancelled() {
            return (Outcome::Interrupted, None);
        }
        if let Some(limit) = route.expire_after {
            let late = self.deps.ledger.clock().now().since(claim.attempt.since);
            if late > limit {
                return (Outcome::Expired { late, limit }, None);
            }
        }
        let due = claim.due_at.max(claim.created);
        let lateness_ms = u64::try_from(self.deps.ledger.clock().now().since(due).as_millis())
            .unwrap_or(u64::MAX);
        self.deps.metrics.started(&route.name, lateness_ms);
        tracing::debug!(task.key = %claim.key, task.attempt = claim.attempt.number, lateness_ms, route = &*route.name, "run starts");

        let context = TaskContext::new(
            claim.clone(),
            lateness_ms,
            Arc::clone(&self.deps.ledger),
            ended.clone(),
        );
        let layers = self.deps.router.around(&claim.key, route);
        let started = Instant::now();
        let outcome = supervise(&context, route, &layers, ended).await;
        // Its own transaction may have settled it before it failed or was ended.
        let outcome = context.concluded().unwrap_or(outcome);
        layers.ended(&context, &outcome);
        self.deps
            .metrics
            .ran(&route.name, outcome.as_str(), started.elapsed());
        (outcome, context.result())
    }
}

/// A payload that nobody has read: the handler would run without what it needs.
fn too_long(bytes: u64) -> Outcome {
    let error = format!("payload has {bytes} bytes, expected at most {PAYLOAD_BYTES_MAX}");
    HandlerError::permanent(error).into_outcome()
}

/// The handler in a task of its own: a panic or a hang there is an outcome here.
async fn supervise(
    context: &TaskContext,
    route: &Route,
    layers: &Layers,
    ended: &CancellationToken,
) -> Outcome {
    let mut handler = {
        let (layers, handler) = (layers.clone(), Arc::clone(&route.handler));
        let (span, trace) = (span_of(context, route), context.traceparent());
        let context = context.clone();
        let run = async move { layers.run(&handler, context).await };
        AbortOnDrop(tokio::spawn(trace::within(trace, run).instrument(span)))
    };
    tokio::select! {
        biased;
        result = &mut handler.0 => of_result(result),
        () = ended.cancelled() => handler.abort(Outcome::Interrupted).await,
        () = tokio::time::sleep(route.timeout) => handler.abort(Outcome::TimedOut { after: route.timeout }).await,
    }
}

/// What log lines of the handler are found by. A task that has no trace has a span for those who debug only.
fn span_of(context: &TaskContext, route: &Route) -> Span {
    let (key, attempt, route) = (context.key(), context.attempt(), &*route.name);
    let Some(trace) = context.traceparent() else {
        return tracing::debug_span!("run", task.key = %key, task.attempt = attempt, route);
    };
    let span = tracing::info_span!(
        "run",
        task.class_method = key.class_method(),
        task.id = context.id(),
        task.key = tracing::field::Empty,
        task.attempt = attempt,
        route,
        trace_id = trace.trace_id(),
        traceparent = %trace,
    );
    // Arguments are nobody's business above DEBUG.
    if tracing::enabled!(tracing::Level::DEBUG) {
        span.record("task.key", key.as_str());
    }
    span
}

struct AbortOnDrop(JoinHandle<Result<(), HandlerError>>);

impl AbortOnDrop {
    /// Ends the handler; if it had just finished by itself, that counts.
    async fn abort(mut self, outcome: Outcome) -> Outcome {
        self.0.abort();
        match tokio::time::timeout(ABORT_GRACE, &mut self.0).await {
            Ok(Err(error)) if error.is_cancelled() => outcome,
            Ok(result) => of_result(result),
            Err(_) => {
                tracing::error!(
                    "a handler blocks its thread and cannot be ended; use `spawn_blocking` for blocking work"
                );
                outcome
            }
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn of_result(result: Result<Result<(), HandlerError>, JoinError>) -> Outcome {
    match result {
        Ok(Ok(())) => Outcome::Succeeded,
        Ok(Err(error)) => error.into_outcome(),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Outcome::Panicked {
                message: panic_message(&*panic),
            },
            Err(_) => Outcome::Interrupted,
        },
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
