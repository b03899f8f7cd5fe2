//! Scenario `recovery`: an overdue backlog at the start of the daemon, while new tasks fall due.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::measure::{Plan, measure};
use super::options::{Blocked, Common, positive_span, rate, seconds, some_tasks, tasks};
use super::report::{Columns, Report};
use super::results::Results;
use super::stats::Stat;

#[derive(Args, Serialize)]
pub struct Recovery {
    /// Overdue tasks when the daemon starts
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Tasks due per second meanwhile
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = rate)]
    pub rate: u32,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    /// How long new tasks fall due; also the time limit for the backlog
    #[arg(long, value_name = "DUR", default_value = "300s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub blocked: Blocked,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Recovery {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let label = format!("{} overdue", self.tasks);
        let plan = Plan {
            backlog: self.tasks,
            blocked: Some(self.blocked),
            ..Plan::evenly(label, self.rate, Duration::ZERO, self.duration)?
        };
        measure(environment, self.common.runs, &[plan], columns).await
    }
}

fn columns(run: u32, results: &Results) -> Columns {
    let backlog = results.backlog_starts();
    let drained: Vec<u64> = backlog.iter().flatten().copied().collect();
    let first = drained.iter().min().copied().unwrap_or(0);
    let last = drained.iter().max().copied().unwrap_or(0);
    let seconds = (last.saturating_sub(first)).max(1) as f64 / 1e6;
    let since_start = last.saturating_sub(results.first_due_us) as f64 / 1e6;
    let per_s = drained.len() as f64 / seconds;
    Columns {
        own: vec![
            Stat::count("drained", drained.len() as u64),
            Stat::count("undrained", (backlog.len() - drained.len()) as u64),
            Stat::measured("drained_per_s", per_s, 0),
            Stat::measured("drained_in_s", seconds, 1),
            Stat::measured("drained_after_s", since_start, 1),
        ],
        tasks_per_s: per_s,
        curve: format!("newly due #{run}"),
        // Tasks due after the backlog is drained are not affected by it.
        lateness: results.lateness(last),
    }
}
