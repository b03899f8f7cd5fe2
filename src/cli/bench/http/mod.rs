//! Scenario `http`: the API, the pages of the dashboard, and what clients that follow it cost the engine.

pub mod pages;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::daemon::FAILING_CLASS;
use super::environment::Environment;
use super::measure::Plan;
use super::meter::Meter;
use super::options::{Common, positive_span, rate, seconds, some_tasks, tasks};
use super::process::{Daemon, Numbers};
use super::progress::{bar, spinner};
use super::report::{Report, lateness_stats};
use super::samples::Samples;
use super::stats::{Stat, Value};
use super::tasks::Arrivals;
use super::workload;

/// Lets the daemon serve HTTP on a free port.
pub const SERVE_HTTP: (&str, &str) = ("HTTP__LISTEN", "127.0.0.1:0");

/// How long to wait until all tasks are done, or dead.
const PATIENCE: Duration = Duration::from_secs(120);

/// Interval of looking at the table.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Args, Serialize)]
pub struct Http {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = some_tasks())]
    pub pending: u32,
    /// Dead tasks in the table, with 20 different errors
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = tasks())]
    pub dead: u32,
    /// Requests for one task per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Duration of these, and of creating tasks
    #[arg(long, value_name = "DUR", default_value = "20s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: u32,
    /// How often each page is loaded
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub loads: u32,
    /// Clients that follow the events meanwhile, compared with none
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub followers: u32,
    /// Tasks that are due at once, with and without these clients
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// How often both are measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub pairs: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Http {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let mut daemon = environment.daemon(Numbers::default(), &[SERVE_HTTP], false)?;
            daemon.await_audit().await?;
            let address = daemon.http().await?;
            if run == 1 {
                self.write_dead(environment, &mut daemon).await?;
            }
            let read = self.read(environment, &daemon, address).await?;
            report.row(format!("GET task {}/s", self.rate), run, read);
            let created = self.create(environment, &daemon, address).await?;
            let label = format!("POST task, {} connections", self.connections);
            report.row(label, run, created);
            let pages = pages::load(address, self.pending, self.loads, run).await?;
            report.rows.extend(pages);
            daemon.stop().await?;
            self.watch(environment, run, &mut report).await?;
        }
        Ok(report)
    }

    /// Writes tasks that fail for good, and waits until the daemon has run them.
    async fn write_dead(
        &self,
        environment: &mut Environment,
        daemon: &mut Daemon,
    ) -> anyhow::Result<()> {
        if self.dead == 0 {
            return Ok(());
        }
        let now = environment.client.now().await?;
        let writing = bar("dead", u64::from(self.dead));
        let due = move |_| now;
        let written =
            workload::write_of(FAILING_CLASS, environment, 0..self.dead, due, &writing).await?;
        let deadline = Instant::now() + PATIENCE;
        let mut dead = 0;
        while dead < u64::from(self.dead) {
            ensure!(
                Instant::now() < deadline,
                "{dead} of {} tasks were dead after {} s",
                self.dead,
                PATIENCE.as_secs()
            );
            daemon.check()?;
            sleep(LOOK_EVERY).await;
            dead = environment.store().dead(written.rows).await?;
        }
        Ok(())
    }

    /// Reads single tasks at a steady rate.
    async fn read(
        &self,
        environment: &Environment,
        daemon: &Daemon,
        address: SocketAddr,
    ) -> anyhow::Result<Vec<Stat>> {
        let watching = spinner("reading tasks".to_owned());
        let counters = environment.counters().await?;
        let mut meter = Meter::begin(environment, counters, std::slice::from_ref(daemon)).await?;
        let (connections, span) = (self.connections, self.duration);
        let samples = requests::read(address, connections, self.rate, span, self.pending).await?;
        let costs = meter.end(environment).await?;
        watching.finish_and_clear();
        let mut stats = lateness_stats(&samples);
        stats.push(Stat::new("daemon_cpu_percent", Value::cpu(costs.daemon, 1)));
        Ok(stats)
    }

    /// Creates tasks on all connections, one after another on each.
    async fn create(
        &self,
        environment: &mut Environment,
        daemon: &Daemon,
        address: SocketAddr,
    ) -> anyhow::Result<Vec<Stat>> {
        let watching = spinner("creating tasks".to_owned());
        let counters = environment.counters().await?;
        let mut meter = Meter::begin(environment, counters, std::slice::from_ref(daemon)).await?;
        let first = environment.take_numbers(0);
        let numbers = Arc::new(AtomicU32::new(first));
        let started = Instant::now();
        let samples: Samples =
            requests::create(address, self.connections, self.duration, &numbers).await?;
        let took = started.elapsed();
        let costs = meter.end(environment).await?;
        environment.take_numbers(numbers.load(Ordering::Relaxed) - first);
        watching.finish_and_clear();
        let per_s = samples.len() as f64 / took.as_secs_f64();
        let mut stats = vec![Stat::measured("created_per_s", per_s, 0)];
        stats.extend(lateness_stats(&samples));
        stats.extend([
            Stat::new("daemon_cpu_percent", Value::cpu(costs.daemon, 1)),
            Stat::new("database_cpu_percent", Value::cpu(costs.database, 1)),
        ]);
        Ok(stats)
    }

    /// Drains tasks that are due at once, with and without clients that follow the events. The order alternates.
    async fn watch(
        &self,
        environment: &mut Environment,
        run: u32,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        for pair in 0..self.pairs {
            let mut numbers = [0, self.followers];
            if pair % 2 == 1 {
                numbers.reverse();
            }
            for followers in numbers {
                let stats = self.drain(environment, followers).await?;
                let label = format!("{} tasks, {followers} followers", self.tasks);
                report.row(label, (run - 1) * self.pairs + pair + 1, stats);
            }
        }
        Ok(())
    }

    async fn drain(
        &self,
        environment: &mut Environment,
        followers: u32,
    ) -> anyhow::Result<Vec<Stat>> {
        let label = format!("{followers} followers");
        let plan = Plan {
            patience: PATIENCE,
            settings: &[SERVE_HTTP],
            followers,
            ..Plan::new(label, self.tasks, Arrivals::AtOnce, Duration::from_secs(1))
        };
        let results = plan.run(environment).await?;
        let took = results.all_settled_us();
        let took = took.map(|us| us.saturating_sub(results.first_due_us).max(1) as f64 / 1e6);
        let cpu = results.costs.daemon.map(|cost| cost.cpu.as_secs_f64());
        let per_task = cpu.map(|seconds| seconds * 1e6 / f64::from(self.tasks));
        Ok(vec![
            Stat::measured(
                "tasks_per_s",
                took.map(|took| f64::from(self.tasks) / took),
                0,
            ),
            Stat::measured("all_settled_ms", took.map(|took| took * 1e3), 0),
            Stat::measured("daemon_cpu_us_per_task", per_task, 1),
            Stat::new("daemon_rss_mb", Value::rss(results.costs.daemon)),
            Stat::count("followers", results.followed.clients),
            Stat::count("hint_bytes", results.followed.bytes),
            Stat::count("lost", results.lost()),
            Stat::count("duplicates", results.duplicates()),
        ])
    }
}
