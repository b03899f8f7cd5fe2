//! Scenario `kill`: a daemon is killed halfway through a burst and restarted a second later.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use clap::Args;
use serde::Serialize;

use super::daemon::SLOW_CLASS;
use super::environment::Environment;
use super::options::{Common, seconds, some_tasks, span, tasks};
use super::process::Numbers;
use super::progress::{bar, spinner};
use super::report::Report;
use super::stats::Stat;
use super::workload::{self, Written};

/// Time from writing the tasks to their due time.
const LEAD: Duration = Duration::from_secs(2);

/// Time between kill and restart.
const DEAD_FOR: Duration = Duration::from_secs(1);

/// Time limit of the second daemon.
const PATIENCE: Duration = Duration::from_secs(120);

/// Interval of counting done tasks in the ledger.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Args, Serialize)]
pub struct Kill {
    /// Tasks, all due in the same millisecond
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Run time of each of them
    #[arg(long, value_name = "DUR", default_value = "20ms", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub takes: Duration,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Kill {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let spinner = spinner(format!("killing a daemon #{run}"));
            let stats = self.kill(environment).await?;
            spinner.finish_and_clear();
            let label = format!("{} of {} ms", self.tasks, self.takes.as_millis());
            report.row(label, run, stats);
        }
        Ok(report)
    }

    async fn kill(&self, environment: &mut Environment) -> anyhow::Result<Vec<Stat>> {
        let takes = Numbers {
            slow_ms: Some(u64::try_from(self.takes.as_millis())?),
            ..Numbers::default()
        };
        let mut first = environment.daemon(takes, &[], false)?;
        first.ready(false).await?;
        let numbers = environment.take_numbers(self.tasks);
        let due = environment.client.now().await?.plus(LEAD);
        let bar = bar("tasks", u64::from(self.tasks));
        let numbers = numbers..numbers + self.tasks;
        let Written { rows, .. } =
            workload::write_of(SLOW_CLASS, environment, numbers, move |_| due, &bar).await?;
        let half = u64::from(self.tasks) / 2;
        let deadline = Instant::now() + LEAD + PATIENCE;
        while environment.settled(rows).await?.0 < half {
            ensure!(Instant::now() < deadline, "half of the tasks never ran");
            first.check()?;
            sleep(LOOK_EVERY).await;
        }
        first.kill().await?;
        let (done, _) = environment.settled(rows).await?;
        let leased = environment.store().leased(rows).await?;
        sleep(DEAD_FOR).await;

        let mut second = environment.daemon(takes, &[], false)?;
        let restarted = Instant::now();
        let deadline = restarted + PATIENCE;
        while environment.settled(rows).await?.0 < u64::from(self.tasks)
            && Instant::now() < deadline
        {
            second.check()?;
            sleep(LOOK_EVERY).await;
        }
        let took = restarted.elapsed();
        let (all_done, _) = environment.settled(rows).await?;
        second.stop().await?;
        environment.forget_pending(rows).await?;
        Ok(vec![
            Stat::count("done_before", done),
            Stat::count("leased_at_death", leased),
            Stat::count("undone", u64::from(self.tasks) - all_done),
            Stat::measured("all_done_after_s", took.as_secs_f64(), 2),
        ])
    }
}
