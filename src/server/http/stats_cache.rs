//! Counts of all tasks, and how many are due when. All callers share them, so the ledger is asked for each at most once in two
//! seconds.

use std::sync::Arc;
use std::time::Duration;

use super::recent::Recent;
use lapsed::client::{ClientError, TaskClient};
use lapsed::ledger::{DetailedStats, DetailedStatsLimits, Forecast, ForecastRange};
use lapsed::task::UnixMs;

/// How long an answer is shared.
const FRESH: Duration = Duration::from_secs(2);

/// What is counted: a bounded part of a large table.
const LIMITS: DetailedStatsLimits = DetailedStatsLimits {
    rows: 10_000,
    entries: 250_000,
    dead: 2_000,
    done: 1_000,
};

/// The forecast: the next day by the minute, and index entries at most.
const AHEAD_MINUTES: u32 = 24 * 60;
const AHEAD_ENTRIES: u32 = 250_000;

/// Counts of all tasks.
#[derive(Debug)]
pub struct Count {
    /// When they were counted, by the ledger's clock.
    pub at: UnixMs,
    /// Tasks by state, and by class and method.
    pub stats: Arc<DetailedStats>,
}

/// The latest counts, and the latest forecast.
#[derive(Debug)]
pub struct StatsCache {
    count: Recent<Arc<Count>>,
    ahead: Recent<Arc<Forecast>>,
}

impl Default for StatsCache {
    fn default() -> Self {
        Self {
            count: Recent::new(FRESH),
            ahead: Recent::new(FRESH),
        }
    }
}

impl StatsCache {
    /// Returns the latest count, or counts.
    ///
    /// # Errors
    /// There is no recent count, and the ledger does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn count(&self, tasks: &TaskClient) -> Result<Arc<Count>, ClientError> {
        let count = async {
            let stats = Arc::new(tasks.detailed_stats(LIMITS).await?);
            let at = tasks.clock_now();
            Ok(Arc::new(Count { at, stats }))
        };
        self.count.get(count).await
    }

    /// Returns how many tasks fall due in each minute of the next day, as known or as the ledger says now.
    ///
    /// # Errors
    /// It is not known, and the ledger does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ahead(&self, tasks: &TaskClient) -> Result<Arc<Forecast>, ClientError> {
        let range = ForecastRange {
            from: tasks.clock_now(),
            step: Duration::from_secs(60),
            steps: AHEAD_MINUTES,
            entries: AHEAD_ENTRIES,
        };
        let ahead = async { Ok(Arc::new(tasks.ledger().forecast(range).await?)) };
        self.ahead.get(ahead).await
    }
}
