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
mod capabilities;
mod claim;
mod claimant;
mod conditions;
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
mod manual_claims;
mod negative_cache;
mod occurrence;
mod pace;
mod parts;
mod pauses;
mod pipeline;
mod pull;
mod queue;
mod rearm;
mod reports;
mod settle;
mod sink;
mod spans;
mod stepper;
mod suspects;
mod undelete;
mod wiring;
mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::background::{Background, sweep};
use self::lease::Leases;
use self::wiring::Wired;
use crate::config::Config;
use crate::ledger::LedgerError;
use crate::timer::Cause;

pub use self::activity::BackgroundStatus;
pub use self::background::audit::AuditReport;
pub use self::background::sweep::SweepReport;
pub use self::handle::Handle;
pub use self::history::{HISTORY_KEPT, History, HistoryPoint};
pub use self::manual_claims::{ManualClaims, TakeReport, TakenTask};
pub use self::parts::Parts;
#[cfg(feature = "fuzzing")]
#[doc(hidden)] // for the fuzz targets
pub use self::pull::fuzzing;
pub use self::pull::{
    ClaimToken, Leased, PullError, PullQueueStatus, PullQueues, Report, TAKE_MAX, TakenTasks,
    WorkerStatus,
};
pub(crate) use self::stepper::Stepper;
pub use crate::telemetry::history::{LatenessPercentiles, PerSource};
pub use crate::telemetry::{DropReason, Metrics};

/// The task engine: receives signals, claims tasks, runs them and settles them.
pub struct Engine {
    wired: Wired,
    hold_overdue: bool,
    drain_timeout: Duration,
}

impl Engine {
    /// Creates an engine from its components.
    pub fn with_parts(parts: Parts, config: &Config) -> Self {
        Self {
            wired: Wired::new(parts, config),
            hold_overdue: config.engine.hold_overdue,
            drain_timeout: config.engine.drain_timeout,
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
            parts: Parts { ledger, .. },
            background,
            ..
        } = self.wired;
        ledger.check().await?;
        let sweep = sweep::count_overdue(&*ledger).await?;
        Ok((sweep, background.audit.audit_now().await?))
    }

    /// Returns manual claims: they claim due tasks for a caller that does their work itself.
    pub fn manual_claims(self) -> ManualClaims {
        let Wired {
            parts: Parts { ledger, timer, .. },
            claimant,
            ..
        } = self.wired;
        ManualClaims {
            ledger,
            entries: Arc::clone(&timer).entries(),
            timer,
            claimant,
        }
    }

    /// Returns a stepper, which drives the stages of this engine one task at a time.
    pub(crate) fn stepper(self) -> Stepper {
        let Wired {
            parts: Parts { router, .. },
            pipeline,
            background: Background { pauses, .. },
            ..
        } = self.wired;
        Stepper {
            pipeline,
            pauses,
            router,
        }
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
            parts: Parts { ledger, router, .. },
            claimant: _,
            handle:
                Handle {
                    health,
                    lifecycle,
                    activities,
                    leases,
                    pull,
                    ..
                },
            pipeline,
            lease_keeper,
            background,
        } = self.wired;
        let _reserved = ledger.reserve().await?;
        health.check().await?;
        background.pauses.read_at_start(self.hold_overdue).await?;
        if router.is_empty() {
            tracing::warn!("no handler and no route is configured: this daemon runs no task");
        }
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
        let membership = Arc::clone(&background.membership);
        let heartbeats = Arc::clone(&membership);
        tasks.spawn(stop_with(&settled, lifecycle.watched(lease_keeper.run())));
        tasks.spawn(stop_with(
            &settled,
            lifecycle.watched(async move { heartbeats.run().await }),
        ));

        activities.audit.activate(Cause::Start);
        let _stop = lifecycle.stopping.clone().drop_guard();
        let _interrupt = InterruptOnDrop(Arc::clone(&leases));
        background.start(&tasks, &lifecycle);
        pipeline.start(&ended);

        tokio::select! {
            () = shutdown => membership.hand_over().await,
            () = lifecycle.broken.cancelled() => tracing::error!("a part of the engine panicked: stopping"),
        }
        drain::drain(&lifecycle, self.drain_timeout, &leases, ended, settler).await;
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
