//! Scenario `throughput`: whether daemons keep up with a fixed rate of due tasks.

use std::time::Duration;

use super::environment::Environment;
use super::measure::Plan;
use super::options::Throughput;
use super::report::Report;
use super::stats::{Stat, Value};

/// How long to wait for tasks that are behind at the end; then they count as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// A rate is held if the daemons are less than this far behind.
const BEHIND_MAX: Duration = Duration::from_secs(1);

impl Throughput {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let results = Plan {
                patience: PATIENCE,
                daemons: self.daemons as usize,
                ..Plan::evenly(
                    format!("{}/s", self.rate),
                    self.rate,
                    self.warm_up,
                    self.duration,
                )?
            }
            .run(environment)
            .await?;
            let seconds = self.duration.as_secs_f64();
            let lateness = results.lateness(u64::MAX);
            let achieved = results.started_in_window() as f64 / seconds;
            let backlog_s = results.behind() as f64 / f64::from(self.rate);
            let own = vec![
                Stat::new(
                    "offered_per_s",
                    Value::Measured(lateness.len() as f64 / seconds, 0),
                ),
                Stat::new("achieved_per_s", Value::Measured(achieved, 0)),
                Stat::new("backlog_s", Value::Measured(backlog_s, 3)),
                Stat::new("held", Value::Held(backlog_s < BEHIND_MAX.as_secs_f64())),
            ];
            let curve = (results.name_of(run), lateness);
            report.add(run, &results, own, achieved, curve);
        }
        Ok(report)
    }
}
