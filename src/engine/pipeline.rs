//! The main path: takes signals from the queue, claims their tasks, executes and settles them.
//!
//! Each stage owns its state. This is the only place where the stages meet.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::claim::{Claimed, Claimer};
use super::execute::{Ended, Executor};
use super::lease::Leases;
use super::lifecycle::Lifecycle;
use super::pauses::PauseWatch;
use super::pull::hand_over::{HandOver, PulledClaim};
use super::queue::SignalQueue;
use super::queue::class::SignalClass;
use super::queue::permits::Permits;
use super::queue::route_queue::Taken;
use super::settle::Settler;
use super::spans::Contexts;
use crate::task::TaskKey;
use crate::timer::Source;
use crate::trace::Tracer;

/// The claim workers. Two serve fresh signals, so that one waits for the ledger while the other fills its batch; one
/// serves the backlog. More workers would only wait for the same rows.
const WORKERS: [SignalClass; 3] = [SignalClass::Fresh, SignalClass::Fresh, SignalClass::Backlog];

/// Maximum number of ended runs that wait to be settled, per slot.
const UNSETTLED_PER_SLOT: usize = 4;

/// The stages of the main path.
pub struct Pipeline {
    pub concurrency: usize,
    pub lifecycle: Lifecycle,
    pub tracer: Option<Arc<dyn Tracer>>,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
    pub leases: Arc<Leases>,
    pub claimer: Arc<Claimer>,
    pub executor: Arc<Executor>,
    pub hand_over: Arc<HandOver>,
    pub settler: Arc<Settler>,
}

impl Pipeline {
    /// Creates the channel from the execute stage to the settle stage. When it is full, ended runs keep their slots.
    pub fn settlements(&self) -> (mpsc::Sender<Ended>, mpsc::Receiver<Ended>) {
        mpsc::channel(self.concurrency * UNSETTLED_PER_SLOT)
    }

    /// Starts the workers. A graceful stop waits for them, so that claims under way are completed.
    pub fn start(self: &Arc<Self>, ended: &mpsc::Sender<Ended>) {
        for class in WORKERS {
            let worker = Arc::clone(self).work(class, ended.clone());
            self.lifecycle.spawn_lookup(worker);
        }
    }

    /// Takes signals of one class as slots become free, claims their tasks and starts the runs, until the engine stops.
    /// A claim under way is completed: if its answer were lost, its rows would stay leased until the lease expires.
    async fn work(self: Arc<Self>, class: SignalClass, ended: mpsc::Sender<Ended>) {
        let ready = async || {
            let startable = self.queue.ready(class).await;
            let turn = self.claimer.turn(class).await;
            let permits = self.queue.permits(class, startable).await;
            self.pauses.fresh().await;
            (turn, permits)
        };
        let stopping = &self.lifecycle.stopping;
        while let Some((turn, permits)) = stopping.run_until_cancelled(ready()).await {
            let taken = self.queue.take(class, permits.count());
            let (keys, expired) = (keys_of(&taken), expired_keys_of(&taken));
            let began = Instant::now();
            let claimed = self.claimer.claim(taken).await;
            drop(turn);
            match claimed {
                Ok((claims, missed)) => {
                    self.execute(claims, began, keys, permits, &ended);
                    self.claimer.account_for(missed).await;
                }
                Err(error) => self.claimer.wait_out(&error, &keys, expired).await,
            }
        }
    }

    /// Starts a run for each claim, or hands it over to a worker. The claims were made since `began`. Marks the other keys as no longer in flight.
    fn execute(
        &self,
        claims: Vec<Claimed>,
        began: Instant,
        mut keys: Vec<TaskKey>,
        mut permits: Permits,
        ended: &mpsc::Sender<Ended>,
    ) {
        let claimed: HashSet<&TaskKey> = claims.iter().map(|claimed| &claimed.claim.key).collect();
        keys.retain(|key| !claimed.contains(key));
        self.queue.finish(&keys);
        let mut pulled = Vec::new();
        for Claimed {
            claim,
            route,
            permit,
        } in claims
        {
            let permits = permits
                .split(permit)
                .expect("at most as many claims as signals, and as many signals as slots");
            let contexts = Contexts::claimed(self.tracer.as_deref(), &claim, &route, began);
            if let Some(pull) = route.pull.clone() {
                pulled.push(PulledClaim {
                    claim,
                    route,
                    pull,
                    permits,
                    contexts,
                });
                continue;
            }
            let interrupted = self.leases.add(&claim);
            let executor = Arc::clone(&self.executor);
            let run = executor.run(claim, route, contexts, interrupted, permits, ended.clone());
            self.lifecycle.spawn(run);
        }
        if !pulled.is_empty() {
            let handing_over = Arc::clone(&self.hand_over).run(pulled, ended.clone());
            self.lifecycle.spawn(handing_over);
        }
    }
}

fn keys_of(taken: &[Taken]) -> Vec<TaskKey> {
    let keys = taken.iter().map(|taken| taken.signal.key.clone());
    keys.collect()
}

/// Keys of the signals that come from expiry events. If such a key has no row yet, the event is the only trace of its
/// task.
fn expired_keys_of(taken: &[Taken]) -> Vec<TaskKey> {
    let events = taken
        .iter()
        .filter(|taken| taken.signal.source == Source::Event);
    events.map(|taken| taken.signal.key.clone()).collect()
}
