//! Gauges: tasks by state, and waiting signals by route.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::deps::Deps;
use crate::engine::queue::SignalQueue;
use crate::ledger::{Admin, DetailedStatsLimits, LedgerError};
use crate::timer::Cause;

/// Minimum interval between counts of tasks.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting takes at most one part in this many of the time.
const COUNT_SHARE: u32 = 100;

/// Counts the tasks of each state.
pub struct TaskGauges {
    pub deps: Arc<Deps>,
}

impl TaskGauges {
    /// Updates the gauges of tasks by state, less often if counting is slow. Each daemon reads how long the oldest
    /// overdue task has waited; one daemon counts.
    pub async fn run(self) {
        let activity = &self.deps.background.task_gauges;
        let mut cause = Cause::Start;
        loop {
            let asked = Instant::now();
            let counted = activity.pass(cause, self.count_tasks());
            // A failed count says nothing about whether tasks can run.
            if let Err(error) = counted.await {
                self.deps.log_failure("count tasks", &error);
            }
            let rest = COUNT_EVERY.max(asked.elapsed() * COUNT_SHARE);
            cause = activity.next(rest).await;
        }
    }

    async fn count_tasks(&self) -> Result<(), LedgerError> {
        let ledger: &dyn Admin = &*self.deps.ledger;
        self.deps.metrics.overdue_for(ledger.overdue_for().await?);
        match self.deps.ownership.is_first() {
            true => {
                let stats = ledger.detailed_stats(DetailedStatsLimits::GAUGES).await?;
                for (state, count) in stats.counts.by_state() {
                    let at_least = stats.at_least.contains(&state);
                    self.deps.metrics.counted(state, count, at_least);
                }
            }
            false => self.deps.metrics.counted_elsewhere(),
        }
        Ok(())
    }
}

/// Counts the waiting signals of each route.
pub struct QueueGauges {
    pub deps: Arc<Deps>,
    pub queue: Arc<SignalQueue>,
}

impl QueueGauges {
    /// Updates the gauges of waiting signals, and whether the ledger answers, every second.
    pub async fn run(self) {
        const EVERY: Duration = Duration::from_secs(1);
        let activity = &self.deps.background.queue_gauges;
        let (mut shown, mut cause) = (HashMap::new(), Cause::Start);
        loop {
            let Ok(()) = activity.pass(cause, self.count_signals(&mut shown)).await;
            cause = activity.next(EVERY).await;
        }
    }

    async fn count_signals(&self, shown: &mut HashMap<String, usize>) -> Result<(), Infallible> {
        self.deps.metrics.ledger(self.deps.health.is_good());
        // A removed route shows zero.
        shown.values_mut().for_each(|count| *count = 0);
        shown.extend(self.queue.waiting_by_route());
        for (route, count) in shown {
            self.deps.metrics.waiting(route, *count);
        }
        Ok(())
    }
}
