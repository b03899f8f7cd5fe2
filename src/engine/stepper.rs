//! An engine whose steps are taken by hand, one task at a time: for tests.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::config::ConfigError;
use crate::engine::claim::Claimed;
use crate::engine::execute::Ended;
use crate::engine::queue::class::SignalClass;
use crate::engine::queue::fair::Taken;
use crate::engine::queue::route_load::RouteLoad;
use crate::engine::{Engine, Shared};
use crate::ledger::{Arming, Claim, LedgerError};
use crate::task::{Outcome, TaskKey};
use crate::timer::{Signal, Source};

/// Claims, runs, judges and settles as the daemon does, but only when told to, and hears of nothing by itself.
pub(crate) struct Stepper(Arc<Shared>);

/// A run that is settled.
pub(crate) struct Driven {
    pub claim: Claim,
    pub route: Arc<str>,
    pub outcome: Outcome,
}

impl Engine {
    /// The parts of this engine, at rest.
    pub(crate) fn by_hand(self) -> Result<Stepper, ConfigError> {
        Ok(Stepper(self.shared?))
    }
}

impl Stepper {
    /// Whether something here can run this key.
    pub(crate) fn runs(&self, key: &TaskKey) -> bool {
        self.0.parts.router.runs(key)
    }

    /// Signals one arming, and sees its run through. `None` if it is not to be claimed now.
    pub(crate) async fn drive(
        &self,
        key: TaskKey,
        arming: Arming,
    ) -> Result<Option<Driven>, LedgerError> {
        let shared = &self.0;
        let Some(route) = shared.parts.router.find(&key) else {
            return Ok(None);
        };
        let mut slots = shared.free_slots(SignalClass::Fresh, 1).await;
        let picked = Taken {
            signal: Signal {
                key,
                source: Source::Direct,
                arming: Some(arming),
            },
            route,
            // One at a time: no limit of a route is ever reached.
            seat: Arc::new(RouteLoad::new(Arc::default())).seat(false),
        };
        // Nothing starts unless it is known what is paused.
        shared.read_pauses().await?;
        let (claims, _) = shared.claim_due(vec![picked]).await?;
        let Some(Claimed { claim, route, seat }) = claims.into_iter().next() else {
            return Ok(None);
        };
        let slot = slots.split(seat).expect("one slot for one run");
        let (settler, mut settling) = mpsc::channel(1);
        let held = shared.leases.hold(&claim);
        let run = Arc::clone(shared).run(claim, route, held, slot, settler.clone());
        run.await;
        let Some(ended) = settling.recv().await else {
            return Ok(None);
        };
        let Ended {
            claim,
            route,
            outcome,
            result: _,
        } = &ended;
        let driven = Driven {
            claim: claim.clone(),
            route: Arc::clone(&route.name),
            outcome: outcome.clone(),
        };
        shared.settle_batch(vec![ended]).await;
        Ok(Some(driven))
    }
}
