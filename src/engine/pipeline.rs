//! The main path: takes signals from the queue, claims their tasks, executes and settles them.
//!
//! Each stage owns its state. This is the only place where the stages meet.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::claim::Claimer;
use super::execute::{Claimed, Ended, Executor};
use super::lease::Leases;
use super::lifecycle::Lifecycle;
use super::pauses::PauseWatch;
use super::pull::dispatch::Dispatcher;
use super::queue::SignalQueue;
use super::queue::class::SignalClass;
use super::queue::route_queue::Dequeued;
use super::settle::Settler;
use crate::task::TaskKey;
use crate::timer::Source;

/// The claim workers. Two serve fresh signals, so that one waits for the ledger while the other fills its batch; one
/// serves the backlog. More workers would only wait for the same rows.
const WORKERS: [SignalClass; 3] = [SignalClass::Fresh, SignalClass::Fresh, SignalClass::Backlog];

/// Maximum number of ended runs that wait to be settled, per slot.
const UNSETTLED_PER_SLOT: usize = 4;

/// The stages of the main path.
pub struct Pipeline {
    pub concurrency: usize,
    pub lifecycle: Lifecycle,
    pub queue: Arc<SignalQueue>,
    pub pauses: Arc<PauseWatch>,
    pub leases: Arc<Leases>,
    pub claimer: Arc<Claimer>,
    pub executor: Arc<Executor>,
    pub dispatcher: Arc<Dispatcher>,
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
        while let Some((turn, mut permits)) = stopping.run_until_cancelled(ready()).await {
            let taken = self.queue.take(class, permits.count());
            let (keys, expired) = (keys_of(&taken), expired_keys_of(&taken));
            let claimed = self.claimer.claim(taken, &mut permits).await;
            drop(turn);
            match claimed {
                Ok((claims, missed)) => {
                    self.execute(claims, keys, &ended);
                    drop(permits);
                    self.claimer.account_for(missed).await;
                }
                Err(error) => self.claimer.wait_out(&error, &keys, expired).await,
            }
        }
    }

    /// Starts a run for each claim, here or at a worker. Marks the other keys as no longer in flight.
    fn execute(&self, claims: Vec<Claimed>, mut keys: Vec<TaskKey>, ended: &mpsc::Sender<Ended>) {
        let claimed: HashSet<&TaskKey> = claims.iter().map(|claimed| &claimed.claim.key).collect();
        keys.retain(|key| !claimed.contains(key));
        self.queue.finish(&keys);
        let (pulled, ours): (Vec<Claimed>, Vec<Claimed>) = claims
            .into_iter()
            .partition(|claimed| claimed.route.pull.is_some());
        for claimed in ours {
            let interrupted = self.leases.add(&claimed.claim);
            let executor = Arc::clone(&self.executor);
            let run = executor.run(claimed, interrupted, ended.clone());
            self.lifecycle.spawn(run);
        }
        if !pulled.is_empty() {
            let dispatching = Arc::clone(&self.dispatcher).run(pulled, ended.clone());
            self.lifecycle.spawn(dispatching);
        }
    }
}

fn keys_of(taken: &[Dequeued]) -> Vec<TaskKey> {
    let keys = taken.iter().map(|taken| taken.signal.key.clone());
    keys.collect()
}

/// Keys of the signals that come from expiry events. If such a key has no row yet, the event is the only trace of its
/// task.
fn expired_keys_of(taken: &[Dequeued]) -> Vec<TaskKey> {
    let events = taken
        .iter()
        .filter(|taken| taken.signal.source == Source::Event);
    events.map(|taken| taken.signal.key.clone()).collect()
}
