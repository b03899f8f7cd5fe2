//! Hand-over: gives claimed tasks to the workers that wait, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::takers::Ticket;
use super::{ClaimToken, Leased, PullQueues, TakenTasks, Takers};
use crate::config::PullConfig;
use crate::engine::execute::{Ended, Executor, Ran};
use crate::engine::queue::permits::Permits;
use crate::engine::reports::RunStarted;
use crate::engine::spans::{Contexts, Span};
use crate::handler::{Route, TaskContext};
use crate::ledger::{Claim, SharedKey};
use crate::task::SUSPECT_CRASHES;

/// The hand-over stage of pull routes: takes the place of the execute stage.
pub struct HandOver {
    pub executor: Arc<Executor>,
    pub queues: PullQueues,
}

/// A claim of a pull route, with the permits it was made with.
pub struct PulledClaim {
    pub claim: Claim,
    pub route: Route,
    pub pull: PullConfig,
    pub permits: Permits,
    pub contexts: Contexts,
}

/// A task that can be handed over.
struct Ready {
    pulled: PulledClaim,
    context: TaskContext,
    /// The span of the run.
    span: Span,
}

impl HandOver {
    /// Hands tasks over to workers. Tasks that must not run are settled instead, and those for which no worker waits any
    /// more go back to the queue.
    pub async fn run(self: Arc<Self>, claims: Vec<PulledClaim>, ended: mpsc::Sender<Ended>) {
        let mut by_queue: HashMap<Arc<str>, VecDeque<Ready>> = HashMap::new();
        for mut pulled in claims {
            let PulledClaim {
                claim,
                route,
                pull: _,
                permits,
                contexts,
            } = &mut pulled;
            match self
                .executor
                .prepare(claim, route, permits, *contexts)
                .await
            {
                Ok((context, span)) => {
                    let ready = by_queue.entry(Arc::clone(&pulled.pull.queue));
                    ready.or_default().push_back(Ready {
                        pulled,
                        context,
                        span,
                    });
                }
                Err(Ran {
                    outcome,
                    result,
                    span,
                }) => {
                    let PulledClaim { claim, route, .. } = pulled;
                    let unrun = Ended {
                        claim,
                        route,
                        outcome,
                        result,
                        reported: None,
                        span,
                    };
                    if ended.send(unrun).await.is_err() {
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
        for (queue, mut ready) in by_queue {
            // The queue has takers: they brought the demand for these claims.
            if let Ok(takers) = self.queues.takers_of(&queue) {
                self.hand_over(&takers, &mut ready, &key);
            }
            self.give_back(ready, &key);
        }
    }

    /// Hands tasks to takers. Leaves those that no taker waits for.
    fn hand_over(&self, takers: &Takers, ready: &mut VecDeque<Ready>, key: &SharedKey) {
        let mut left = VecDeque::new();
        while let Some(first) = ready.pop_front() {
            let claim = &first.pulled.claim;
            let Some(ticket) = takers.next(&claim.key, claim.attempt.crashes > 0) else {
                left.push_back(first);
                continue;
            };
            let batch = batch_of(first, ready, &ticket);
            let Ticket { worker, give, .. } = ticket;
            let now = self.queues.0.parts.clock.now();
            let leased = |ready: &Ready| {
                let PulledClaim { claim, pull, .. } = &ready.pulled;
                Leased {
                    claim: ClaimToken::new(claim, &worker, now, pull.visibility, key),
                    task: ready.context.clone(),
                }
            };
            let taken = TakenTasks {
                tasks: batch.iter().map(leased).collect(),
                queues: self.queues.clone(),
            };
            // Before the worker knows of them: it may report at once.
            let tasks = batch.len();
            self.record(batch);
            // If the worker is gone, dropping the tasks gives them back.
            if give.send(taken).is_ok() {
                takers.took(&worker, tasks);
                self.queues.0.parts.reporter.metrics.members_changed();
            }
        }
        *ready = left;
    }

    /// Counts and logs the starts, and keeps what the tasks need until they are settled. The keys are no longer in flight
    /// here: any daemon may settle them.
    fn record(&self, handed: Vec<Ready>) {
        let shared = &self.queues.0;
        let claims = handed.iter().map(|ready| &ready.pulled.claim);
        let armings = claims.map(|claim| (&claim.key, claim.lease.arming));
        shared.parts.queue.finish_settled(armings);
        for Ready { pulled, span, .. } in handed {
            let PulledClaim {
                claim,
                route,
                pull,
                permits,
                contexts: _,
            } = pulled;
            RunStarted {
                claim: &claim,
                route: &route.name,
                lateness_ms: self.executor.lateness_ms(&claim),
            }
            .emit(&shared.parts.reporter);
            let permit = permits.into_route_permit();
            let permit = permit.filter(|_| route.limits.concurrency.is_some());
            let outstanding = &shared.outstanding;
            outstanding.keep(claim.lease, permit, span, pull.visibility);
        }
    }

    /// Releases the claims for which no worker waits any more.
    fn give_back(&self, ready: VecDeque<Ready>, key: &SharedKey) {
        if ready.is_empty() {
            return;
        }
        let keys = ready.iter().map(|ready| &ready.pulled.claim.key);
        self.queues.0.parts.queue.finish(keys);
        let tasks = ready.into_iter().map(|ready| {
            let PulledClaim { claim, pull, .. } = &ready.pulled;
            let unused = Leased {
                claim: ClaimToken::new(claim, "", claim.due_at, pull.visibility, key),
                task: ready.context,
            };
            (unused, ready.span)
        });
        self.queues.give_back(tasks.collect());
    }
}

/// Bytes of payloads that one answer has, unless that of its first task has more.
const PAYLOADS_BYTES_MAX: usize = 1 << 20;

/// Takes the tasks that a taker gets out of `ready`, `first` before all. A task that may have killed its worker twice goes
/// alone: at worst it takes the next one down, and no other task with it.
fn batch_of<T>(first: Ready, ready: &mut VecDeque<Ready>, ticket: &Ticket<T>) -> Vec<Ready> {
    let is_suspect = |ready: &Ready| ready.pulled.claim.attempt.crashes >= SUSPECT_CRASHES;
    let mut place = match is_suspect(&first) {
        true => ready.len(),
        false => 0,
    };
    let bytes = |ready: &Ready| ready.pulled.claim.payload.as_ref().map_or(0, String::len);
    let mut left = PAYLOADS_BYTES_MAX.saturating_sub(bytes(&first));
    let mut batch = vec![first];
    while batch.len() < ticket.count
        && let Some(next) = ready.get(place).filter(|next| !is_suspect(next))
    {
        let Some(rest) = left.checked_sub(bytes(next)) else {
            break;
        };
        let may_have = ticket.may_have(&next.pulled.claim.key);
        if may_have {
            left = rest;
        }
        match may_have {
            true => batch.extend(ready.remove(place)),
            false => place += 1,
        }
    }
    batch
}
