//! Execute stage: runs one claimed task, from its claim to its outcome.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::activity::Activity;
use super::health::LedgerHealth;
use super::lifecycle::Lifecycle;
use super::occurrence::Occurrences;
use super::pauses::PauseWatch;
use super::queue::permits::Permits;
use super::reports::{Reporter, RunStarted};
use super::spans::{self, Contexts, Span};
use super::suspects::Suspects;
use crate::clock::LedgerClock;
use crate::handler::{HandlerError, Layers, Route, Router, TaskContext};
use crate::ledger::{Claim, Claims, Ledger, Renewal, Settled};
use crate::task::{Outcome, PAYLOAD_BYTES_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use crate::telemetry::DropReason;
use crate::timer::Cause;
use crate::trace::{self, Tracer};

/// Time allowed for an aborted run to release its thread.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// A run that has ended.
pub struct Ended {
    /// The claim of the task.
    pub claim: Claim,
    /// The route that ran it.
    pub route: Route,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// The handler's result to be stored, as JSON.
    pub result: Option<String>,
    /// The worker that reports the end of a pulled task; `None` for a run of this process.
    pub reported: Option<Reported>,
    /// The span of its settlement.
    pub span: Span,
}

/// The worker that ran a pulled task, as it reports how the run ended.
pub struct Reported {
    /// Its name, for the history of the task.
    pub worker: String,
    /// Receives the result of the settlement. Dropped if the ledger refuses the data for good.
    pub answer: oneshot::Sender<Settled>,
}

impl Ended {
    /// A claimed task that no worker has received: it is given to another one, and no attempt is counted.
    pub fn unreceived(claim: Claim, route: Route) -> Self {
        let (answer, _) = oneshot::channel();
        Self {
            claim,
            route,
            outcome: Outcome::NotStarted,
            result: None,
            reported: Some(Reported {
                worker: String::new(),
                answer,
            }),
            span: None,
        }
    }
}

/// How a claimed task was run.
pub struct Ran {
    pub outcome: Outcome,
    /// The handler's result to be stored.
    pub result: Option<String>,
    /// The span of the settlement.
    pub span: Span,
}

impl Ran {
    /// A task whose handler was not called.
    fn not(outcome: Outcome) -> Self {
        Self {
            outcome,
            result: None,
            span: None,
        }
    }
}

/// The execute stage: runs claimed tasks.
pub struct Executor {
    /// The whole ledger, for handlers that open transactions on it.
    pub ledger: Arc<dyn Ledger>,
    pub claims: Arc<dyn Claims>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub occurrences: Occurrences,
    pub router: Arc<Router>,
    pub pauses: Arc<PauseWatch>,
    pub suspects: Arc<Suspects>,
    pub sweep: Arc<Activity>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Executor {
    /// Runs a claimed task and sends its outcome to the settle stage. The permits are released afterwards.
    pub async fn run(
        self: Arc<Self>,
        claim: Claim,
        route: Route,
        contexts: Contexts,
        interrupted: CancellationToken,
        mut permits: Permits,
        ended: mpsc::Sender<Ended>,
    ) {
        let Ran {
            outcome,
            result,
            span,
        } = match unfit(&claim) {
            Some(outcome) => Ran::not(outcome),
            None => match self.instead_of_running(&claim).await {
                Some(outcome) => {
                    permits.give_start_back();
                    Ran::not(outcome)
                }
                None => {
                    self.run_with_care(&claim, &route, contexts, &interrupted)
                        .await
                }
            },
        };
        // Bounded: when the ledger is slow, runs wait here and keep their slots, and no more tasks are claimed.
        let sent = ended
            .send(Ended {
                claim,
                route,
                outcome,
                result,
                reported: None,
                span,
            })
            .await;
        drop(permits);
        sent.unwrap_or_else(|_| {
            tracing::debug!("stopped before a run was settled; its lease will expire")
        });
    }

    /// Outcome of a claim that is not run, and so needs no start: its task was paused after it was signalled, or is an
    /// occurrence that is missed or becomes a task of its own. `None` if the claim is to be run.
    async fn instead_of_running(&self, claim: &Claim) -> Option<Outcome> {
        if !self.pauses.may_start(claim) {
            self.reporter.metrics.dropped(DropReason::Paused, 1);
            return Some(Outcome::NotStarted);
        }
        match claim.recurrence.as_deref() {
            Some(recurrence) => self.occurrences.instead_of_running(claim, recurrence).await,
            None => None,
        }
    }

    /// Runs the task; suspects one at a time, and more together once some have ended by themselves.
    async fn run_with_care(
        &self,
        claim: &Claim,
        route: &Route,
        contexts: Contexts,
        ended: &CancellationToken,
    ) -> Ran {
        match claim.attempt.crashes {
            // The task may have taken its daemon down twice: at worst it takes the next one down alone. Other suspects
            // are released, so that they do not keep slots while they wait for their turn, and not claimed until then.
            SUSPECT_CRASHES.. => match self.suspects.start(claim.lease.arming) {
                Some(turn) => {
                    if turn.is_shared && !self.pardon(claim).await {
                        return Ran::not(Outcome::NotStarted);
                    }
                    let ran = self.handle(claim, route, contexts, ended).await;
                    turn.end();
                    if self.suspects.wait() {
                        self.sweep.activate(Cause::Room);
                    }
                    ran
                }
                None => Ran::not(Outcome::NotStarted),
            },
            _ => self.handle(claim, route, contexts, ended).await,
        }
    }

    /// Records that a death of the daemon is not to bury this suspect, since others run beside it. False if that could not
    /// be written.
    async fn pardon(&self, claim: &Claim) -> bool {
        match self.claims.pardon(&claim.lease).await {
            Ok(renewal) => renewal == Renewal::Held,
            Err(error) => {
                self.health
                    .log_failure("run a suspect beside others", &error);
                false
            }
        }
    }

    async fn handle(
        &self,
        claim: &Claim,
        route: &Route,
        contexts: Contexts,
        ended: &CancellationToken,
    ) -> Ran {
        if let Some(outcome) = self.too_late(claim, route) {
            return Ran::not(outcome);
        }
        let lateness_ms = self.lateness_ms(claim);
        RunStarted {
            claim,
            route: &route.name,
            lateness_ms,
        }
        .emit(&self.reporter);

        let span = contexts.run(self.tracer.as_deref(), claim, route, lateness_ms);
        let context = TaskContext::new(
            claim.clone(),
            lateness_ms,
            Some(route.retry.max_attempts),
            Arc::clone(&self.ledger),
            ended.clone(),
            span.as_ref().and_then(|span| span.context()),
        );
        let layers = self.router.around(&claim.key, route);
        let started = Instant::now();
        let outcome = supervise(&context, route, &layers, ended).await;
        // The handler's own transaction may have settled the task before the run failed or was aborted.
        let outcome = context.concluded().unwrap_or(outcome);
        layers.ended(&context, &outcome);
        self.reporter
            .metrics
            .ran(&route.name, outcome.as_str(), started.elapsed());
        Ran {
            span: spans::settling(self.tracer.as_deref(), span, claim, route, &outcome),
            outcome,
            result: context.result(),
        }
    }

    /// Starts the run of a worker; an error if the worker must not get the task. Runs the middleware of the route without
    /// a handler: it may refuse the task.
    pub async fn prepare(
        &self,
        claim: &Claim,
        route: &Route,
        permits: &mut Permits,
        contexts: Contexts,
    ) -> Result<(TaskContext, Span), Ran> {
        if let Some(outcome) = unfit(claim) {
            return Err(Ran::not(outcome));
        }
        if let Some(outcome) = self.instead_of_running(claim).await {
            permits.give_start_back();
            return Err(Ran::not(outcome));
        }
        if let Some(outcome) = self.too_late(claim, route) {
            return Err(Ran::not(outcome));
        }
        let lateness_ms = self.lateness_ms(claim);
        let span = contexts.run(self.tracer.as_deref(), claim, route, lateness_ms);
        let never = CancellationToken::new();
        let ledger = Arc::clone(&self.ledger);
        let context = TaskContext::new(
            claim.clone(),
            lateness_ms,
            Some(route.retry.max_attempts),
            ledger,
            never.clone(),
            span.as_ref().and_then(|span| span.context()),
        );
        let layers = self.router.around(&claim.key, route);
        if !layers.is_empty() {
            let accepted = supervise(&context, route, &layers, &never).await;
            if accepted != Outcome::Succeeded {
                layers.ended(&context, &accepted);
                return Err(Ran {
                    span: spans::settling(self.tracer.as_deref(), span, claim, route, &accepted),
                    outcome: accepted,
                    result: None,
                });
            }
        }
        Ok((context, span))
    }

    /// Outcome of a claim that comes too late for its route, or for this process.
    fn too_late(&self, claim: &Claim, route: &Route) -> Option<Outcome> {
        if self.lifecycle.stopping.is_cancelled() {
            return Some(Outcome::NotStarted);
        }
        let limit = route.expire_after?;
        let late = self.clock.now().since(claim.attempt.since);
        (late > limit).then_some(Outcome::Expired { late, limit })
    }

    /// Milliseconds from when the run could start until now.
    pub fn lateness_ms(&self, claim: &Claim) -> u64 {
        let due = claim.due_at.max(claim.created);
        let late = self.clock.now().since(due);
        u64::try_from(late.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Outcome of a claim whose task must not run: its payload is too long, or its leases ran out too often.
fn unfit(claim: &Claim) -> Option<Outcome> {
    match (claim.oversize, claim.attempt.crashes) {
        (Some(bytes), _) => Some(too_long(bytes)),
        (None, POISON_CRASHES..) => Some(Outcome::Poisoned),
        (None, _) => None,
    }
}

/// Outcome of a task whose payload is too long: it was not read, so the handler would run without its input.
fn too_long(bytes: u64) -> Outcome {
    let error = format!("payload has {bytes} bytes, expected at most {PAYLOAD_BYTES_MAX}");
    HandlerError::permanent(error).into_outcome()
}

/// Runs the handler in a task of its own, so that a panic or a hang becomes an outcome.
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

/// Span of the handler's log lines. Without a trace it is a span at DEBUG.
fn span_of(context: &TaskContext, route: &Route) -> tracing::Span {
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
    // Arguments are not logged above DEBUG.
    if tracing::enabled!(tracing::Level::DEBUG) {
        span.record("task.key", key.as_str());
    }
    span
}

struct AbortOnDrop(JoinHandle<Result<(), HandlerError>>);

impl AbortOnDrop {
    /// Aborts the handler. If it has just finished by itself, its own outcome counts.
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
