//! Scenario `recovery`: an overdue backlog at the start of the daemon, while new tasks fall due.

use std::time::Duration;

use super::environment::Environment;
use super::measure::Plan;
use super::options::Recovery;
use super::report::Report;
use super::stats::{Stat, Value};

impl Recovery {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let results = Plan {
                backlog: self.tasks,
                ..Plan::evenly(
                    format!("{} overdue", self.tasks),
                    self.rate,
                    Duration::ZERO,
                    self.duration,
                )?
            }
            .run(environment)
            .await?;
            let backlog = results.backlog_starts();
            let drained: Vec<u64> = backlog.iter().flatten().copied().collect();
            let first = drained.iter().min().copied().unwrap_or(0);
            let last = drained.iter().max().copied().unwrap_or(0);
            let seconds = (last.saturating_sub(first)).max(1) as f64 / 1e6;
            let per_s = drained.len() as f64 / seconds;
            // Tasks due after the backlog is drained are not affected by it.
            let lateness = results.lateness(last);
            let own = vec![
                Stat::count("drained", drained.len() as u64),
                Stat::count("undrained", (backlog.len() - drained.len()) as u64),
                Stat::new("drained_per_s", Value::Measured(per_s, 0)),
                Stat::new("drained_in_s", Value::Measured(seconds, 1)),
            ];
            let curve = (format!("newly due #{run}"), lateness);
            report.add(run, &results, own, per_s, curve);
        }
        Ok(report)
    }
}
