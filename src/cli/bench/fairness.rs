//! Scenario `fairness`: many slow tasks due at once, and another class at a steady rate.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::measure::{CompetingLoad, Plan, measure};
use super::options::{Blocked, Common, positive_span, rate, seconds, span, tasks};
use super::report::{Columns, Report};
use super::results::Results;
use super::stats::Stat;

/// How long to wait after the window for tasks that have not started.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Args, Serialize)]
pub struct Fairness {
    /// Slow tasks, all due when the measurement begins; 0 for a baseline
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub tasks: u32,
    /// Run time of each of them
    #[arg(long, value_name = "DUR", default_value = "100ms", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub takes: Duration,
    /// Tasks of the other class due per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub blocked: Blocked,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Fairness {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let label = format!("{}/s beside {} slow", self.rate, self.tasks);
        let plan = Plan {
            patience: PATIENCE,
            competing: Some(CompetingLoad {
                tasks: self.tasks,
                takes: self.takes,
            }),
            blocked: Some(self.blocked),
            ..Plan::evenly(label, self.rate, self.warm_up, self.duration)?
        };
        let columns = |run, results: &Results| Columns {
            own: vec![Stat::count("slow_done", results.competing_done)],
            tasks_per_s: results.started_in_window() as f64 / self.duration.as_secs_f64(),
            curve: results.name_of(run),
            lateness: results.lateness(u64::MAX),
        };
        measure(environment, self.common.runs, &[plan], columns).await
    }
}
