//! Gauges: tasks by state, and signals that wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::deps::Deps;
use crate::engine::queue::SignalQueue;
use crate::ledger::{Catalog, LedgerError, SurveyLimits};

/// How often tasks are counted for the metrics, if counting is quick.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting may take a hundredth of the time.
const COUNT_SHARE: u32 = 100;

/// Counts the tasks of each state.
pub struct TaskGauges {
    pub deps: Arc<Deps>,
}

impl TaskGauges {
    /// Keeps the gauges of tasks by state fresh, as often as counting is cheap. Each daemon asks how long the oldest
    /// overdue task has waited; one of them counts.
    pub async fn run(self) {
        let Some(catalog) = self.deps.catalog.clone() else {
            return;
        };
        let work = async {
            loop {
                let asked = Instant::now();
                // A gauge that cannot be read says nothing about whether tasks can be run.
                if let Err(error) = self.count_tasks(&*catalog).await {
                    self.deps.log_failure("count tasks", &error);
                }
                tokio::time::sleep(COUNT_EVERY.max(asked.elapsed() * COUNT_SHARE)).await;
            }
        };
        self.deps.lifecycle.until_stopped(work).await;
    }

    async fn count_tasks(&self, catalog: &dyn Catalog) -> Result<(), LedgerError> {
        self.deps.metrics.overdue_for(catalog.overdue_for().await?);
        match self.deps.ownership.is_first() {
            true => {
                let survey = catalog.survey(SurveyLimits::GAUGES).await?;
                for (state, count) in survey.counts.by_state() {
                    let at_least = survey.at_least.contains(&state);
                    self.deps.metrics.counted(state, count, at_least);
                }
            }
            false => self.deps.metrics.counted_elsewhere(),
        }
        Ok(())
    }
}

/// Counts the signals that wait on each route.
pub struct QueueGauges {
    pub deps: Arc<Deps>,
    pub queue: Arc<SignalQueue>,
}

impl QueueGauges {
    /// Keeps the gauges of waiting signals fresh, until the engine stops.
    pub async fn run(self) {
        const EVERY: Duration = Duration::from_secs(1);
        let work = async {
            let mut shown = HashMap::new();
            loop {
                // A route that is gone has nothing any more.
                shown.values_mut().for_each(|count| *count = 0);
                shown.extend(self.queue.waiting_by_route());
                for (route, count) in &shown {
                    self.deps.metrics.waiting(route, *count);
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        self.deps.lifecycle.until_stopped(work).await;
    }
}
