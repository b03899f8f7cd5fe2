//! Scenario `enqueue`: rate at which tasks are created one by one, concurrently, and in bulk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use lapsed::{Due, TaskClient, UnixMs};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use clap::Args;
use serde::Serialize;

use super::environment::Environment;
use super::meter::{Costs, Meter};
use super::options::{Common, positive_span, seconds, tasks};
use super::process::Numbers;
use super::progress::spinner;
use super::report::Report;
use super::samples::{Lateness, Samples};
use super::stats::{Stat, Value};
use super::tasks::{far_due, task};
use super::usage::cpu_time;

/// A method of creating tasks.
struct Method {
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

#[derive(Args, Serialize)]
pub struct Enqueue {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Run no daemon meanwhile
    #[arg(long)]
    pub no_daemon: bool,
    /// Run a daemon meanwhile (the default)
    #[arg(long, conflicts_with = "no_daemon")]
    pub daemon: bool,
    /// Concurrent callers that create single tasks
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub creators: u32,
    /// Concurrent callers that create tasks in bulk
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub loaders: u32,
    /// Tasks per bulk call
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// Duration of each of the three parts
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Enqueue {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let mut daemon = None;
        if !self.no_daemon {
            let mut running = environment.daemon(Numbers::default(), &[], false)?;
            running.await_audit().await?;
            daemon = Some(running);
        }
        let methods = [
            Method {
                label: "one by one",
                callers: 1,
                batch: 1,
            },
            Method {
                label: "concurrent",
                callers: self.creators,
                batch: 1,
            },
            Method {
                label: "bulk",
                callers: self.loaders,
                batch: self.batch,
            },
        ];
        for run in 1..=self.common.runs {
            for method in &methods {
                let counters = environment.counters().await?;
                let meter = Meter::begin(environment, counters, daemon.as_slice()).await?;
                let watching = spinner(format!("creating: {}", method.label));
                let stats = self.create(environment, method, meter).await?;
                watching.finish_and_clear();
                report.row(method.label, run, stats);
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
        method: &Method,
        mut meter: Meter,
    ) -> anyhow::Result<Vec<Stat>> {
        let now = environment.client.now().await?;
        let numbers = Arc::new(AtomicU32::new(environment.take_numbers(0)));
        let own = std::process::id();
        let cpu_before = cpu_time(own);
        let started = Instant::now();
        let end = started + self.duration;
        let mut callers = Vec::new();
        for _ in 0..method.callers {
            let (client, numbers) = (environment.client.clone(), Arc::clone(&numbers));
            let stop = environment.stop.clone();
            let create = create_until(end, stop, client, numbers, method.batch, now);
            callers.push(environment.writers.spawn(create));
        }
        let mut all = Tally::default();
        for caller in callers {
            let tally = caller.await.context("create tasks")??;
            all.rows += tally.rows;
            all.keys += tally.keys;
            all.calls.extend(tally.calls);
        }
        let took = started.elapsed();
        let cpu_own = cpu_time(own)
            .zip(cpu_before)
            .map(|(after, before)| after.saturating_sub(before));
        let costs = meter.end(environment).await?;
        let first = environment.take_numbers(0);
        environment.take_numbers(numbers.load(Ordering::Relaxed) - first);
        let own_percent = cpu_own.map(|cpu| cpu.as_secs_f64() / took.as_secs_f64() * 100.0);
        Ok(stats(method, all, took, own_percent, &costs))
    }
}

fn stats(
    method: &Method,
    all: Tally,
    took: Duration,
    own_percent: Option<f64>,
    costs: &Costs,
) -> Vec<Stat> {
    let calls = Samples::new(all.calls);
    let seconds = took.as_secs_f64();
    let ms = |call: Option<Lateness>| match call {
        Some(Lateness::Started(us) | Lateness::MoreThan(us)) => {
            Value::Measured(us as f64 / 1000.0, 3)
        }
        None => Value::Unknown,
    };
    let per_task = |count| Value::ratio(count, all.rows as f64, 3);
    vec![
        Stat::count("callers", u64::from(method.callers)),
        Stat::count("batch", u64::from(method.batch)),
        Stat::count("rows", all.rows),
        Stat::measured("rows_per_s", all.rows as f64 / seconds, 0),
        Stat::measured("keys_per_s", all.keys as f64 / seconds, 0),
        Stat::new("call_p50_ms", ms(calls.percentile(50.0))),
        Stat::new("call_p99_ms", ms(calls.percentile(99.0))),
        Stat::new("call_max_ms", ms(calls.max())),
        Stat::measured("creator_cpu_percent", own_percent, 1),
        Stat::new("daemon_cpu_percent", Value::cpu(costs.daemon, 1)),
        Stat::new("redis_cpu_percent", Value::cpu(costs.redis, 1)),
        Stat::new("database_cpu_percent", Value::cpu(costs.database, 1)),
        Stat::new("daemon_rss_mb", Value::rss(costs.daemon)),
        Stat::new("redis_rss_mb", Value::rss(costs.redis)),
        Stat::new("database_rss_mb", Value::rss(costs.database)),
        Stat::new("sql_per_task", per_task(costs.counts.sql)),
        Stat::new("redis_per_task", per_task(costs.counts.redis)),
        Stat::new("syncs_per_task", per_task(costs.counts.syncs)),
        Stat::new("log_bytes_per_task", per_task(costs.counts.log_bytes)),
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
