//! Scenario `enqueue`: rate at which tasks are created one by one, concurrently, and in bulk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use lapsed::{Due, TaskClient, UnixMs};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::environment::Environment;
use super::meter::{Cost, Costs, Meter};
use super::options::Enqueue;
use super::process::Numbers;
use super::progress::spinner;
use super::report::{Report, megabytes};
use super::samples::{Lateness, Samples};
use super::stats::{Row, Stat, Value};
use super::usage::cpu_time;
use super::workload::{far_due, task};

/// One way of creating tasks.
struct Way {
    label: &'static str,
    /// Number of callers.
    callers: u32,
    /// Tasks per call.
    batch: u32,
}

/// Result of one caller.
#[derive(Default)]
struct Tally {
    rows: u64,
    keys: u64,
    calls: Vec<Lateness>,
}

impl Enqueue {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let mut daemon = None;
        if !self.no_daemon {
            let waiting = spinner("the daemon starts, and audits".to_owned());
            let mut beside = environment.daemon(Numbers::default(), &[], false)?;
            beside.ready(false).await?;
            waiting.finish_and_clear();
            daemon = Some(beside);
        }
        let ways = [
            Way {
                label: "one by one",
                callers: 1,
                batch: 1,
            },
            Way {
                label: "concurrent",
                callers: self.creators,
                batch: 1,
            },
            Way {
                label: "bulk",
                callers: self.loaders,
                batch: self.batch,
            },
        ];
        for run in 1..=self.common.runs {
            for way in &ways {
                let counters = environment.counters().await?;
                let beside = daemon.as_slice();
                let meter = Meter::begin(environment, counters, beside).await?;
                let watching = spinner(format!("creating: {}", way.label));
                let row = self.create(environment, way, run, meter).await?;
                watching.finish_and_clear();
                report.rows.push(row);
            }
        }
        if let Some(daemon) = daemon {
            daemon.stop().await?;
        }
        Ok(report)
    }

    async fn create(
        &self,
        environment: &mut Environment,
        way: &Way,
        run: u32,
        mut meter: Meter,
    ) -> anyhow::Result<Row> {
        let now = environment.client.now().await?;
        let numbers = Arc::new(AtomicU32::new(environment.take_numbers(0)));
        let own = std::process::id();
        let cpu_before = cpu_time(own);
        let begun = Instant::now();
        let end = begun + self.duration;
        let mut callers = Vec::new();
        for _ in 0..way.callers {
            let (client, numbers) = (environment.client.clone(), Arc::clone(&numbers));
            let stop = environment.stop.clone();
            let create = create_until(end, stop, client, numbers, way.batch, now);
            callers.push(environment.writers.spawn(create));
        }
        let mut all = Tally::default();
        for caller in callers {
            let tally = caller.await.context("create tasks")??;
            all.rows += tally.rows;
            all.keys += tally.keys;
            all.calls.extend(tally.calls);
        }
        let took = begun.elapsed();
        let cpu_own = cpu_time(own)
            .zip(cpu_before)
            .map(|(after, before)| after.saturating_sub(before));
        let costs = meter.end(environment).await?;
        let first = environment.take_numbers(0);
        environment.take_numbers(numbers.load(Ordering::Relaxed) - first);
        let own_percent = cpu_own.map(|cpu| cpu.as_secs_f64() / took.as_secs_f64() * 100.0);
        Ok(Row {
            label: way.label.to_owned(),
            run: Some(run),
            stats: stats(way, all, took, own_percent, &costs),
        })
    }
}

fn stats(
    way: &Way,
    all: Tally,
    took: Duration,
    own_percent: Option<f64>,
    costs: &Costs,
) -> Vec<Stat> {
    let calls = Samples::new(all.calls);
    let seconds = took.as_secs_f64();
    let stat = |name, value| Stat { name, value };
    let ms = |call: Option<Lateness>| match call {
        Some(Lateness::Started(us) | Lateness::MoreThan(us)) => {
            Value::Measured(us as f64 / 1000.0, 3)
        }
        None => Value::Unknown,
    };
    let cpu = |cost: Option<Cost>| Value::measured(cost.map(|cost| cost.cpu_percent), 1);
    let rss =
        |cost: Option<Cost>| Value::measured(cost.map(|cost| megabytes(cost.resident_max)), 1);
    let per_task = |count: Option<u64>| {
        let count = count.filter(|_| all.rows > 0);
        Value::measured(count.map(|count| count as f64 / all.rows as f64), 3)
    };
    vec![
        stat("callers", Value::Count(u64::from(way.callers))),
        stat("batch", Value::Count(u64::from(way.batch))),
        stat("rows", Value::Count(all.rows)),
        stat("rows_per_s", Value::Measured(all.rows as f64 / seconds, 0)),
        stat("keys_per_s", Value::Measured(all.keys as f64 / seconds, 0)),
        stat("call_p50_ms", ms(calls.percentile(50.0))),
        stat("call_p99_ms", ms(calls.percentile(99.0))),
        stat("call_max_ms", ms(calls.max())),
        stat("creator_cpu_percent", Value::measured(own_percent, 1)),
        stat("daemon_cpu_percent", cpu(costs.daemon)),
        stat("redis_cpu_percent", cpu(costs.redis)),
        stat("database_cpu_percent", cpu(costs.database)),
        stat("daemon_rss_mb", rss(costs.daemon)),
        stat("redis_rss_mb", rss(costs.redis)),
        stat("database_rss_mb", rss(costs.database)),
        stat("sql_per_task", per_task(Some(costs.counts.sql))),
        stat("redis_per_task", per_task(costs.counts.redis)),
    ]
}

/// Creates far tasks, one call after another.
async fn create_until(
    end: Instant,
    stop: CancellationToken,
    client: TaskClient,
    numbers: Arc<AtomicU32>,
    batch: u32,
    now: UnixMs,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    while Instant::now() < end && !stop.is_cancelled() {
        let first = numbers.fetch_add(batch, Ordering::Relaxed);
        let tasks: Result<Vec<_>, lapsed::task::ScheduleError> = (first..first + batch)
            .map(|number| Ok((task(number), Due::at(far_due(now, number))?)))
            .collect();
        let tasks = tasks?;
        let called = Instant::now();
        let made = client.create_many(tasks).await.context("create tasks")?;
        let took: Duration = called.elapsed();
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tally.calls.push(Lateness::Started(us));
        tally.rows += made.len() as u64;
        tally.keys += made.iter().filter(|made| made.armed).count() as u64;
    }
    Ok(tally)
}
