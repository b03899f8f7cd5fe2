//! Gauges: tasks by state, and waiting signals by route.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::overdue::OldestUnpaused;
use crate::clock::LedgerClock;
use crate::diagnosis::{OVERDUE, WhyCause};
use crate::engine::activity::Activity;
use crate::engine::handle::Handle;
use crate::engine::health::LedgerHealth;
use crate::engine::pauses::PauseWatch;
use crate::engine::queue::SignalQueue;
use crate::engine::reports::Reporter;
use crate::handler::Router;
use crate::ledger::{Admin, DetailedStatsLimits, DueScan, LedgerError, Scans, Window};
use crate::membership::Ownership;
use crate::telemetry::Metrics;
use crate::timer::Cause;

/// Minimum interval between counts of tasks.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting takes at most one part in this many of the time.
const COUNT_SHARE: u32 = 100;

/// Overdue tasks that are looked at for a queue without workers, oldest first.
const UNASKED_MAX: u32 = 1_000;

/// Counts the tasks of each state.
pub struct TaskGauges {
    pub admin: Arc<dyn Admin>,
    pub scans: Arc<dyn Scans>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub router: Arc<Router>,
    pub ownership: Arc<Ownership>,
    pub reporter: Arc<Reporter>,
    pub activity: Arc<Activity>,
    pub handle: Handle,
    pub pauses: Arc<PauseWatch>,
}

impl TaskGauges {
    /// Updates the gauges of tasks by state, less often if counting is slow. Each daemon reads how long the oldest
    /// overdue task has waited; one daemon counts.
    pub async fn run(self) {
        let activity = &self.activity;
        let (mut oldest, mut cause) = (OldestUnpaused::default(), Cause::Start);
        loop {
            let asked = Instant::now();
            let counted = activity.pass(cause, self.count_tasks(&mut oldest));
            // A failed count says nothing about whether tasks can run, and may have waited for a connection only.
            let rest = match counted.await {
                Ok(()) => COUNT_EVERY.max(asked.elapsed() * COUNT_SHARE),
                Err(error) => {
                    self.health.log_failure("count tasks", &error);
                    COUNT_EVERY
                }
            };
            // After a start, workers may not have asked yet.
            if cause != Cause::Start
                && let Err(error) = self.warn_of_unasked().await
            {
                self.health.log_failure("look for overdue tasks", &error);
            }
            cause = activity.next(rest).await;
        }
    }

    async fn count_tasks(&self, oldest: &mut OldestUnpaused) -> Result<(), LedgerError> {
        let waited = self.admin.overdue_for().await?;
        self.reporter.metrics.overdue_for(waited);
        let unpaused = self.unpaused_for(oldest, waited).await?;
        self.reporter.metrics.overdue_unpaused_for(unpaused);
        match self.ownership.is_first() {
            true => {
                let stats = self
                    .admin
                    .detailed_stats(DetailedStatsLimits::GAUGES)
                    .await?;
                for (state, count) in stats.counts.by_state() {
                    let at_least = stats.at_least.contains(&state);
                    self.reporter.metrics.counted(state, count, at_least);
                }
            }
            false => self.reporter.metrics.counted_elsewhere(),
        }
        Ok(())
    }
}

impl TaskGauges {
    /// Warns of tasks that wait for workers which ask no daemon. Of the daemons that could run them, one warns.
    async fn warn_of_unasked(&self) -> Result<(), LedgerError> {
        if self.router.pull_queues().is_empty() {
            return Ok(());
        }
        let scan = DueScan {
            window: Window::OverdueOldest(OVERDUE),
            after: None,
            limit: UNASKED_MAX,
        };
        let rows = self.scans.scan(scan).await?.rows;
        if rows.is_empty() {
            return Ok(());
        }
        let facts = self.handle.why_facts(self.pauses.pauses().to_vec());
        let me = Some(self.ownership.me());
        let mut tasks = BTreeMap::<Arc<str>, usize>::new();
        for row in rows {
            let route = self.handle.route_facts(&row.key);
            let cause = facts.of_due(&row.key, row.arming.due, route.as_ref());
            if let WhyCause::NoWorker(Some(queue), _) | WhyCause::NoWorkerHere(Some(queue)) = cause
                && facts.daemons.first_that_runs(&row.key) == me
            {
                *tasks.entry(queue).or_default() += 1;
            }
        }
        if let Some((queue, tasks)) = tasks.into_iter().max_by_key(|(_, tasks)| *tasks)
            && let Some(held_back) = self.reporter.warnings.admit("unasked")
        {
            tracing::warn!(
                queue = &*queue,
                tasks_min = tasks,
                held_back,
                "overdue tasks wait for workers: no worker asks for their queue; start its workers"
            );
        }
        Ok(())
    }
}

impl TaskGauges {
    /// How long the oldest overdue task that is not paused or held has waited. `waited`: how long the oldest one of all has.
    async fn unpaused_for(
        &self,
        oldest: &mut OldestUnpaused,
        waited: Duration,
    ) -> Result<Duration, LedgerError> {
        let paused = self.pauses.paused();
        if paused.is_empty() || waited.is_zero() {
            return Ok(waited);
        }
        if !self.ownership.is_first() {
            return Ok(Duration::ZERO);
        }
        let found = oldest.look(&*self.scans, paused).await?;
        let now = self.clock.now();
        Ok(found.map_or(Duration::ZERO, |due| now.since(due)))
    }
}

/// Counts the waiting signals of each route.
pub struct QueueGauges {
    pub health: Arc<LedgerHealth>,
    pub metrics: Arc<Metrics>,
    pub activity: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
}

impl QueueGauges {
    /// Updates the gauges of waiting signals, and whether the ledger answers, every second.
    pub async fn run(self) {
        const EVERY: Duration = Duration::from_secs(1);
        let activity = &self.activity;
        let (mut shown, mut cause) = (HashMap::new(), Cause::Start);
        loop {
            let Ok(()) = activity.pass(cause, self.count_signals(&mut shown)).await;
            cause = activity.next(EVERY).await;
        }
    }

    async fn count_signals(&self, shown: &mut HashMap<String, usize>) -> Result<(), Infallible> {
        self.metrics.ledger(self.health.is_good());
        // A removed route shows zero.
        shown.values_mut().for_each(|count| *count = 0);
        shown.extend(self.queue.waiting_by_route());
        for (route, count) in shown {
            self.metrics.waiting(route, *count);
        }
        Ok(())
    }
}
