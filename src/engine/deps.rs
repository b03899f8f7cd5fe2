//! What the stages and the background tasks of one engine share.

use std::sync::Arc;
use std::time::Duration;

use super::activation::Activations;
use super::health::LedgerHealth;
use super::lifecycle::Lifecycle;
use crate::config::{EngineConfig, NudgeConfig, SweepConfig};
use crate::handler::Router;
use crate::ledger::{Catalog, Claimant, Ledger, LedgerError, Upcoming};
use crate::limiter::RateLimiter;
use crate::membership::{Membership, Ownership};
use crate::telemetry::Metrics;
use crate::telemetry::log::RateLimit;
use crate::timer::{Alarm, ArmMode, Timer};

/// The seams, the configuration and the lifecycle of one engine. No stage keeps state of its own here.
pub struct Deps {
    /// The book of record.
    pub ledger: Arc<dyn Ledger>,
    /// The same, for counting and pruning.
    pub catalog: Option<Arc<dyn Catalog>>,
    /// What signals that tasks may be due.
    pub timer: Arc<dyn Timer>,
    /// The daemons on this ledger.
    pub membership: Arc<dyn Membership>,
    /// Which tasks belong to this daemon.
    pub ownership: Arc<Ownership>,
    /// The shared rate limits of routes.
    pub limiter: Arc<dyn RateLimiter>,
    /// Handlers and routes.
    pub router: Arc<Router>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// In whose name this daemon claims.
    pub claimant: Claimant,
    /// `[engine]`.
    pub config: EngineConfig,
    /// `[nudge]`.
    pub nudge: NudgeConfig,
    /// `[sweep]`.
    pub sweep: SweepConfig,
    /// Whether the ledger does what it is asked.
    pub health: LedgerHealth,
    /// How far a stop has come.
    pub lifecycle: Lifecycle,
    /// Requests to background tasks.
    pub activate: Activations,
    /// Log lines about failures: one of a kind every 10 s.
    pub failures: RateLimit,
    /// Log lines about what stays as it is until somebody changes it: one of a kind every 10 min.
    pub warnings: RateLimit,
}

impl Deps {
    /// The ledger answered. After an outage, leases may have expired: they are scanned.
    pub fn ledger_answered(&self) {
        if self.health.answered() {
            tracing::info!("the ledger answers again");
            self.activate.lease_scan.notify_one();
        }
    }

    /// The ledger failed; the caller tries again. The daemon is not ready until the ledger answers.
    pub fn ledger_failed(&self, verb: &'static str, error: &LedgerError) {
        self.health.failed(verb, error);
        self.log_failure(verb, error);
    }

    /// Logs a failure that no task waits for: one line per verb and interval.
    pub fn log_failure(&self, verb: &'static str, error: &LedgerError) {
        if let Some(held_back) = self.failures.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }

    /// Whether tasks with an expired lease are left alone for now. After an outage, daemons that have ended their runs give
    /// the leases back, which counts no crash; claimed by another daemon before that, each would count as one.
    ///
    /// # Errors
    /// The ledger still does not answer.
    pub async fn owners_come_first(&self) -> Result<bool, LedgerError> {
        if self.health.has_failed_for_long() {
            self.ledger.sync_clock().await?;
            self.ledger_answered();
        }
        Ok(self.health.owners_come_first())
    }

    /// Makes sure that a signal comes when these tasks fall due: near ones are expected by the timer, and all are armed.
    /// Does not wait for Redis; a lost arm is found by the look-ahead.
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

    /// `interval`, up to a tenth shorter: daemons that started together must not work in step.
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
