//! Pull queues: workers ask for tasks, and report how they ended.
//!
//! A pull route starts tasks only for workers that wait: their demand bounds what the claim stage takes from the
//! route's queue. The claimed tasks go to the workers in order of arrival. What a worker presents to settle its task, a
//! [`ClaimToken`], holds everything, so that any daemon of the ledger settles it.

pub mod dispatch;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod idle;
mod keys;
mod outstanding;
mod report;
mod status;
mod taking;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use self::keys::ClaimKeys;
use self::outstanding::Outstanding;
use super::activity::Activity;
use super::execute::{Ended, Reported};
use super::lifecycle::Lifecycle;
use super::queue::SignalQueue;
use super::reports::Reporter;
use super::spans;
use super::workers;
use crate::clock::LedgerClock;
use crate::handler::{Router, TaskContext};
use crate::ledger::{Claims, Documents, Lease, Progress, Renewal, Settled};
use crate::membership::Ownership;
use crate::task::Outcome;
use crate::trace::Tracer;

pub use self::error::PullError;
pub use self::report::Report;
pub use self::status::{PullQueueStatus, WorkerStatus};
pub use self::taking::TAKE_MAX;
pub use self::token::ClaimToken;

/// How long a settlement waits for the ledger before it answers [`PullError::NotYet`].
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// The pull queues of a daemon. Cheap to clone.
#[derive(Clone)]
pub struct PullQueues(Arc<Shared>);

/// What the pull queues work with.
pub(super) struct PullParts {
    pub claims: Arc<dyn Claims>,
    pub documents: Arc<dyn Documents>,
    pub clock: LedgerClock,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub queue: Arc<SignalQueue>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub tracer: Option<Arc<dyn Tracer>>,
    pub sweep: Arc<Activity>,
    pub membership: Arc<Activity>,
}

struct Shared {
    parts: PullParts,
    /// By name of the queue.
    workers: Mutex<HashMap<Arc<str>, Arc<WaitingWorkers>>>,
    outstanding: Arc<Outstanding>,
    keys: ClaimKeys,
    /// The channel to the settle stage, from the start of the engine until its drain.
    settlements: OnceLock<mpsc::WeakSender<Ended>>,
    /// Notified when a worker has left.
    last_left: Notify,
}

/// The workers that wait for tasks of one queue.
type WaitingWorkers = workers::WaitingWorkers<TakenTasks>;

/// A task that a worker has.
#[derive(Debug, Clone)]
pub struct Leased {
    /// What settles and renews it.
    pub claim: ClaimToken,
    /// The task.
    pub task: TaskContext,
}

/// Tasks that were dispatched to a worker. Unless they are [kept](Self::keep), dropping them gives them back: the worker has
/// not received them.
pub struct TakenTasks {
    tasks: Vec<Leased>,
    queues: PullQueues,
}

impl PullQueues {
    pub(super) fn new(parts: PullParts) -> Self {
        Self(Arc::new(Shared {
            parts,
            workers: Mutex::default(),
            outstanding: Arc::default(),
            keys: ClaimKeys::default(),
            settlements: OnceLock::new(),
            last_left: Notify::new(),
        }))
    }

    /// Accepts settlements from now on, until the last of the other senders is dropped.
    pub(super) fn start(&self, ended: &mpsc::Sender<Ended>) {
        // The engine starts once.
        let _ = self.0.settlements.set(ended.downgrade());
    }

    /// Reads the key that the daemons share before the first claim, if a route has a pull queue. Without it, it is read
    /// when it is needed.
    pub(super) async fn read_key(&self) {
        if self.0.parts.router.pull_queues().is_empty() {
            return;
        }
        if let Err(error) = self.0.keys.read(&*self.0.parts.documents).await {
            tracing::warn!(%error, "could not read the key of claim tokens: until the ledger gives it, claims are valid on this daemon only");
        }
    }

