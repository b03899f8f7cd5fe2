//! Figures about all tasks, shared by everybody who looks: however many do, the ledger is asked once in some seconds.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::{ClientError, TaskClient};
use crate::ledger::{DetailedStats, DetailedStatsLimits, DueScan, Window};
use crate::task::{Pause, UnixMs};

/// Figures of this age are shown without a question to the ledger.
const FRESH: Duration = Duration::from_secs(3);

/// Figures of this age are shown to others while one caller has them counted again.
const USABLE: Duration = Duration::from_secs(60);

/// What is counted for a page: a bounded part of a large table.
const LIMITS: DetailedStatsLimits = DetailedStatsLimits {
    rows: 10_000,
    entries: 100_000,
    dead: 5_000,
    done: 2_000,
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
    pub stats: DetailedStats,
    /// Pauses, holds and releases that stand.
    pub pauses: Vec<Pause>,
    /// When the next tasks may start, soonest first.
    pub ahead: Vec<UnixMs>,
    /// True if more tasks start within a day than `ahead` has.
    pub has_more_ahead: bool,
}

impl Count {
    /// True if there are at least as many tasks of this state: counting ended early.
    pub fn is_at_least(&self, state: &str) -> bool {
        self.stats.at_least.contains(&state)
    }
}

/// The latest count.
#[derive(Debug, Default)]
pub struct Figures {
    latest: Mutex<Option<(Instant, Arc<Count>)>>,
    /// Held by the caller that has them counted.
    counting: tokio::sync::Mutex<()>,
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
        if let Some(count) = self.younger_than(FRESH) {
            return Ok(count);
        }
        let turn = match self.younger_than(USABLE) {
            // Another caller counts: what there is will do.
            Some(count) => match self.counting.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(count),
            },
            None => self.counting.lock().await,
        };
        if let Some(count) = self.younger_than(FRESH) {
            return Ok(count);
        }
        let ledger = tasks.ledger();
        let (stats, pauses, ahead) = tokio::join!(
            tasks.detailed_stats(LIMITS),
            tasks.pauses(),
            ledger.scan(AHEAD)
        );
        let ahead = ahead?;
        let count = Arc::new(Count {
            at: tasks.clock_now(),
            stats: stats?,
            pauses: pauses?,
            ahead: ahead.rows.iter().map(|task| task.due_at).collect(),
            has_more_ahead: ahead.next.is_some(),
        });
        *self.latest() = Some((Instant::now(), Arc::clone(&count)));
        drop(turn);
        Ok(count)
    }

    fn younger_than(&self, age: Duration) -> Option<Arc<Count>> {
        let latest = self.latest();
        let (counted, count) = latest.as_ref()?;
        (counted.elapsed() < age).then(|| Arc::clone(count))
    }

    fn latest(&self) -> MutexGuard<'_, Option<(Instant, Arc<Count>)>> {
        self.latest.lock().expect("nothing panics while holding it")
    }
}
