//! Scenario `burst`: many tasks due in the same millisecond.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::measure::{Plan, measure};
use super::options::{Common, some_tasks, tasks};
use super::report::{Columns, Report};
use super::results::Results;
use super::stats::Stat;
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
        let plan = Plan {
            patience: PATIENCE,
            ..Plan::new(
                format!("{} at once", self.tasks),
                self.tasks,
                Arrivals::AtOnce,
                WINDOW,
            )
        };
        let columns = |run, results: &Results| self.columns(run, results);
        measure(environment, self.common.runs, &[plan], columns).await
    }

    fn columns(&self, run: u32, results: &Results) -> Columns {
        let since_due = |moment: u64| moment.saturating_sub(results.first_due_us);
        let ms = |moment: Option<u64>| moment.map(|moment| since_due(moment) as f64 / 1000.0);
        let last = results.all_starts().max().filter(|_| results.lost() == 0);
        Columns {
            own: vec![
                Stat::measured("all_started_ms", ms(last), 0),
                Stat::measured("all_settled_ms", ms(results.all_settled_us()), 0),
            ],
            tasks_per_s: last.map_or(0.0, |last| {
                f64::from(self.tasks) / (since_due(last).max(1) as f64 / 1e6)
            }),
            curve: results.name_of(run),
            lateness: results.lateness(u64::MAX),
        }
    }
}
