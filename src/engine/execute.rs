//! Execute stage: runs one claimed task, from its claim to its outcome.

pub mod running;
mod supervise;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::running::RunningHandlers;
use self::supervise::supervise;
use super::activity::Activity;
use super::conditions::Conditions;
use super::health::LedgerHealth;
use super::lifecycle::Lifecycle;
use super::occurrence::Occurrences;
use super::pauses::PauseWatch;
use super::queue::permits::Permits;
use super::reports::{Reporter, RunStarted};
use super::spans::{self, Contexts, Span};
use super::suspects::Suspects;
use crate::clock::LedgerClock;
use crate::handler::{HandlerError, Route, Router, TaskContext};
use crate::ledger::{Claim, Claims, Ledger, Renewal, Settled};
use crate::task::{Outcome, PAYLOAD_BYTES_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use crate::telemetry::DropReason;
use crate::timer::Cause;
use crate::trace::Tracer;

/// A claimed task, with the permits to run it.
pub struct Claimed {
    /// The claim.
    pub claim: Claim,
    /// The route that runs the task.
    pub route: Route,
    /// The slot of the process and the permit of the route.
    pub permits: Permits,
    /// The spans so far.
    pub contexts: Contexts,
}

impl Claimed {
    /// The end of a task whose handler was not called.
    fn not_run(self, outcome: Outcome) -> (Ended, Permits) {
        let Self {
            claim,
            route,
            permits,
            contexts: _,
        } = self;
        let ended = Ended {
            claim,
            route,
            outcome,
            result: None,
            reported: None,
            span: None,
        };
        (ended, permits)
    }
}

/// A claimed task whose run has started, here or at a worker.
pub struct Started {
    /// The claim.
    pub claim: Claim,
    /// The route that runs the task.
    pub route: Route,
    /// Released when the run has ended.
    pub permits: Permits,
    /// What the handler or the worker gets.
    pub context: TaskContext,
    /// The span of the run.
    pub span: Span,
}

impl Started {
    /// Counts and logs the start.
    pub fn report(&self, reporter: &Reporter) {
        RunStarted {
            claim: &self.claim,
            route: &self.route.name,
            queue: self.route.pull.as_ref().map(|pull| &*pull.queue),
            lateness_ms: self.context.lateness_ms(),
        }
        .emit(reporter);
    }

    /// Ends the run, and begins its settlement.
    pub fn end(
        self,
        outcome: Outcome,
        result: Option<String>,
        tracer: Option<&dyn Tracer>,
    ) -> (Ended, Permits) {
        let Self {
            claim,
            route,
            permits,
            context: _,
            span,
        } = self;
        let ended = Ended {
            span: spans::settling(tracer, span, &claim, &route, &outcome),
            claim,
            route,
            outcome,
            result,
            reported: None,
        };
        (ended, permits)
    }
}

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

impl Reported {
    /// No worker has received the task: it is given to another one, and no attempt is counted.
    pub fn unreceived() -> Self {
        let (answer, _) = oneshot::channel();
        Self {
            worker: String::new(),
            answer,
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
    pub conditions: Conditions,
    pub router: Arc<Router>,
    pub pauses: Arc<PauseWatch>,
    pub suspects: Arc<Suspects>,
    pub running: Arc<RunningHandlers>,
    pub sweep: Arc<Activity>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Executor {
    /// Runs a claimed task and sends its outcome to the settle stage. The permits are released afterwards.
    pub async fn run(
        self: Arc<Self>,
        claimed: Claimed,
        interrupted: CancellationToken,
        ended: mpsc::Sender<Ended>,
    ) {
        let (run, permits) = match self.admit(claimed).await {
            Ok(admitted) => self.run_with_care(admitted, &interrupted).await,
            Err(not_run) => not_run,
        };
        // Bounded: when the ledger is slow, runs wait here and keep their slots, and no more tasks are claimed.
        let sent = ended.send(run).await;
        drop(permits);
        sent.unwrap_or_else(|_| {
            tracing::debug!("stopped before a run was settled; its lease will expire")
        });
    }

    /// Admits a claim to its run, here or at a worker. Otherwise returns how it ended: its payload is too long, its leases
    /// ran out too often, it was paused after it was signalled, it is an occurrence that is missed or becomes a task of its
    /// own, it waits for other tasks, or it comes too late.
    async fn admit(&self, mut claimed: Claimed) -> Result<Claimed, (Ended, Permits)> {
        let Claimed { claim, route, .. } = &claimed;
        let refusal = match unfit(claim) {
            Some(outcome) => Some(outcome),
            None => match self.instead_of_running(claim).await {
                // It needs no start.
                Some(outcome) => {
                    claimed.permits.give_start_back();
                    Some(outcome)
                }
                None => self.too_late(claim, route),
            },
        };
        match refusal {
            Some(outcome) => Err(claimed.not_run(outcome)),
            None => Ok(claimed),
        }
    }

    /// Outcome of a claim that is not run, and so needs no start. `None` if the claim is to be run.
    async fn instead_of_running(&self, claim: &Claim) -> Option<Outcome> {
        if !self.pauses.may_start(claim) {
            self.reporter.metrics.dropped(DropReason::Paused, 1);
            return Some(Outcome::NotStarted);
        }
        match claim.recurrence.as_deref() {
            Some(recurrence) => self.occurrences.instead_of_running(claim, recurrence).await,
            None => self.conditions.instead_of_running(claim).await,
        }
    }

    /// Runs the task; suspects one at a time, and more together once some have ended by themselves.
    async fn run_with_care(
        &self,
        claimed: Claimed,
        interrupted: &CancellationToken,
    ) -> (Ended, Permits) {
        if claimed.claim.attempt.crashes < SUSPECT_CRASHES {
            return self.handle(claimed, interrupted).await;
        }
        // The task may have taken its daemon down twice: at worst it takes the next one down alone. Other suspects are
        // released, so that they do not keep slots while they wait for their turn, and not claimed until then.
        let Some(turn) = self.suspects.start(claimed.claim.lease.arming) else {
            return claimed.not_run(Outcome::NotStarted);
        };
        if turn.is_shared && !self.pardon(&claimed.claim).await {
            return claimed.not_run(Outcome::NotStarted);
        }
        let ended = self.handle(claimed, interrupted).await;
        turn.end();
        if self.suspects.wait() {
            self.sweep.activate(Cause::Room);
        }
        ended
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

    /// Runs the handler of an admitted task.
    async fn handle(&self, claimed: Claimed, interrupted: &CancellationToken) -> (Ended, Permits) {
        let run = self.start(claimed, interrupted);
        run.report(&self.reporter);
        let (context, route) = (&run.context, &run.route);
        let layers = self.router.around(context.key(), route);
        let started = Instant::now();
        let running = self.running.begin();
        let outcome = supervise(context, route, &layers, interrupted).await;
        drop(running);
        // The handler's own transaction may have settled the task before the run failed or was aborted.
        let outcome = context.concluded().unwrap_or(outcome);
        layers.ended(context, &outcome);
        self.reporter
            .metrics
            .ran(&route.name, outcome.as_str(), started.elapsed());
        let result = context.result();
        run.end(outcome, result, self.tracer.as_deref())
    }

    /// Starts the run of a worker. Otherwise returns how the task ended: it is not admitted, or the middleware of its route
    /// refuses it, which runs without a handler.
    pub async fn start_for_worker(&self, claimed: Claimed) -> Result<Started, (Ended, Permits)> {
        let never = CancellationToken::new();
        let run = self.start(self.admit(claimed).await?, &never);
        let layers = self.router.around(run.context.key(), &run.route);
        if !layers.is_empty() {
            let accepted = supervise(&run.context, &run.route, &layers, &never).await;
            if accepted != Outcome::Succeeded {
                layers.ended(&run.context, &accepted);
                return Err(run.end(accepted, None, self.tracer.as_deref()));
            }
        }
        Ok(run)
    }

    /// Starts the run of an admitted task: its span and its context.
    fn start(&self, claimed: Claimed, interrupted: &CancellationToken) -> Started {
        let Claimed {
            claim,
            route,
            permits,
            contexts,
        } = claimed;
        let late = self.clock.now().since(claim.due_at.max(claim.created));
        let lateness_ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        let span = contexts.run(self.tracer.as_deref(), &claim, &route, lateness_ms);
        let context = TaskContext::new(
            claim.clone(),
            lateness_ms,
            Some(&route.retry),
            Arc::clone(&self.ledger),
            interrupted.clone(),
            span.as_ref().and_then(|span| span.context()),
        );
        Started {
            claim,
            route,
            permits,
            context,
            span,
        }
    }

    /// Outcome of a claim that comes too late for its route, or for this process.
    fn too_late(&self, claim: &Claim, route: &Route) -> Option<Outcome> {
        if self.lifecycle.stopping.is_cancelled() {
            return Some(Outcome::NotStarted);
        }
        let limit = route.expire_after?;
        if Conditions::of(claim).is_some() {
            // It has waited for other tasks.
            return None;
        }
        let late = self.clock.now().since(claim.attempt.since);
        (late > limit).then_some(Outcome::Expired { late, limit })
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
