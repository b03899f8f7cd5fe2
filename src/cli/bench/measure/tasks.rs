//! Writes the tasks of a plan: blocked and overdue ones, those of the window, and competing ones.

use std::time::Duration;

use anyhow::ensure;
use lapsed::UnixMs;

use super::{CompetingLoad, Plan};
use crate::bench::daemon::{NO_ROUTE_CLASS, NO_WORKER_CLASS, SLOW_CLASS};
use crate::bench::environment::Environment;
use crate::bench::options::{Blocked, BlockedBy};
use crate::bench::progress::bar;
use crate::bench::workload::{self, Written};

/// Minimum time between the last task written and the first one due.
const LEAD: Duration = Duration::from_secs(3);

/// How long tasks of a backlog are overdue: minimum, and span.
const OVERDUE_MS: (i64, i64) = (60_000, 600_000);

/// As [`OVERDUE_MS`], of tasks that cannot start: they come before any backlog.
const BLOCKED_MS: (i64, i64) = (3_600_000, 600_000);

impl Plan<'_> {
    /// Writes the tasks that cannot start, if there are any.
    pub(super) async fn write_blocked(
        &self,
        environment: &Environment,
    ) -> anyhow::Result<Option<Written>> {
        let wanted = self.blocked.filter(|wanted| wanted.blocked > 0);
        let Some(Blocked {
            blocked,
            blocked_by,
        }) = wanted
        else {
            return Ok(None);
        };
        let class = match blocked_by {
            BlockedBy::NoWorker => NO_WORKER_CLASS,
            BlockedBy::NoRoute => NO_ROUTE_CLASS,
        };
        let due = overdue(environment.client.now().await?, BLOCKED_MS);
        let bar = bar("blocked", u64::from(blocked));
        let written = workload::write_of(class, environment, 0..blocked, due, &bar).await?;
        Ok(Some(written))
    }

    pub(super) async fn write_backlog(
        &self,
        environment: &Environment,
        first: u32,
    ) -> anyhow::Result<Written> {
        let now = environment.client.now().await?;
        let due = overdue(now, OVERDUE_MS);
        let bar = bar("overdue", u64::from(self.backlog));
        workload::write(environment, first..first + self.backlog, due, &bar).await
    }

    /// Writes the tasks, then the competing ones, so that the first is due after all are written.
    pub(super) async fn write_tasks(
        &self,
        environment: &mut Environment,
        first: u32,
    ) -> anyhow::Result<(UnixMs, Written, Option<Written>)> {
        let count = self.count + self.competing.map_or(0, |competing| competing.tasks);
        let takes = environment.writing_takes(count);
        let first_due = environment.client.now().await?.plus(LEAD + takes);
        let arrivals = self.arrivals;
        let due = move |number: u32| {
            first_due.plus(Duration::from_millis(arrivals.offset_ms(number - first)))
        };
        let bar = bar("tasks", u64::from(self.count));
        let mut written =
            workload::write(environment, first..first + self.count, due, &bar).await?;
        let mut competing = None;
        if let Some(CompetingLoad { tasks, takes: _ }) =
            self.competing.filter(|competing| competing.tasks > 0)
        {
            let burst = first_due.plus(self.warm_up);
            let bar = crate::bench::progress::bar("slow tasks", u64::from(tasks));
            let slow = workload::write_of(SLOW_CLASS, environment, 0..tasks, move |_| burst, &bar);
            let slow = slow.await?;
            written.took += slow.took;
            competing = Some(slow);
        }
        let first_due_us = u64::try_from(first_due.0).unwrap_or(0) * 1000;
        ensure!(
            environment.now_us() < first_due_us,
            "writing {count} tasks took {:.1} s, expected at most {:.1} s: the first fell due before the last was written; ask for a lower rate or a shorter run",
            written.took.as_secs_f64(),
            (LEAD + takes).as_secs_f64(),
        );
        environment.has_written(count, written.took);
        Ok((first_due, written, competing))
    }
}

/// Due times of overdue tasks, by number: at least `from` and less than `from` + `span` milliseconds ago.
fn overdue(now: UnixMs, (from, span): (i64, i64)) -> impl Fn(u32) -> UnixMs + Send + Sync {
    move |number| UnixMs(now.0 - from - i64::from(number).wrapping_mul(7_919) % span)
}
