//! Counts of all tasks, and which are due next. All callers share them, so the ledger is asked for each at most once in two
//! seconds.

use std::sync::Arc;
use std::time::Duration;

use super::recent::Recent;
use lapsed::client::{ClientError, TaskClient};
use lapsed::ledger::{DetailedStats, DetailedStatsLimits, DueScan, Window};
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

/// The tasks that fall due next: how far ahead, and how many at most.
const AHEAD: DueScan = DueScan {
    window: Window::Ahead(Duration::from_secs(86_400)),
    after: None,
    limit: 10_000,
};

/// Counts of all tasks.
#[derive(Debug)]
pub struct Count {
    /// When they were counted, by the ledger's clock.
    pub at: UnixMs,
    /// Tasks by state, and by class and method.
    pub stats: Arc<DetailedStats>,
}

/// The tasks that fall due next.
#[derive(Debug)]
pub struct Ahead {
    /// When the ledger was asked, by its clock.
    pub at: UnixMs,
    /// When they may start, soonest first.
    pub times: Vec<UnixMs>,
    /// True if more tasks start within a day.
    pub has_more: bool,
}

/// The latest counts, and the tasks that are due next.
#[derive(Debug)]
pub struct StatsCache {
    count: Recent<Arc<Count>>,
    ahead: Recent<Arc<Ahead>>,
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

    /// Returns the tasks that fall due next, as known or as the ledger says now.
    ///
    /// # Errors
    /// They are not known, and the ledger does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ahead(&self, tasks: &TaskClient) -> Result<Arc<Ahead>, ClientError> {
        let ahead = async {
            let page = tasks.ledger().scan(AHEAD).await?;
            Ok(Arc::new(Ahead {
                at: tasks.clock_now(),
                times: page.rows.iter().map(|task| task.due_at).collect(),
                has_more: page.next.is_some(),
            }))
        };
        self.ahead.get(ahead).await
    }
}
