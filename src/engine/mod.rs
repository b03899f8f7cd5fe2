//! The only place where the flow is decided: signals in, claims, runs, settlements out.
//!
//! ```text
//! timer ──┐                                                   ┌── retry: expect, arm again
//!         ├─> intake ─> dispatch: look up, claim ─> run ─> settle: judge, write
//! sweep ──┘      ^                            (lease: renew)  └── superseded: signal again
//!                └──────────────────────────────────────────────────────┘
//! ```
//!
//! It knows the seams (`ledger`, `timer`, `handler`), never a driver.

mod background;
mod candidates;
mod claim;
mod claimant;
mod drain;
mod execute;
mod handle;
mod lease;
mod negative_cache;
mod pace;
mod queue;
mod settle;
mod sink;
mod stepper;
mod undelete;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::background::gauges::LedgerHealth;
use self::background::pauses::PauseWatch;
use self::background::rate_limit::LocalRates;
use self::background::recovery::Recovery;
use self::candidates::Candidates;
use self::claimant::Processes;
use self::lease::Leases;
use self::negative_cache::NegativeCache;
use self::queue::SignalQueue;
use self::queue::class::SignalClass;
use self::sink::TimerSink;
use crate::config::{
    Config, ConfigError, EngineConfig, NudgeConfig, RecurringConfig, RetentionConfig, SweepConfig,
};
use crate::fleet::{MemberId, Roster, Share};
use crate::handler::Router;
use crate::ledger::{Catalog, Claimant, Ledger, LedgerError};
use crate::limiter::RateLimiter;
use crate::telemetry::Metrics;
use crate::telemetry::log::RateLimit;
use crate::timer::{Cause, Timer};

pub use self::background::audit::AuditReport;
pub use self::background::sweep::SweepReport;
pub use self::handle::Handle;
pub(crate) use self::stepper::Stepper;

/// Who claims: two at a time for fresh signals, so that one waits for the ledger while the other fills its batch;
/// one for the sweep. More only wait for the same rows.
const DISPATCHERS: [SignalClass; 3] =
    [SignalClass::Fresh, SignalClass::Fresh, SignalClass::Backlog];

/// Ended runs that wait to be settled, for each slot.
const UNSETTLED_PER_SLOT: usize = 4;

