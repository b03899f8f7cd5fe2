//! Scenario `pull`: tasks handed over to workers at the RESP server.

mod waiting;
mod workers;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lapsed::UnixMs;
use serde::Serialize;
use tokio::time::sleep;

use self::waiting::WaitingConnections;
use self::workers::Workers;
use super::environment::Environment;
use super::followers::Followed;
use super::meter::Meter;
use super::options::{Common, arriving, positive_span, rate, seconds, some_tasks, span, tasks};
use super::process::{Daemon, Numbers};
use super::progress::{bar, spinner};
use super::report::{Columns, Report};
use super::results::Results;
use super::stats::{Stat, Value, megabytes};
use super::tasks::Arrivals;
use super::usage::resident;
use super::workload;

/// Minimum time between the last task written and the first one due.
const LEAD: Duration = Duration::from_secs(3);

/// How long to wait for tasks that have not been handed over.
const PATIENCE: Duration = Duration::from_secs(120);

/// Interval of looking at the workers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Connections of the daemon besides those of workers.
const SPARE_CONNECTIONS: u32 = 16;

#[derive(Args, Serialize)]
pub struct Pull {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks due per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement at that rate, not counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement at that rate
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Tasks that are then due in the same millisecond
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Workers, each with a connection
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub workers: u32,
    /// Tasks that a worker takes at once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub batch: u32,
    /// Workers that wait at an empty queue all the time
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub waiting: u32,
    /// Connections that send nothing
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub idle: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Pull {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let connections = self.workers + self.waiting + self.idle + SPARE_CONNECTIONS;
        // Inherited by the daemon.
        waiting::allow_files(u64::from(connections) + 1_000)?;
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let mut daemon = environment.daemon_with_resp(connections)?;
            daemon.await_audit().await?;
            let resp = daemon.resp().await?;
            let waiting = match self.waiting + self.idle {
                0 => None,
                _ => Some(
                    self.watch_waiting(environment, &daemon, resp, run, &mut report)
                        .await?,
                ),
            };
            self.hand_over(environment, &mut daemon, resp, run, &mut report)
                .await?;
            self.drain(environment, &mut daemon, resp, run, &mut report)
                .await?;
            drop(waiting);
            daemon.stop().await?;
        }
        Ok(report)
    }

    /// Opens the connections that wait, and measures what they cost while nothing happens.
    async fn watch_waiting(
        &self,
        environment: &Environment,
        daemon: &Daemon,
        resp: SocketAddr,
        run: u32,
        report: &mut Report,
    ) -> anyhow::Result<WaitingConnections> {
        let resident_before = daemon.pid().and_then(resident);
        let spinner = spinner("opening connections".to_owned());
        let waiting = WaitingConnections::gather(resp, self.waiting, self.idle).await?;
        spinner.set_message("watching the daemon");
        let counters = environment.counters().await?;
        let mut meter = Meter::begin(environment, counters, std::slice::from_ref(daemon)).await?;
        let until_us = environment.now_us() + micros(self.duration);
        while environment.now_us() < until_us {
            sleep(LOOK_EVERY).await;
            meter.sample();
        }
        let costs = meter.end(environment).await?;
        spinner.finish_and_clear();
        let before = resident_before.map(megabytes);
        report.row(
            "waiting",
            run,
            vec![
                Stat::count("waiting_workers", u64::from(self.waiting)),
                Stat::count("idle_connections", u64::from(self.idle)),
                Stat::new("daemon_cpu_percent", Value::cpu(costs.daemon, 1)),
                Stat::measured("daemon_rss_before_mb", before, 1),
                Stat::new("daemon_rss_mb", Value::rss(costs.daemon)),
            ],
        );
        Ok(waiting)
    }

    /// Lateness at a steady rate, while workers wait.
    async fn hand_over(
        &self,
        environment: &mut Environment,
        daemon: &mut Daemon,
        resp: SocketAddr,
        run: u32,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let batch = Batch {
            label: format!("{}/s", self.rate),
            count: u32::try_from(arriving(self.rate, self.warm_up + self.duration))?,
            arrivals: Arrivals::Evenly(self.rate),
            warm_up: self.warm_up,
            window: self.duration,
        };
        let results = self.work(environment, daemon, resp, batch).await?;
        let columns = Columns {
            own: Vec::new(),
            tasks_per_s: results.started_in_window() as f64 / self.duration.as_secs_f64(),
            curve: results.name_of(run),
            lateness: results.lateness(u64::MAX),
        };
        report.add(run, &results, columns);
        Ok(())
    }

    /// Rate at which tasks that are due are taken and completed.
    async fn drain(
        &self,
        environment: &mut Environment,
        daemon: &mut Daemon,
        resp: SocketAddr,
        run: u32,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let batch = Batch {
            label: format!("{} at once", self.tasks),
            count: self.tasks,
            arrivals: Arrivals::AtOnce,
            warm_up: Duration::ZERO,
            window: Duration::from_secs(1),
        };
        let results = self.work(environment, daemon, resp, batch).await?;
        let took = results.all_settled_us();
        let took = took.map(|us| us.saturating_sub(results.first_due_us).max(1) as f64 / 1e6);
        let columns = Columns {
            own: vec![Stat::measured(
                "all_completed_ms",
                took.map(|took| took * 1e3),
                0,
            )],
            tasks_per_s: took.map_or(0.0, |took| f64::from(self.tasks) / took),
            curve: results.name_of(run),
            lateness: results.lateness(u64::MAX),
        };
        report.add(run, &results, columns);
        Ok(())
    }

    /// Writes tasks and has the workers take and complete them.
    async fn work(
        &self,
        environment: &mut Environment,
        daemon: &mut Daemon,
        resp: SocketAddr,
        batch: Batch,
    ) -> anyhow::Result<Results> {
        let Batch {
            label,
            count,
            arrivals,
            warm_up,
            window,
        } = batch;
        let numbers = Numbers {
            first: environment.take_numbers(count),
            count,
            ..Numbers::default()
        };
        let mut workers =
            Workers::start(environment, resp, self.workers, self.batch, numbers).await?;
        let lead = LEAD + environment.writing_takes(count);
        let first_due = environment.client.now().await?.plus(lead);
        let due = move |number: u32| -> UnixMs {
            let offset_ms = arrivals.offset_ms(number - numbers.first);
            first_due.plus(Duration::from_millis(offset_ms))
        };
        let last = numbers.first + count;
        let writing = bar("tasks", u64::from(count));
        let written = workload::write(environment, numbers.first..last, due, &writing).await?;
        environment.has_written(count, written.took);
        let first_due_us = u64::try_from(first_due.0).unwrap_or(0) * 1000;
        let window_us = (
            first_due_us + micros(warm_up),
            first_due_us + micros(warm_up + window),
        );
        environment.sleep_until(window_us.0).await;
        let counters = environment.counters().await?;
        let mut meter = Meter::begin(environment, counters, std::slice::from_ref(daemon)).await?;
        let handing = bar("handing over", u64::from(count));
        let deadline_us = window_us.1 + micros(PATIENCE);
        while workers.completed() < u64::from(count) && environment.now_us() < deadline_us {
            daemon.check()?;
            workers.check().await?;
            meter.sample();
            handing.set_position(workers.completed());
            sleep(LOOK_EVERY).await;
        }
        let costs = meter.end(environment).await?;
        handing.finish_and_clear();
        let record = workers.stop().await.context("let workers end")?;
        let (done, settled_us) = environment.settled(written.rows).await?;
        environment.forget_pending(written.rows).await?;
        environment.disarm(numbers.first, &record).await;
        Ok(Results {
            label,
            arrivals,
            backlog: 0,
            first_due_us,
            window_us,
            watched_until_us: environment.now_us(),
            audit: None,
            clock_error_us: environment.clock_error_us(),
            record,
            done,
            competing_done: 0,
            settled_us,
            costs,
            followed: Followed::default(),
            events: 0,
        })
    }
}

/// Tasks for the workers.
struct Batch {
    label: String,
    count: u32,
    arrivals: Arrivals,
    warm_up: Duration,
    window: Duration,
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
