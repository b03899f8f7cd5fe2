//! Scenario `fairness`: many slow tasks due at once, and another class at a steady rate.

use std::time::Duration;

use super::environment::Environment;
use super::measure::{Beside, Plan};
use super::options::Fairness;
use super::report::Report;
use super::stats::Stat;

/// How long to wait after the window for tasks that have not started.
const PATIENCE: Duration = Duration::from_secs(120);

impl Fairness {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let results = Plan {
                patience: PATIENCE,
                beside: Some(Beside {
                    tasks: self.tasks,
                    takes: self.takes,
                }),
                ..Plan::evenly(
                    format!("{}/s beside {} slow", self.rate, self.tasks),
                    self.rate,
                    self.warm_up,
                    self.duration,
                )?
            }
            .run(environment)
            .await?;
            let lateness = results.lateness(u64::MAX);
            let per_s = results.started_in_window() as f64 / self.duration.as_secs_f64();
            let own = vec![Stat::count("slow_done", results.beside_done)];
            let curve = (results.name_of(run), lateness);
            report.add(run, &results, own, per_s, curve);
        }
        Ok(report)
    }
}