/// What an engine is made of.
#[derive(Clone)]
pub struct Parts {
    /// The book of record.
    pub ledger: Arc<dyn Ledger>,
    /// The same, for counting; without it the gauges of tasks by state stay empty.
    pub catalog: Option<Arc<dyn Catalog>>,
    /// Who says when to look.
    pub timer: Arc<dyn Timer>,
    /// Who else is at work on the ledger.
    pub roster: Arc<dyn Roster>,
    /// How often tasks of a route may start, over all daemons.
    pub limiter: Arc<dyn RateLimiter>,
    /// What can be run.
    pub router: Arc<Router>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// The daemon: hears signals, claims tasks, runs them, settles them.
pub struct Engine {
    shared: Result<Arc<Shared>, ConfigError>,
}

/// What the parts of a running engine share.
pub(crate) struct Shared {
    parts: Parts,
    claimant: Claimant,
    /// Tells which claimants are gone.
    processes: Processes,
    config: EngineConfig,
    nudge: NudgeConfig,
    sweep: SweepConfig,
    /// How long finished tasks are kept.
    retention: watch::Sender<RetentionConfig>,
    intake: Arc<SignalQueue>,
    /// Whose the tasks are.
    share: Arc<Share>,
    /// Some have another owner than before.
    shares_changed: Notify,
    /// What is paused.
    pauses: PauseWatch,
    /// Keys that wait to be adopted.
    sightings: Arc<Candidates>,
    slots: Arc<Semaphore>,
    /// The share of the slots that a backlog may take.
    backlog_slots: Arc<Semaphore>,
    /// To claim fresh signals where many daemons share the ledger.
    claim_turn: Semaphore,
    leases: Arc<Leases>,
    /// What dead daemons left.
    recovery: Recovery,
    /// One at a time runs that is suspected of killing its daemon.
    suspects: Semaphore,
    /// Settlements are held up by an outage: they go before the next sweep.
    settlements_held_up: AtomicBool,
    /// The ledger refused some of the settlements that it was last given.
    settlements_refused: AtomicBool,
    /// The ledger answered when it was last asked.
    ledger_answers: AtomicBool,
    ledger_health: Mutex<LedgerHealth>,
    /// The others are told that this daemon goes.
    leaving: CancellationToken,
    /// No new task is started.
    stopping: CancellationToken,
    /// A part of the engine panicked.
    broken: CancellationToken,
    runs: TaskTracker,
    /// The starts of routes with a rate, where they cannot be shared.
    rations: LocalRates,
    /// The series of the configuration.
    recurring: watch::Sender<Vec<RecurringConfig>>,
    /// Keys without a row that events named lately.
    strangers: NegativeCache,
    complaints: RateLimit,
    /// For what stays as it is until somebody changes it.
    warnings: RateLimit,
}

impl Engine {
    /// An engine of these parts.
    pub fn with_parts(parts: Parts, config: &Config) -> Self {
        let lease = config.engine.lease;
        let clock = parts.ledger.clock().clone();
        let share = Arc::new(Share::new(MemberId::random(), clock));
        let slots = Arc::new(Semaphore::new(config.engine.concurrency));
        let processes = Processes::here();
        Self {
            shared: Ok(Arc::new(Shared {
                claimant: Claimant {
                    daemon: processes.own_name(),
                    lease,
                },
                processes,
                config: config.engine,
                nudge: config.nudge,
                sweep: config.sweep,
                retention: watch::Sender::new(config.retention),
                intake: Arc::new(SignalQueue::new(
                    Arc::clone(&parts.metrics),
                    Arc::clone(&share),
                    Arc::clone(&parts.router),
                    Arc::clone(&slots),
                )),
                share,
                shares_changed: Notify::new(),
                pauses: PauseWatch::default(),
                sightings: Arc::new(Candidates::new(parts.ledger.clock().clone())),
                slots,
                backlog_slots: Arc::new(Semaphore::new((config.engine.concurrency * 3 / 4).max(1))),
                claim_turn: Semaphore::new(1),
                leases: Arc::new(Leases::new(lease)),
                recovery: Recovery::default(),
                suspects: Semaphore::new(1),
                settlements_held_up: AtomicBool::new(false),
                settlements_refused: AtomicBool::new(false),
                ledger_answers: AtomicBool::new(false),
                ledger_health: Mutex::default(),
                leaving: CancellationToken::new(),
                stopping: CancellationToken::new(),
                broken: CancellationToken::new(),
                runs: TaskTracker::new(),
                rations: LocalRates::default(),
                recurring: watch::Sender::new(config.recurring.clone()),
                strangers: NegativeCache::default(),
                complaints: RateLimit::every(Duration::from_secs(10)),
                warnings: RateLimit::every(Duration::from_secs(600)),
                parts,
            })),
        }
    }

    pub(crate) fn unusable(error: ConfigError) -> Self {
        Self { shared: Err(error) }
    }

    /// What the engine is made of.
    ///
    /// # Errors
    /// The configuration it was made from cannot be used.
    pub fn parts(&self) -> Result<&Parts, ConfigError> {
        self.shared
            .as_ref()
            .map(|shared| &shared.parts)
            .map_err(Clone::clone)
    }

    /// Looks at the engine while it runs.
    ///
    /// # Errors
    /// The configuration it was made from cannot be used.
    pub fn status(&self) -> Result<Handle, ConfigError> {
        self.shared
            .as_ref()
            .map(|shared| Handle(Arc::clone(shared)))
            .map_err(Clone::clone)
    }

    /// One sweep and one audit that run nothing: what is overdue is counted, what the timer lost is armed.
    ///
    /// # Errors
    /// [`EngineError`], as for [`run_until`](Self::run_until).
    pub async fn reconcile(self) -> Result<(SweepReport, AuditReport), EngineError> {
        Ok(self.shared?.reconcile_for_people().await?)
    }

    /// Runs until `shutdown` resolves, then stops gracefully: no new run starts, those that go on have
    /// `drain_timeout` to end, what is left then is released without counting an attempt.
    ///
    /// # Errors
    /// [`EngineError`] at start: an unusable configuration, or a ledger that cannot be used. Later
    /// outages of the ledger or of Redis are waited out.
    ///
    /// # Cancel safety
    /// Dropping the future stops at once; what ran is found by other daemons when its lease runs out.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), EngineError> {
        let shared = self.shared?;
        shared.prepare().await?;

