//! Stepper: drives the stages of an engine one task at a time, for tests.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::background::pauses::PauseReader;
use super::execute::Ended;
use super::pipeline::Pipeline;
use super::queue::class::SignalClass;
use super::queue::route_load::RouteLoad;
use super::queue::route_queue::Dequeued;
use crate::handler::Router;
use crate::ledger::{Claim, LedgerError};
use crate::task::{Arming, Outcome, TaskKey};
use crate::timer::{Signal, Source};

/// Claims, runs, judges and settles single tasks as the daemon does, but only on request and without a timer.
pub(crate) struct Stepper {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) pauses: PauseReader,
    pub(super) router: Arc<Router>,
}

/// A run that was settled.
pub(crate) struct Driven {
    pub claim: Claim,
    pub route: Arc<str>,
    pub outcome: Outcome,
}

impl Stepper {
    /// True if a handler or route runs this key.
    pub fn runs(&self, key: &TaskKey) -> bool {
        self.router.runs(key)
    }

    /// Signals one arming and runs its task until it is settled. `None` if the task cannot be claimed now.
    pub async fn drive(&self, key: TaskKey, arming: Arming) -> Result<Option<Driven>, LedgerError> {
        let Pipeline {
            queue,
            leases,
            claimer,
            executor,
            settler,
            ..
        } = &*self.pipeline;
        // A pulled task waits for a worker, and there is none.
        let Some(route) = self.router.find(&key).filter(|route| route.pull.is_none()) else {
            return Ok(None);
        };
        let mut permits = queue.permits(SignalClass::Fresh, 1).await;
        let taken = Dequeued {
            signal: Signal::new(key, Source::Direct, Some(arming)),
            route,
            // One task at a time, so no limit of a route is ever reached.
            permit: Arc::new(RouteLoad::new(Arc::default())).permit(false),
        };
        // No task starts unless the pauses are known.
        self.pauses.read().await?;
        let (claims, _) = claimer.claim(vec![taken], &mut permits).await?;
        let Some(claimed) = claims.into_iter().next() else {
            return Ok(None);
        };
        let (ended, mut settling) = mpsc::channel(1);
        let interrupted = leases.add(&claimed.claim);
        Arc::clone(executor).run(claimed, interrupted, ended).await;
        let Some(ended) = settling.recv().await else {
            return Ok(None);
        };
        let Ended {
            claim,
            route,
            outcome,
            result: _,
            reported: _,
            span: _,
        } = &ended;
        let driven = Driven {
            claim: claim.clone(),
            route: Arc::clone(&route.name),
            outcome: outcome.clone(),
        };
        settler.settle_batch(vec![ended]).await;
        Ok(Some(driven))
    }
}
