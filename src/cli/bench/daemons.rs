//! Scenario `daemons`: one daemon compared with several, in alternating runs under the same conditions.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::measure::Plan;
use super::meter::Cost;
use super::options::{Common, some_tasks, tasks};
use super::report::{Columns, Report};
use super::results::Results;
use super::stats::Stat;
use super::tasks::Arrivals;

/// Time limit of a run.
const PATIENCE: Duration = Duration::from_secs(300);

/// Span in which the tasks of a run fall due.
const WINDOW: Duration = Duration::from_secs(1);

/// Costs per task of one run. CPU time in microseconds, from the first due time until the last task is settled.
#[derive(Debug, Clone, Copy)]
struct PerTask {
    daemons: Option<f64>,
    redis: Option<f64>,
    database: Option<f64>,
    statements: f64,
    /// Keyspace events that Redis delivered, including those from writing the tasks.
    events: f64,
    tasks_per_s: f64,
}

#[derive(Args, Serialize)]
pub struct Daemons {
    /// Number of daemons compared with one
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub daemons: u32,
    /// Number of pairs of runs: one daemon, then several
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pairs: u32,
    /// Tasks of each run, due within one second
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Daemons {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let (mut pairs, mut duplicates) = (Vec::new(), 0);
        for repetition in 0..self.common.runs {
            for pair in 1..=self.pairs {
                let number = repetition * self.pairs + pair;
                let several = self.daemons as usize;
                // The second run of a pair finds warmer caches: the order alternates.
                let order = if number.is_multiple_of(2) {
                    [several, 1]
                } else {
                    [1, several]
                };
                let mut turns = [None; 2];
                for daemons in order {
                    let results = self.drain(environment, daemons).await?;
                    let costs = self.per_task(&results);
                    duplicates += results.duplicates();
                    turns[usize::from(daemons > 1)] = Some(costs);
                    let columns = Columns {
                        own: costs.stats(),
                        tasks_per_s: costs.tasks_per_s,
                        curve: results.name_of(number),
                        lateness: results.lateness(u64::MAX),
                    };
                    report.add(number, &results, columns);
                }
                if let [Some(one), Some(several)] = turns {
                    pairs.push((one, several));
                }
            }
        }
        let ratio = |of: fn(&PerTask) -> Option<f64>| {
            let ratios = pairs.iter().map(|(one, several)| {
                let (one, several) = (of(one)?, of(several)?);
                (one > 0.0).then(|| several / one)
            });
            let mut ratios: Vec<f64> = ratios.flatten().collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let throughput = ratio(|turn| Some(turn.tasks_per_s));
        let stat = |name, value| Stat::measured(name, value, 3);
        report.summary = vec![
            stat("tasks_per_s_ratio_median", median(&throughput)),
            stat("tasks_per_s_ratio_min", throughput.first().copied()),
            stat("tasks_per_s_ratio_max", throughput.last().copied()),
            stat("cpu_per_task_ratio_median", median(&ratio(PerTask::cpu))),
            stat(
                "sql_per_task_ratio_median",
                median(&ratio(|turn| Some(turn.statements))),
            ),
            stat(
                "events_per_task_ratio_median",
                median(&ratio(|turn| Some(turn.events))),
            ),
            Stat::count("duplicates_in_all", duplicates),
        ];
        Ok(report)
    }

    async fn drain(
        &self,
        environment: &mut Environment,
        daemons: usize,
    ) -> anyhow::Result<Results> {
        let label = format!("{daemons} of {}", self.daemons);
        let arrivals = Arrivals::Within(WINDOW, self.tasks);
        Plan {
            patience: PATIENCE,
            daemons,
            ..Plan::new(label, self.tasks, arrivals, WINDOW)
        }
        .run(environment)
        .await
    }

    fn per_task(&self, results: &Results) -> PerTask {
        let costs = &results.costs;
        let tasks = f64::from(self.tasks.max(1));
        let us = |cost: Option<Cost>| cost.map(|cost| cost.cpu.as_secs_f64() * 1e6 / tasks);
        PerTask {
            daemons: us(costs.daemon),
            redis: us(costs.redis),
            database: us(costs.database),
            statements: costs.counts.sql.unwrap_or(0) as f64 / tasks,
            events: results.events as f64 / tasks,
            tasks_per_s: per_second(results),
        }
    }
}

impl PerTask {
    /// CPU time of all processes; `None` if the servers are not private.
    fn cpu(&self) -> Option<f64> {
        Some(self.daemons? + self.redis? + self.database?)
    }

    fn stats(&self) -> Vec<Stat> {
        let us = |name, value| Stat::measured(name, value, 1);
        vec![
            us("daemons_cpu_us_per_task", self.daemons),
            us("redis_cpu_us_per_task", self.redis),
            us("database_cpu_us_per_task", self.database),
            us("cpu_us_per_task", self.cpu()),
            Stat::measured("redis_events_per_task", self.events, 2),
        ]
    }
}

/// From the first due time to the last start.
fn per_second(results: &Results) -> f64 {
    let last = results.all_starts().max().unwrap_or(u64::MAX);
    let us = last.saturating_sub(results.first_due_us).max(1);
    results.all_starts().count() as f64 / (us as f64 / 1e6)
}

/// Median of sorted values.
fn median(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}