        let (ended, unsettled) = mpsc::channel(shared.config.concurrency * UNSETTLED_PER_SLOT);
        let helpers = TaskTracker::new();
        let flushed = CancellationToken::new();
        let _stop_keepers = flushed.clone().drop_guard();
        let settling = Arc::clone(&shared).settle_all(unsettled);
        let settler = tokio::spawn(shared.watched(settling));
        let _stop_settler = AbortOnDrop(settler.abort_handle());
        shared.start_keepers(&helpers, &flushed);

        // Before anything is connected: what fell due while no daemon ran.
        shared.intake.sweep(Cause::Start);
        shared.intake.audit(Cause::Start);
        let _stop = shared.stopping.clone().drop_guard();
        shared.start_helpers(&helpers);
        for lane in DISPATCHERS {
            // Among the runs: what a claim has begun belongs to what a graceful stop waits for.
            let dispatching = Arc::clone(&shared).dispatch(lane, ended.clone());
            shared.runs.spawn(shared.watched(dispatching));
        }

        tokio::select! {
            () = shutdown => shared.hand_over().await,
            () = shared.broken.cancelled() => tracing::error!("a part of the engine panicked: stopping"),
        }
        shared.drain(ended, settler).await;
        flushed.cancel();
        shared.leave().await;
        helpers.close();
        helpers.wait().await;
        if shared.broken.is_cancelled() {
            return Err(EngineError::Broken);
        }
        Ok(())
    }
}

impl Shared {
    /// What must be in order before the first task starts.
    async fn prepare(&self) -> Result<(), EngineError> {
        self.parts.ledger.check().await?;
        self.ledger_answers.store(true, Ordering::Relaxed);
        if self.config.hold_overdue {
            self.hold_overdue().await?;
        }
        self.read_pauses().await?;
        if self.parts.router.is_empty() {
            tracing::warn!("no handler and no route is configured: this daemon runs no task");
        }
        Ok(())
    }

    /// Starts what goes on until the last run is settled: leases are renewed, and the others know that this daemon lives.
    fn start_keepers(self: &Arc<Self>, helpers: &TaskTracker, flushed: &CancellationToken) {
        let leases = self.watched(Arc::clone(self).keep_leases());
        helpers.spawn(stop_with(flushed, leases));
        let membership = self.watched(Arc::clone(self).keep_mustered());
        helpers.spawn(stop_with(flushed, membership));
    }

    /// Starts what looks for signals, and what keeps order beside them. All of it ends when the engine stops.
    fn start_helpers(self: &Arc<Self>, helpers: &TaskTracker) {
        let shared = || Arc::clone(self);
        helpers.spawn(self.watched(shared().watch_pauses_until_stopped()));
        helpers.spawn(self.watched(shared().reconcile_until_stopped()));
        helpers.spawn(self.watched(shared().recover_until_stopped()));
        helpers.spawn(self.watched(shared().look_ahead_until_stopped()));
        helpers.spawn(self.watched(shared().audit_until_stopped()));
        helpers.spawn(self.watched(shared().arm_what_comes_near()));
        helpers.spawn(self.watched(shared().adopt_until_stopped()));
        helpers.spawn(self.watched(shared().keep_series_until_stopped()));
        helpers.spawn(shared().count_tasks_until_stopped());
        helpers.spawn(shared().count_waiting_until_stopped());
        helpers.spawn(self.watched(shared().ration_until_stopped()));
        helpers.spawn(shared().forget_until_stopped());
        let (listening, sink) = (shared(), Arc::new(self.door()));
        helpers.spawn(self.watched(async move {
            let timer = &listening.parts.timer;
            timer.run(sink, listening.stopping.clone()).await;
        }));
    }

    /// `work`, whose panic ends the engine: a daemon that lives without one of its parts only looks alive.
    fn watched<W: Future<Output = ()> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = ()> + Send + 'static + use<W> {
        let watch = OnPanic(self.broken.clone());
        async move {
            let _watch = watch;
            work.await;
        }
    }

    fn door(&self) -> TimerSink {
        TimerSink {
            intake: Arc::clone(&self.intake),
            sightings: Arc::clone(&self.sightings),
            router: Arc::clone(&self.parts.router),
            share: Arc::clone(&self.share),
            metrics: Arc::clone(&self.parts.metrics),
        }
    }
}

struct OnPanic(CancellationToken);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `work`, until `stop`.
fn stop_with(
    stop: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let stop = stop.clone();
    async move {
        stop.run_until_cancelled(work).await;
    }
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A part of the engine panicked while it ran; it has stopped as gracefully as it could.
    #[error("a part of the engine panicked; see the log, and start it again")]
    Broken,
}
