//! The spans of a run: its claim, the run itself, and its settlement. Without a tracer there are none.

use tokio::time::Instant;

use crate::handler::Route;
use crate::ledger::{Claim, Settled};
use crate::task::{Envelope, Outcome, Traceparent};
use crate::trace::{RunFacts, SpanEnd, SpanStart, Step, TaskSpan, Tracer};

/// A span that is recorded, if there is a tracer.
pub type Span = Option<Box<dyn TaskSpan>>;

/// The contexts that a claimed task has with a tracer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contexts {
    /// The creator of the task; `None` if its trace begins with the claim.
    creator: Option<Traceparent>,
    claim: Option<Traceparent>,
}

impl Contexts {
    /// Records the span of a claim that was made between `began` and now.
    pub fn claimed(
        tracer: Option<&dyn Tracer>,
        claim: &Claim,
        route: &Route,
        began: Instant,
    ) -> Self {
        let Some(tracer) = tracer else {
            return Self::default();
        };
        let creator = claim.payload.as_deref().and_then(Envelope::creator);
        let span = tracer.start(SpanStart {
            step: Step::Claim,
            parent: creator,
            began,
            key: &claim.key,
            run: Some(facts(claim, route, None)),
        });
        let context = span.context();
        span.end(SpanEnd {
            result: "won",
            error: None,
        });
        Self {
            creator,
            claim: context,
        }
    }

    /// Starts the span of the run. Its parent is the creator, as tools expect of a consumer's span.
    pub fn run(
        &self,
        tracer: Option<&dyn Tracer>,
        claim: &Claim,
        route: &Route,
        lateness_ms: u64,
    ) -> Span {
        Some(tracer?.start(SpanStart {
            step: Step::Run,
            parent: self.creator.or(self.claim),
            began: Instant::now(),
            key: &claim.key,
            run: Some(facts(claim, route, Some(lateness_ms))),
        }))
    }
}

/// Ends the span of a run, and starts that of its settlement.
pub fn settling(
    tracer: Option<&dyn Tracer>,
    run: Span,
    claim: &Claim,
    route: &Route,
    outcome: &Outcome,
) -> Span {
    let (tracer, run) = (tracer?, run?);
    let parent = run.context();
    let error = outcome.error();
    run.end(SpanEnd {
        result: outcome.as_str(),
        error: Some(error.as_str()).filter(|error| !error.is_empty()),
    });
    Some(tracer.start(SpanStart {
        step: Step::Settle,
        parent,
        began: Instant::now(),
        key: &claim.key,
        run: Some(facts(claim, route, None)),
    }))
}

/// Ends the span of a run whose worker did not report to this daemon within its lease.
pub fn unreported(run: Span) {
    if let Some(run) = run {
        run.end(SpanEnd {
            result: "unreported",
            error: Some("the worker did not report to this daemon before its lease ended"),
        });
    }
}

/// Ends the span of a settlement.
pub fn settled(span: Span, wrote: Option<Settled>) {
    let Some(span) = span else { return };
    let (result, error) = match wrote {
        Some(Settled::Applied) => ("written", None),
        Some(Settled::Cancelled) => ("cancelled", None),
        Some(Settled::Ended) => ("ended", None),
        Some(Settled::ByHandler) => ("by_handler", None),
        Some(Settled::Superseded) => ("superseded", None),
        Some(Settled::Fenced) => ("fenced", Some("the claim was lost")),
        Some(Settled::Locked) => ("locked", Some("the row is locked")),
        None => ("refused", Some("the ledger refuses the data")),
    };
    span.end(SpanEnd { result, error });
}

fn facts<'a>(claim: &Claim, route: &'a Route, lateness_ms: Option<u64>) -> RunFacts<'a> {
    RunFacts {
        arming: claim.lease.arming,
        attempt: claim.attempt.number,
        route: &route.name,
        lateness_ms,
    }
}
