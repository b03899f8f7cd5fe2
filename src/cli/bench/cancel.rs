//! Scenario `cancel`: rate at which tasks are cancelled by tag.

use anyhow::{Context, ensure};
use lapsed::Due;
use lapsed::ledger::ListFilter;
use tokio::time::Instant;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::meter::Meter;
use super::options::{Common, seconds, span, tasks};
use super::progress::{bar, spinner};
use super::report::Report;
use super::stats::{Stat, Value};
use super::tasks::{BATCH, far_due, task};

#[derive(Args, Serialize)]
pub struct Cancel {
    /// Tasks with the tag
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub tasks: u32,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Pause between writing the tasks and each measurement
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub rest: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Cancel {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let tag = format!("bench-{run}");
            self.create(environment, &tag).await?;
            // Cancelled tasks usually are old: the database has purged and flushed what writing them left.
            tokio::time::sleep(self.rest).await;
            let counters = environment.counters().await?;
            let meter = Meter::begin(environment, counters, &[]).await?;
            let watching = spinner("cancelling".to_owned());
            let stats = self.cancel(environment, &tag, meter).await?;
            watching.finish_and_clear();
            report.row("by tag", run, stats);
        }
        Ok(report)
    }

    /// Creates far tasks with this tag, rows and keys.
    async fn create(&self, environment: &mut Environment, tag: &str) -> anyhow::Result<()> {
        let now = environment.client.now().await?;
        let first = environment.take_numbers(self.tasks);
        let bar = bar("tagged", u64::from(self.tasks));
        for from in (first..first + self.tasks).step_by(BATCH as usize) {
            let to = (first + self.tasks).min(from + BATCH);
            let tasks: Result<Vec<_>, lapsed::task::ScheduleError> = (from..to)
                .map(|number| Ok((task(number).tag(tag), Due::at(far_due(now, number))?)))
                .collect();
            let made = environment.client.create_many(tasks?).await;
            bar.inc(made.context("create tasks")?.len() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn cancel(
        &self,
        environment: &Environment,
        tag: &str,
        mut meter: Meter,
    ) -> anyhow::Result<Vec<Stat>> {
        let started = Instant::now();
        let cancelled = environment.client.cancel_where(&ListFilter::tag(tag)).await;
        let took = started.elapsed();
        let report = cancelled.context("cancel tasks")?;
        let costs = meter.end(environment).await?;
        ensure!(
            report.cancelled == u64::from(self.tasks),
            "{} of {} tasks were cancelled, {} run, {} are locked",
            report.cancelled,
            self.tasks,
            report.running,
            report.locked
        );
        let seconds = took.as_secs_f64();
        let per_task = |count| Value::ratio(count, report.cancelled as f64, 3);
        let stats = vec![
            Stat::count("cancelled", report.cancelled),
            Stat::measured("seconds", seconds, 3),
            Stat::measured("cancelled_per_s", report.cancelled as f64 / seconds, 0),
            Stat::new("redis_cpu_percent", Value::cpu(costs.redis, 1)),
            Stat::new("database_cpu_percent", Value::cpu(costs.database, 1)),
            Stat::new("sql_per_task", per_task(costs.counts.sql)),
            Stat::new("redis_per_task", per_task(costs.counts.redis)),
        ];
        Ok(stats)
    }
}
