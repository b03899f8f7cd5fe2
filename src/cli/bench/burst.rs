//! Scenario `burst`: many tasks due in the same millisecond.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::measure::Plan;
use super::options::{Common, some_tasks, tasks};
use super::report::Report;
use super::stats::{Stat, Value};
use super::tasks::Arrivals;

/// Time limit for all runs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measured window, from the due time.
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Args, Serialize)]
pub struct Burst {
    /// Tasks due in the same millisecond
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Burst {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let results = Plan {
                patience: PATIENCE,
                ..Plan::new(
                    format!("{} at once", self.tasks),
                    self.tasks,
                    Arrivals::AtOnce,
                    WINDOW,
                )
            }
            .run(environment)
            .await?;
            let lateness = results.lateness(u64::MAX);
            let since_due = |moment: Option<u64>| {
                let us = moment.map(|moment| moment.saturating_sub(results.first_due_us));
                Value::measured(us.map(|us| us as f64 / 1000.0), 0)
            };
            let last = results.all_starts().max().filter(|_| results.lost() == 0);
            let per_s = last.map_or(0.0, |last| {
                let us = last.saturating_sub(results.first_due_us).max(1);
                f64::from(self.tasks) / (us as f64 / 1e6)
            });
            let own = vec![
                Stat::new("all_started_ms", since_due(last)),
                Stat::new("all_settled_ms", since_due(results.all_settled_us())),
            ];
            let curve = (results.name_of(run), lateness);
            report.add(run, &results, own, per_s, curve);
        }
        Ok(report)
    }
}
