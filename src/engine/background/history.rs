//! Keeps the history: ends each minute by the ledger's clock, and writes it into the ledger.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::LedgerClock;
use crate::engine::activity::Activity;
use crate::engine::history::{History, MINUTE_MS};
use crate::engine::lifecycle::Lifecycle;
use crate::engine::reports::Reporter;
use crate::ledger::LedgerError;
use crate::membership::Ownership;
use crate::task::UnixMs;
use crate::timer::Cause;

/// Minutes between two deletions of minutes that are too old.
const PRUNE_EVERY: i64 = 10;

/// Time limit for writing the last minute. The engine waits for it when it stops.
const LAST_WRITE_MAX: Duration = Duration::from_secs(1);

/// Keeps the history of this daemon.
pub struct HistoryKeeper {
    pub clock: LedgerClock,
    pub ownership: Arc<Ownership>,
    pub lifecycle: Lifecycle,
    pub reporter: Arc<Reporter>,
    pub activity: Arc<Activity>,
    pub history: Arc<History>,
}

impl HistoryKeeper {
    /// Ends minutes until the engine stops; the last one is cut short.
    pub async fn run(self) {
        let activity = &self.activity;
        let clock = &self.clock;
        let mut minute = clock.now().0.div_euclid(MINUTE_MS);
        let mut stopping = false;
        while !stopping {
            let end = UnixMs((minute + 1).saturating_mul(MINUTE_MS));
            let ended = tokio::time::sleep_until(clock.instant_of(end));
            let stop = self.lifecycle.stopping.run_until_cancelled(ended).await;
            stopping = stop.is_none();
            let now = clock.now().0.div_euclid(MINUTE_MS);
            // After a jump of the clock to the past, the minute goes on until the clock has passed it.
            if now <= minute && !stopping {
                continue;
            }
            let ended = activity.pass(Cause::Interval, self.end_minute(minute));
            let written = match stopping {
                true => timeout(LAST_WRITE_MAX, ended).await.unwrap_or(Ok(())),
                false => ended.await,
            };
            minute = now;
            // Nothing that runs tasks depends on it, and memory has it, too.
            if let Err(error) = written
                && let Some(held_back) = self.reporter.warnings.admit("write the history")
            {
                tracing::warn!(%error, held_back, "could not write the history: charts lack this minute after a restart");
            }
        }
    }

    async fn end_minute(&self, minute: i64) -> Result<(), LedgerError> {
        let recorded = self.reporter.metrics.history().end_minute();
        let at = minute * MINUTE_MS;
        self.history.record(at, &recorded);
        self.history.write(at, &recorded).await?;
        if minute % PRUNE_EVERY == 0 && self.ownership.is_first() {
            self.history.prune().await?;
        }
        Ok(())
    }
}
