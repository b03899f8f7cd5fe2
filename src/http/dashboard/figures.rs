//! Figures about all tasks. All callers share them, so the ledger counts at most once in two seconds.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{ClientError, TaskClient};
use crate::http::recent::Recent;
use crate::ledger::{DetailedStats, DetailedStatsLimits, DueScan, Window};
use crate::task::{Pause, UnixMs};

/// How long figures are shared.
const FRESH: Duration = Duration::from_secs(2);

/// What is counted: a bounded part of a large table.
const LIMITS: DetailedStatsLimits = DetailedStatsLimits {
    rows: 2_000,
    entries: 50_000,
    dead: 2_000,
    done: 1_000,
};

/// The tasks that fall due next: how far ahead, and how many at most.
const AHEAD: DueScan = DueScan {
    window: Window::Ahead(Duration::from_secs(86_400)),
    after: None,
    limit: 2_000,
};

/// What the ledger said about all tasks.
#[derive(Debug)]
pub struct Count {
    /// When it said so, by the ledger's clock.
    pub at: UnixMs,
    /// Tasks by state, and by class and method.
    pub stats: Arc<DetailedStats>,
    /// Pauses, holds and releases that stand.
    pub pauses: Vec<Pause>,
    /// When the next tasks may start, soonest first.
    pub ahead: Vec<UnixMs>,
    /// True if more tasks start within a day than `ahead` has.
    pub has_more_ahead: bool,
}

/// The latest count.
#[derive(Debug)]
pub struct Figures {
    latest: Recent<Arc<Count>>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            latest: Recent::new(FRESH),
        }
    }
}

impl Figures {
    /// Returns the latest count, or counts.
    ///
    /// # Errors
    /// There is no recent count, and the ledger does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn count(&self, tasks: &TaskClient) -> Result<Arc<Count>, ClientError> {
        self.latest.get(count(tasks)).await
    }
}

async fn count(tasks: &TaskClient) -> Result<Arc<Count>, ClientError> {
    let ledger = tasks.ledger();
    let (stats, pauses, ahead) = tokio::join!(
        tasks.detailed_stats(LIMITS),
        tasks.pauses(),
        ledger.scan(AHEAD)
    );
    let ahead = ahead?;
    Ok(Arc::new(Count {
        at: tasks.clock_now(),
        stats: Arc::new(stats?),
        pauses: pauses?,
        ahead: ahead.rows.iter().map(|task| task.due_at).collect(),
        has_more_ahead: ahead.next.is_some(),
    }))
}
