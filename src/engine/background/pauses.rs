//! Pause reader: reads the pauses from the ledger about once a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Moment;
use crate::engine::activity::Activity;
use crate::engine::health::LedgerHealth;
use crate::engine::pauses::PauseWatch;
use crate::ledger::{LedgerError, PauseAnswer, Pauses};
use crate::task::Pause;
use crate::telemetry::Metrics;
use crate::timer::Cause;

/// Interval between reads of the pauses, counted from the start of a read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Delay before the next read after a failure.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Maximum number of held tasks counted for the log.
const COUNTED_MAX: u32 = 100_000;

/// Reads the pauses about once a second.
#[derive(Clone)]
pub struct PauseReader {
    pub ledger: Arc<dyn Pauses>,
    pub health: Arc<LedgerHealth>,
    /// Name of this daemon.
    pub daemon: String,
    pub metrics: Arc<Metrics>,
    pub activity: Arc<Activity>,
    pub sweep: Arc<Activity>,
    pub pauses: Arc<PauseWatch>,
}

impl PauseReader {
    /// Reads the pauses about once a second.
    pub async fn run(self) {
        let activity = &self.activity;
        let mut cause = Cause::Start;
        loop {
            let asked = Instant::now();
            let rest = match activity.pass(cause, self.read()).await {
                Ok(()) => {
                    self.health.answered_late(asked);
                    READ_EVERY.saturating_sub(asked.elapsed())
                }
                Err(error) => {
                    self.health
                        .failed("read the pauses, so nothing starts", &error);
                    RETRY_AFTER
                }
            };
            cause = activity.next(rest).await;
        }
    }

    /// Reads the pauses before the first task starts. With `hold_overdue`, holds the overdue tasks before.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn read_at_start(&self, hold_overdue: bool) -> Result<(), LedgerError> {
        if hold_overdue {
            self.hold_overdue().await?;
        }
        self.read().await
    }

    /// Reads the pauses from the ledger.
    pub async fn read(&self) -> Result<(), LedgerError> {
        let asked = Moment::now();
        let pauses = self.ledger.pauses().await?;
        self.apply(pauses, asked);
        Ok(())
    }

    fn apply(&self, pauses: Vec<Pause>, asked: Moment) {
        let (before, now) = self.pauses.replace(pauses, asked);
        self.metrics.pauses(now.pauses.len());
        if before.pauses == now.pauses {
            return;
        }
        for pause in now
            .pauses
            .iter()
            .filter(|pause| !before.pauses.contains(pause))
        {
            let (kind, scope) = (pause.kind.as_str(), pause.scope.to_string());
            tracing::warn!(scope, kind, since = %pause.since, by = pause.by, reason = pause.reason, "pause seen");
        }
        for pause in before
            .pauses
            .iter()
            .filter(|pause| !now.pauses.contains(pause))
        {
            let (kind, scope) = (pause.kind.as_str(), pause.scope.to_string());
            tracing::info!(scope, kind, since = %pause.since, "pause lifted");
        }
        if now.paused.unblocks(&before.paused) {
            // The signals of tasks that fell due meanwhile were dropped.
            self.sweep.activate(Cause::Asked);
        }
    }

    /// Holds overdue tasks for review, before anything is claimed.
    async fn hold_overdue(&self) -> Result<(), LedgerError> {
        let reason = "started with `hold_overdue`";
        let PauseAnswer { pause, already, .. } =
            self.ledger.hold_overdue(&self.daemon, reason).await?;
        let before = pause.due_before.unwrap_or(pause.since);
        let overdue = self.ledger.count_overdue(before, COUNTED_MAX).await?;
        let or_more = overdue >= u64::from(COUNTED_MAX);
        if already {
            tracing::warn!(overdue, or_more, due_before = %before, by = pause.by, "tasks were held for review already: that hold is kept");
        } else {
            tracing::warn!(overdue, or_more, due_before = %before, "tasks are held for review, recurring ones included: see `lapsed list --state overdue` (`--recurring`), let them go with `lapsed resume --held`");
        }
        Ok(())
    }
}
