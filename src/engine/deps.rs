//! Dependencies shared by the stages and background tasks of one engine.

use std::sync::Arc;
use std::time::Duration;

use super::activity::Activities;
use super::health::LedgerHealth;
use super::lifecycle::Lifecycle;
use super::suspects::Suspects;
use crate::config::{EngineConfig, NudgeConfig, SweepConfig};
use crate::handler::{Router, Skills};
use crate::ledger::{Claimant, Ledger, LedgerError, Upcoming};
use crate::limiter::RateLimiter;
use crate::membership::{Capabilities, Membership, Ownership};
use crate::telemetry::Metrics;
use crate::telemetry::log::LogLimiter;
use crate::timer::{Alarm, ArmMode, Cause, Timer};
use crate::trace::Tracer;

/// Seams, configuration and lifecycle of one engine. Stages keep their own state elsewhere.
pub struct Deps {
    /// The ledger, which stores the tasks.
    pub ledger: Arc<dyn Ledger>,
    /// The source of signals.
    pub timer: Arc<dyn Timer>,
    /// The daemons on this ledger.
    pub membership: Arc<dyn Membership>,
    /// Task ownership: decides which tasks belong to this daemon.
    pub ownership: Arc<Ownership>,
    /// Rate limits of routes, shared by all daemons.
    pub limiter: Arc<dyn RateLimiter>,
    /// Handlers and routes.
    pub router: Arc<Router>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Records the spans of tasks, if any does.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The name and lease with which this daemon claims.
    pub claimant: Claimant,
    /// `[engine]`.
    pub config: EngineConfig,
    /// `[nudge]`.
    pub nudge: NudgeConfig,
    /// How often tasks that are due now are looked for; `None`: the timer hears of them.
    pub probe: Option<Duration>,
    /// `[sweep]`.
    pub sweep: SweepConfig,
    /// Outages of the ledger.
    pub health: LedgerHealth,
    /// Progress of a stop.
    pub lifecycle: Lifecycle,
    /// Tasks that may have taken their daemon down.
    pub suspects: Suspects,
    /// Activity of the background tasks.
    pub background: Activities,
    /// Limits log lines about failures: one per kind every 10 s.
    pub failures: LogLimiter,
    /// Limits log lines about conditions that last until a person acts: one per kind every 10 min.
    pub warnings: LogLimiter,
}

impl Deps {
    /// True if keys that programs arm are adopted when they are heard of. Entries of other timers stay until they are read.
    pub fn hears_keys(&self) -> bool {
        let has_keys = self.timer.is_listening().is_some() && !self.timer.keeps_entries();
        has_keys && self.router.adopts_any()
    }

    /// Records that the ledger answered. After an outage it also has to take writes: a full disk can be read. Leases may have
    /// expired during an outage, so its end requests a lease scan.
    ///
    /// # Errors
    /// The ledger takes no writes: the outage goes on.
    pub async fn ledger_answered(&self) -> Result<(), LedgerError> {
        if !self.health.answers() {
            self.ledger.check_writable().await?;
        }
        if self.health.answered() {
            tracing::info!("the ledger answers again");
            self.background.lease_scan.activate(Cause::LedgerAnswers);
        }
        Ok(())
    }

    /// What this daemon can run and adopt, with these idle routes.
    pub fn capabilities(&self, idle: Vec<u16>) -> Capabilities {
        let Skills {
            handlers,
            routes,
            unadopted,
            adopts_for_handlers,
        } = self.router.skills();
        // More routes than that do not fit in a heartbeat.
        let unadopted = unadopted.into_iter().flat_map(u16::try_from);
        Capabilities {
            handlers_unadopted: !handlers.is_empty() && !adopts_for_handlers,
            handlers,
            routes,
            idle,
            unadopted: unadopted.collect(),
        }
    }

    /// Records that the ledger failed. The caller tries again; the daemon is not ready until the ledger answers.
    pub fn ledger_failed(&self, verb: &'static str, error: &LedgerError) {
        self.health.failed(verb, error);
        self.log_failure(verb, error);
    }

    /// Logs a failure, at most one line per verb and interval.
    pub fn log_failure(&self, verb: &'static str, error: &LedgerError) {
        if let Some(held_back) = self.failures.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }

    /// True if tasks with expired leases are left to their owners for now. After an outage, daemons that have ended
    /// their runs release the leases, which counts no crash. If another daemon claims a task before that, a crash is
    /// counted.
    ///
    /// # Errors
    /// The ledger does not answer yet.
    pub async fn owners_come_first(&self) -> Result<bool, LedgerError> {
        if self.health.has_failed_for_long() {
            self.ledger.sync_clock().await?;
            self.ledger_answered().await?;
        }
        Ok(self.health.owners_come_first())
    }

    /// Arms these tasks again, and has the timer expect those due soon. Does not wait for Redis; the look-ahead finds a
    /// lost arm.
    pub fn rearm(&self, alarms: Vec<Alarm>) {
        let horizon = self.ledger.clock().now().plus(self.nudge.horizon);
        let (near, far): (Vec<Alarm>, Vec<Alarm>) =
            alarms.into_iter().partition(|alarm| alarm.due <= horizon);
        if !near.is_empty() {
            self.timer.expect(near.clone());
        }
        let armed: Vec<Alarm> = near.into_iter().chain(far).collect();
        if armed.is_empty() {
            return;
        }
        let timer = Arc::clone(&self.timer);
        self.lifecycle.runs.spawn(async move {
            if let Err(error) = timer.arm(&armed, ArmMode::IfMissing).await {
                tracing::debug!(%error, keys = armed.len(), "could not arm again; the look-ahead finds them");
            }
        });
    }

    /// Removes the entries of ended tasks from a timer that keeps them. Does not wait for Redis; an audit finds an entry
    /// that was not removed.
    pub fn remove_entries(&self, ended: Vec<Alarm>) {
        if ended.is_empty() || !self.timer.keeps_entries() {
            return;
        }
        let timer = Arc::clone(&self.timer);
        self.lifecycle.runs.spawn(async move {
            if let Err(error) = timer.settle(&ended).await {
                tracing::debug!(%error, entries = ended.len(), "could not remove entries of ended tasks; an audit does");
            }
        });
    }

    /// Shortens `interval` by up to a tenth, so that daemons that started together do not work in step.
    pub fn jittered(&self, interval: Duration) -> Duration {
        interval.mul_f64(rand::random_range(0.9..=1.0))
    }
}

impl From<Upcoming> for Alarm {
    fn from(row: Upcoming) -> Self {
        let Upcoming {
            key,
            arming,
            due_at,
        } = row;
        Self {
            key,
            due: due_at,
            arming: Some(arming),
        }
    }
}
