//! The engine: decides the flow of every task, and knows the seams (`ledger`, `timer`, `handler`), never a driver.
//!
//! ```text
//! timer ──┐                                                          ┌── retry: expect, arm again
//!         ├─> signal queue ─> claim ─> execute (leases renewed) ─> settle: judge, write
//! sweep ──┘        ^                                                 └── superseded: signal again
//!                  └─────────────────────────────────────────────────────┘
//! ```
//!
//! The main path is `pipeline`. What runs beside it is in `background`.

mod activity;
mod background;
mod candidates;
mod claim;
mod claimant;
mod deps;
mod drain;
mod entries;
mod execute;
mod expired;
mod handle;
mod health;
mod history;
mod lease;
mod lease_watch;
mod lifecycle;
mod negative_cache;
mod occurrence;
mod pace;
mod pauses;
mod pipeline;
mod pull;
mod queue;
mod reports;
mod settle;
mod sink;
mod spans;
mod stepper;
mod suspects;
mod taker;
mod undelete;
mod why;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::background::pauses::PauseReader;
use self::background::{Background, sweep};
use self::candidates::Candidates;
use self::claim::Claimer;
use self::claimant::Processes;
use self::deps::Deps;
use self::execute::Executor;
use self::health::LedgerHealth;
use self::lease::{LeaseKeeper, Leases};
use self::lease_watch::LeaseWatch;
use self::lifecycle::Lifecycle;
use self::pauses::PauseWatch;
use self::pipeline::Pipeline;
use self::pull::hand_over::HandOver;
use self::queue::SignalQueue;
use self::settle::Settler;
use self::suspects::Suspects;
use crate::config::Config;
use crate::handler::Router;
use crate::ledger::{Claimant, Ledger, LedgerError};
use crate::limiter::RateLimiter;
use crate::membership::{MemberId, Membership, Ownership};
use crate::telemetry::log::LogLimiter;
use crate::timer::{Cause, Timer};
use crate::trace::Tracer;

pub use self::activity::BackgroundStatus;
pub use self::background::audit::AuditReport;
pub use self::background::sweep::SweepReport;
pub use self::handle::Handle;
pub use self::history::{HISTORY_KEPT, History, HistoryPoint};
pub use self::pull::{
    ClaimToken, Leased, PullError, PullQueueStatus, PullQueues, Report, TAKE_MAX, TakenTasks,
    WorkerStatus,
};
pub(crate) use self::stepper::Stepper;
pub use self::taker::{TakeReport, TakenTask, Taker};
pub use self::why::{Daemons, RouteFacts, Urgency, Why, WhyCause, WhyFacts};
pub use crate::telemetry::history::{LatenessPercentiles, PerSource};
pub use crate::telemetry::{DropReason, Metrics};

/// The components of an engine.
#[derive(Clone)]
pub struct Parts {
    /// The ledger, which stores the tasks.
    pub ledger: Arc<dyn Ledger>,
    /// The source of signals.
    pub timer: Arc<dyn Timer>,
    /// The other daemons on the ledger.
    pub membership: Arc<dyn Membership>,
    /// Rate limits of routes, shared by all daemons.
    pub limiter: Arc<dyn RateLimiter>,
    /// Handlers and routes.
    pub router: Arc<Router>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Records the spans of tasks, if any does.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// The task engine: receives signals, claims tasks, runs them and settles them.
pub struct Engine {
    wired: Wired,
}

/// The stages and background tasks of an engine, wired to each other.
struct Wired {
    parts: Parts,
    handle: Handle,
    pipeline: Arc<Pipeline>,
    background: Background,
}

impl Engine {
    /// Creates an engine from its components.
    pub fn with_parts(parts: Parts, config: &Config) -> Self {
        Self {
            wired: Wired::new(parts, config),
        }
    }

    /// The components of this engine.
    pub fn parts(&self) -> &Parts {
        &self.wired.parts
    }

    /// Returns a handle to the running engine.
    pub fn handle(&self) -> Handle {
        self.wired.handle.clone()
    }

    /// Runs one sweep and one audit without running tasks: counts overdue tasks, and arms keys that the timer has lost.
    ///
    /// # Errors
    /// [`EngineError`], as for [`run_until`](Self::run_until).
    pub async fn reconcile(self) -> Result<(SweepReport, AuditReport), EngineError> {
        let Wired {
            handle: Handle { deps, .. },
            background,
            ..
        } = self.wired;
        deps.ledger.check().await?;
        let sweep = sweep::count_overdue(&deps).await?;
        Ok((sweep, background.audit.audit_now().await?))
    }

    /// Returns a taker, which claims due tasks for a caller that does their work itself.
    pub fn taker(self) -> Taker {
        Taker::new(self.wired.handle.deps)
    }

    /// Returns a stepper, which drives the stages of this engine one task at a time.
    pub(crate) fn stepper(self) -> Stepper {
        let Wired {
            pipeline,
            background,
            ..
        } = self.wired;
        Stepper::new(pipeline, background.pauses)
    }

    /// Runs until `shutdown` resolves, then stops gracefully. No new run starts, current runs have `drain_timeout` to
    /// end, and the remaining ones are released without counting an attempt.
    ///
    /// # Errors
    /// [`EngineError`] at start: an unusable ledger. Later outages of the ledger or of Redis are waited out.
    ///
    /// # Cancel safety
    /// Dropping the future stops the engine at once and ends its runs. Other daemons find its tasks when their leases expire.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), EngineError> {
        let Wired {
            parts: _,
            handle: Handle {
                deps, leases, pull, ..
            },
            pipeline,
            background,
        } = self.wired;
        let lifecycle = &deps.lifecycle;
        let _reserved = deps.ledger.reserve().await?;
        prepare(&deps, &background.pauses).await?;
        pull.read_key().await;

