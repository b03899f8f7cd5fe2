//! Keeps the history: ends each minute by the ledger's clock.

use std::convert::Infallible;
use std::sync::Arc;

use crate::engine::deps::Deps;
use crate::engine::history::{History, MINUTE_MS};
use crate::task::UnixMs;
use crate::timer::Cause;

/// Keeps the history of this daemon.
pub struct HistoryKeeper {
    pub deps: Arc<Deps>,
    pub history: Arc<History>,
}

impl HistoryKeeper {
    /// Ends minutes until the engine stops; the last one is cut short.
    pub async fn run(self) {
        let activity = &self.deps.background.history;
        let clock = self.deps.ledger.clock();
        let mut minute = clock.now().0.div_euclid(MINUTE_MS);
        let mut stopping = false;
        while !stopping {
            let end = UnixMs((minute + 1).saturating_mul(MINUTE_MS));
            let ended = tokio::time::sleep_until(clock.instant_of(end));
            let stop = self
                .deps
                .lifecycle
                .stopping
                .run_until_cancelled(ended)
                .await;
            stopping = stop.is_none();
            let now = clock.now().0.div_euclid(MINUTE_MS);
            // After a jump of the clock to the past, the minute goes on until the clock has passed it.
            if now > minute || stopping {
                let Ok(()) = activity
                    .pass(Cause::Interval, self.end_minute(minute))
                    .await;
                minute = now;
            }
        }
    }

    async fn end_minute(&self, minute: i64) -> Result<(), Infallible> {
        let recorded = self.deps.metrics.history().end_minute();
        self.history.record(minute * MINUTE_MS, &recorded);
        Ok(())
    }
}