    /// Reads a claim token that a worker presents, and verifies that a daemon of this ledger made it.
    ///
    /// # Errors
    /// [`PullError::Token`] and [`PullError::Forged`] for another text, [`PullError::Ledger`] if it cannot be verified now.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn claim(&self, text: &str) -> Result<ClaimToken, PullError> {
        let keys = &self.0.keys;
        if !ClaimToken::may_be(text) {
            return Err(PullError::Token);
        }
        if let Some(claim) = ClaimToken::open(text, &keys.known()) {
            return Ok(claim);
        }
        match keys.read(&*self.0.parts.documents).await {
            Ok(true) => ClaimToken::open(text, &keys.known()).ok_or(PullError::Forged),
            Err(error) if error.is_transient() => Err(error.into()),
            // A ledger without documents has no key: the daemons accept their own tokens only.
            Ok(false) | Err(_) => Err(PullError::Forged),
        }
    }

    /// Settles a task as its worker reports. A report may be repeated: the same answer follows, unless the task was
    /// claimed again meanwhile. Another report of the same claim is [`PullError::Fenced`].
    ///
    /// # Errors
    /// [`PullError`]: a claim that was lost, data that is refused, a ledger that does not answer.
    ///
    /// # Cancel safety
    /// The settlement is written even if the future is dropped after it was polled to the settle stage.
    pub async fn settle(&self, claim: &ClaimToken, report: Report) -> Result<Settled, PullError> {
        let is_done = matches!(report, Report::Done { .. });
        let (outcome, result) = report.into_outcome()?;
        let settlements = self.settlements()?;
        let parts = &self.0.parts;
        let age = claim.age(parts.clock.now());
        let (answer, settled) = oneshot::channel();
        let reported = Reported {
            worker: claim.worker().to_owned(),
            answer,
        };
        let ended = self.ended(claim, outcome, result, reported);
        let (name, as_run) = (Arc::clone(&ended.route.name), ended.outcome.as_str());
        let written = timeout(SETTLE_WAIT, async {
            let sent = settlements.send(ended).await;
            // The settle stage ends when all senders are dropped.
            drop(settlements);
            sent.map_err(|_| PullError::NotRunning)?;
            settled
                .await
                .map_err(|_| match parts.lifecycle.stopping.is_cancelled() {
                    true => PullError::NotRunning,
                    false => PullError::Refused,
                })
        });
        let settled = written.await.unwrap_or(Err(PullError::NotYet))?;
        self.0.outstanding.end(&claim.lease);
        match settled {
            // The task is done, so a report of anything else was not written.
            Settled::ByHandler if !is_done => Err(PullError::Fenced(settled)),
            Settled::Applied | Settled::Cancelled | Settled::Ended | Settled::ByHandler => {
                parts.reporter.metrics.ran(&name, as_run, age);
                Ok(settled)
            }
            Settled::Superseded | Settled::Fenced | Settled::Locked => {
                Err(PullError::Fenced(settled))
            }
        }
    }

    /// Extends leases by their visibility from now. Returns the results in the order of `claims`.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn renew(&self, claims: &[ClaimToken]) -> Result<Vec<Renewal>, PullError> {
        let mut renewed: HashMap<Lease, Renewal> = HashMap::with_capacity(claims.len());
        let mut by_length: HashMap<Duration, Vec<Lease>> = HashMap::new();
        for claim in claims {
            let leases = by_length.entry(claim.visibility()).or_default();
            leases.push(claim.lease);
        }
        for (length, leases) in by_length {
            let renewals = self.0.parts.claims.renew(&leases, length).await?;
            for (lease, renewal) in leases.into_iter().zip(renewals) {
                if renewal == Renewal::Held {
                    self.0.outstanding.renew(lease, length);
                }
                renewed.insert(lease, renewal);
            }
        }
        let renewal = |claim: &ClaimToken| renewed.get(&claim.lease).copied();
        Ok(claims
            .iter()
            .map(|claim| renewal(claim).unwrap_or(Renewal::Lost))
            .collect())
    }

    /// Extends a lease by its visibility from now, and stores how far the worker is.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn report(
        &self,
        claim: &ClaimToken,
        progress: Progress,
    ) -> Result<Renewal, PullError> {
        let (lease, length) = (claim.lease, claim.visibility());
        let reports = [(lease, progress)];
        let mut renewals = self.0.parts.claims.report(&reports, length).await?;
        let renewal = renewals.pop().unwrap_or(Renewal::Lost);
        if renewal == Renewal::Held {
            self.0.outstanding.renew(lease, length);
        }
        Ok(renewal)
    }

    /// The end of a task that a worker has, or was to get.
    fn ended(
        &self,
        claim: &ClaimToken,
        outcome: Outcome,
        result: Option<String>,
        reported: Reported,
    ) -> Ended {
        let Shared {
            parts, outstanding, ..
        } = &*self.0;
        let run = outstanding.take_span(&claim.lease);
        let claim = claim.claim(parts.clock.now());
        let route = parts.router.settling(&claim.key);
        Ended {
            span: spans::settling(parts.tracer.as_deref(), run, &claim, &route, &outcome),
            claim,
            route,
            outcome,
            result,
            reported: Some(reported),
        }
    }

    /// The waiting workers of a queue that a route of this daemon names.
    fn workers_of(&self, queue: &str) -> Result<Arc<WaitingWorkers>, PullError> {
        let routes = self.0.parts.router.pull_queues();
        let found = routes.into_iter().find(|(_, pull)| *pull.queue == *queue);
        let Some((_, pull)) = found else {
            return Err(PullError::UnknownQueue(queue.to_owned()));
        };
        let new = || {
            let demand = self.0.parts.queue.demands().of(&pull.queue);
            Arc::new(WaitingWorkers::new(demand))
        };
        let mut workers = self.workers();
        let workers = workers.entry(Arc::clone(&pull.queue)).or_insert_with(new);
        Ok(Arc::clone(workers))
    }

    fn settlements(&self) -> Result<mpsc::Sender<Ended>, PullError> {
        let settlements = self.0.settlements.get();
        let settlements = settlements.and_then(mpsc::WeakSender::upgrade);
        settlements.ok_or(PullError::NotRunning)
    }

    /// Settles tasks that no worker has received, without waiting: they go to other workers.
    fn give_back(&self, unreceived: Vec<Ended>) {
        let Ok(settlements) = self.settlements() else {
            return;
        };
        let giving_back = async move {
            for ended in unreceived {
                if settlements.send(ended).await.is_err() {
                    return;
                }
            }
        };
        // Only a runtime that is shutting down runs no more tasks; the leases expire.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.0.parts.lifecycle.spawn(giving_back);
        }
    }

    fn nothing(&self) -> TakenTasks {
        TakenTasks {
            tasks: Vec::new(),
            queues: self.clone(),
        }
    }

    fn workers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<WaitingWorkers>>> {
        let workers = self.0.workers.lock();
        workers.expect("nothing panics while holding it")
    }
}

impl TakenTasks {
    /// The tasks.
    pub fn tasks(&self) -> &[Leased] {
        &self.tasks
    }

    /// Keeps the tasks: the worker has received them.
    pub fn keep(mut self) -> Vec<Leased> {
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for TakenTasks {
    fn drop(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let unreceived = self.tasks.iter().map(|task| {
            let claim = &task.claim;
            let unused = Reported::unreceived();
            let ended = self.queues.ended(claim, Outcome::NotStarted, None, unused);
            self.queues.0.outstanding.end(&claim.lease);
            ended
        });
        self.queues.give_back(unreceived.collect());
    }
}

impl std::fmt::Debug for TakenTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TakenTasks").field(&self.tasks).finish()
    }
}
