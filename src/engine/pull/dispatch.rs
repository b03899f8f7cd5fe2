//! Dispatch: gives claimed tasks to the workers that wait, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{ClaimToken, Leased, PullQueues, TakenTasks, WaitingWorkers};
use crate::config::PullConfig;
use crate::engine::execute::{Claimed, Ended, Executor, Reported, Started};
use crate::engine::workers::Ticket;
use crate::ledger::SharedKey;
use crate::task::{Outcome, SUSPECT_CRASHES};

/// The dispatch stage of pull routes: takes the place of a handler.
pub struct Dispatcher {
    pub executor: Arc<Executor>,
    pub queues: PullQueues,
}

impl Dispatcher {
    /// Gives tasks to workers. Tasks that must not run are settled instead, and those for which no worker waits any more go
    /// back to the queue.
    pub async fn run(self: Arc<Self>, claims: Vec<Claimed>, ended: mpsc::Sender<Ended>) {
        let mut by_queue: HashMap<PullConfig, VecDeque<Started>> = HashMap::new();
        for claimed in claims {
            let Some(pull) = claimed.route.pull.clone() else {
                continue;
            };
            match self.executor.start_for_worker(claimed).await {
                Ok(started) => by_queue.entry(pull).or_default().push_back(started),
                Err((not_run, _)) => {
                    if ended.send(not_run).await.is_err() {
                        tracing::debug!(
                            "stopped before a claim was settled; its lease will expire"
                        );
                    }
                }
            }
        }
        if by_queue.is_empty() {
            return;
        }
        let shared = &self.queues.0;
        let key = shared.keys.signing(&*shared.parts.documents).await;
        for (pull, mut started) in by_queue {
            // The queue has workers: they brought the demand for these claims.
            if let Ok(workers) = self.queues.workers_of(&pull.queue) {
                self.dispatch(&workers, &mut started, &pull, &key);
            }
            if !started.is_empty() {
                let keys = started.iter().map(|started| &started.claim.key);
                shared.parts.queue.finish(keys);
                let tracer = shared.parts.tracer.as_deref();
                let unreceived = started.into_iter().map(|started| Ended {
                    reported: Some(Reported::unreceived()),
                    ..started.end(Outcome::NotStarted, None, tracer).0
                });
                self.queues.give_back(unreceived.collect());
            }
        }
    }

    /// Gives tasks to workers. Leaves those that no worker waits for.
    fn dispatch(
        &self,
        workers: &WaitingWorkers,
        started: &mut VecDeque<Started>,
        pull: &PullConfig,
        key: &SharedKey,
    ) {
        let mut left = VecDeque::new();
        while let Some(first) = started.pop_front() {
            let claim = &first.claim;
            let Some(ticket) = workers.next(&claim.key, claim.attempt.crashes > 0) else {
                left.push_back(first);
                continue;
            };
            let batch = batch_of(first, started, &ticket);
            let Ticket { worker, give, .. } = ticket;
            let now = self.queues.0.parts.clock.now();
            let leased = |started: &Started| Leased {
                claim: ClaimToken::new(&started.claim, &worker, now, pull.visibility, key),
                task: started.context.clone(),
            };
            let taken = TakenTasks {
                tasks: batch.iter().map(leased).collect(),
                queues: self.queues.clone(),
            };
            // Before the worker knows of them: it may report at once.
            let tasks = batch.len();
            self.record(batch, pull);
            // If the worker is gone, dropping the tasks gives them back.
            if give.send(taken).is_ok() {
                workers.took(&worker, tasks);
                self.queues.0.parts.reporter.metrics.members_changed();
            }
        }
        *started = left;
    }

    /// Counts and logs the starts, and keeps what the tasks need until they are settled. The keys are no longer in flight
    /// here: any daemon may settle them.
    fn record(&self, dispatched: Vec<Started>, pull: &PullConfig) {
        let shared = &self.queues.0;
        let claims = dispatched.iter().map(|started| &started.claim);
        let armings = claims.map(|claim| (&claim.key, claim.lease.arming));
        shared.parts.queue.finish_settled(armings);
        for started in dispatched {
            started.report(&shared.parts.reporter);
            let Started {
                claim,
                route,
                permits,
                context: _,
                span,
            } = started;
            let permit = permits.into_route_permit();
            let permit = permit.filter(|_| route.limits.concurrency.is_some());
            let outstanding = &shared.outstanding;
            outstanding.keep(claim.lease, permit, span, pull.visibility);
        }
    }
}

/// Bytes of payloads that one answer has, unless that of its first task has more.
const PAYLOADS_BYTES_MAX: usize = 1 << 20;

/// Takes the tasks that a worker gets out of `started`, `first` before all. A task that may have killed its worker twice goes
/// alone: at worst it takes the next one down, and no other task with it.
fn batch_of<T>(
    first: Started,
    started: &mut VecDeque<Started>,
    ticket: &Ticket<T>,
) -> Vec<Started> {
    let is_suspect = |started: &Started| started.claim.attempt.crashes >= SUSPECT_CRASHES;
    let mut place = match is_suspect(&first) {
        true => started.len(),
        false => 0,
    };
    let bytes = |started: &Started| started.claim.payload.as_ref().map_or(0, String::len);
    let mut left = PAYLOADS_BYTES_MAX.saturating_sub(bytes(&first));
    let mut batch = vec![first];
    while batch.len() < ticket.count
        && let Some(next) = started.get(place).filter(|next| !is_suspect(next))
    {
        let Some(rest) = left.checked_sub(bytes(next)) else {
            break;
        };
        if ticket.may_have(&next.claim.key) {
            left = rest;
            batch.extend(started.remove(place));
        } else {
            place += 1;
        }
    }
    batch
}
