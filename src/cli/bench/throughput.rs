//! Scenario `throughput`: whether daemons keep up with a fixed rate of due tasks.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::measure::{Plan, measure};
use super::options::{Common, positive_span, rate, seconds, span, tasks};
use super::report::{Columns, Report};
use super::results::Results;
use super::stats::{Stat, Value};

/// How long to wait for tasks that are behind at the end; then they count as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// A rate is held if the daemons are less than this far behind.
const BEHIND_MAX: Duration = Duration::from_secs(1);

#[derive(Args, Serialize)]
pub struct Throughput {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks due per second, whether or not the daemon keeps up
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Number of daemons that share the work
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub daemons: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Throughput {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let label = format!("{}/s", self.rate);
        let plan = Plan {
            patience: PATIENCE,
            daemons: self.daemons as usize,
            ..Plan::evenly(label, self.rate, self.warm_up, self.duration)?
        };
        let columns = |run, results: &Results| self.columns(run, results);
        measure(environment, self.common.runs, &[plan], columns).await
    }

    fn columns(&self, run: u32, results: &Results) -> Columns {
        let seconds = self.duration.as_secs_f64();
        let lateness = results.lateness(u64::MAX);
        let achieved = results.started_in_window() as f64 / seconds;
        let backlog_s = results.behind() as f64 / f64::from(self.rate);
        Columns {
            own: vec![
                Stat::measured("offered_per_s", lateness.len() as f64 / seconds, 0),
                Stat::measured("achieved_per_s", achieved, 0),
                Stat::measured("backlog_s", backlog_s, 3),
                Stat::new("held", Value::Held(backlog_s < BEHIND_MAX.as_secs_f64())),
            ],
            tasks_per_s: achieved,
            curve: results.name_of(run),
            lateness,
        }
    }
}