        let tasks = TaskTracker::new();
        let (ended, unsettled) = pipeline.settlements();
        pull.start(&ended);
        let settling = Arc::clone(&pipeline.settler).run(unsettled);
        let settler = tokio::spawn(lifecycle.watched(settling));
        let _stop_settler = AbortOnDrop(settler.abort_handle());

        // The lease keeper and the heartbeat run until the last run is settled.
        let settled = CancellationToken::new();
        let _stop_keepers = settled.clone().drop_guard();
        let keeper = LeaseKeeper {
            leases: Arc::clone(&leases),
            deps: Arc::clone(&deps),
        };
        let membership = Arc::clone(&background.membership);
        let heartbeats = Arc::clone(&membership);
        tasks.spawn(stop_with(&settled, lifecycle.watched(keeper.run())));
        tasks.spawn(stop_with(
            &settled,
            lifecycle.watched(async move { heartbeats.run().await }),
        ));

        deps.background.audit.activate(Cause::Start);
        let _stop = lifecycle.stopping.clone().drop_guard();
        let _interrupt = InterruptOnDrop(Arc::clone(&leases));
        background.start(&tasks);
        pipeline.start(&ended);

        tokio::select! {
            () = shutdown => membership.hand_over().await,
            () = lifecycle.broken.cancelled() => tracing::error!("a part of the engine panicked: stopping"),
        }
        drain::drain(&deps, &leases, ended, settler).await;
        settled.cancel();
        membership.leave().await;
        tasks.close();
        tasks.wait().await;
        if lifecycle.broken.is_cancelled() {
            return Err(EngineError::Broken);
        }
        Ok(())
    }
}

/// Ends the runs of an engine that is dropped. Nothing would renew their leases.
struct InterruptOnDrop(Arc<Leases>);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        self.0.interrupt_all();
    }
}

/// Checks the ledger and reads the pauses before the first task starts.
async fn prepare(deps: &Deps, pauses: &PauseReader) -> Result<(), EngineError> {
    deps.ledger.check().await?;
    deps.health.answered();
    if deps.config.hold_overdue {
        pauses.hold_overdue().await?;
    }
    pauses.read().await?;
    if deps.router.is_empty() {
        tracing::warn!("no handler and no route is configured: this daemon runs no task");
    }
    Ok(())
}

impl Wired {
    fn new(parts: Parts, config: &Config) -> Self {
        let Parts {
            ledger,
            timer,
            membership,
            limiter,
            router,
            metrics,
            tracer,
        } = parts.clone();
        let lease = config.engine.lease;
        let clock = ledger.clock().clone();
        let processes = Processes::here();
        let deps = Arc::new(Deps {
            claimant: Claimant {
                daemon: processes.own_name(),
                lease,
            },
            ownership: Arc::new(Ownership::new(MemberId::random(), clock.clone())),
            ledger,
            timer,
            membership,
            limiter,
            router,
            metrics,
            tracer,
            config: config.engine,
            nudge: config.nudge,
            probe: config.probe().filter(|_| config.nudge.enabled),
            sweep: config.sweep,
            health: LedgerHealth::new(lease),
            lifecycle: Lifecycle::default(),
            suspects: Suspects::default(),
            background: Default::default(),
            failures: LogLimiter::every(Duration::from_secs(10)),
            warnings: LogLimiter::every(Duration::from_secs(600)),
        });
        let queue = Arc::new(SignalQueue::new(
            Arc::clone(&deps.metrics),
            Arc::clone(&deps.ownership),
            Arc::clone(&deps.router),
            config.engine.concurrency,
        ));
        let pauses = Arc::<PauseWatch>::default();
        let candidates = Arc::new(Candidates::new(clock));
        let leases = Arc::new(Leases::new(lease));
        let lease_watch = Arc::<LeaseWatch>::default();
        let executor = Arc::new(Executor::new(Arc::clone(&deps), Arc::clone(&pauses)));
        let pull = PullQueues::new(Arc::clone(&deps), Arc::clone(&queue));
        let pipeline = Arc::new(Pipeline {
            claimer: Arc::new(Claimer::new(
                Arc::clone(&deps),
                Arc::clone(&queue),
                Arc::clone(&pauses),
                Arc::clone(&candidates),
                Arc::clone(&lease_watch),
            )),
            hand_over: Arc::new(HandOver {
                executor: Arc::clone(&executor),
                queues: pull.clone(),
            }),
            executor,
            settler: Arc::new(Settler::new(
                Arc::clone(&deps),
                Arc::clone(&queue),
                Arc::clone(&leases),
            )),
            deps: Arc::clone(&deps),
            queue: Arc::clone(&queue),
            pauses,
            leases: Arc::clone(&leases),
        });
        let history = Arc::new(History::new(&deps));
        let handle = Handle {
            deps,
            leases,
            pull,
            queue,
            history,
            recurring: watch::Sender::new(config.recurring.clone()),
            retention: watch::Sender::new(config.retention),
        };
        let background = Background::new(
            Arc::clone(&pipeline),
            &handle,
            candidates,
            lease_watch,
            processes,
        );
        Self {
            parts,
            handle,
            pipeline,
            background,
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `work` until it ends or `stop` is cancelled.
fn stop_with(
    stop: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let stop = stop.clone();
    async move {
        stop.run_until_cancelled(work).await;
    }
}

/// Error that prevents or ends the run of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A part of the engine panicked. The engine has stopped as gracefully as it could.
    #[error("a part of the engine panicked; see the log, and start it again")]
    Broken,
}
