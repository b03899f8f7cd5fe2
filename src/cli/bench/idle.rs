//! Scenario `idle`: costs of a daemon while no task is due.

use tokio::time::{Instant, sleep};

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::daemon::PROGRESS_EVERY;
use super::environment::Environment;
use super::meter::Meter;
use super::options::{Common, positive_span, seconds, tasks};
use super::process::Numbers;
use super::progress::spinner;
use super::report::Report;
use super::stats::{Stat, Value, megabytes};

#[derive(Args, Serialize)]
pub struct Idle {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Idle {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let mut daemon = environment.daemon(Numbers::default(), &[], false)?;
            daemon.await_audit().await?;
            let counters = environment.counters().await?;
            let mut meter =
                Meter::begin(environment, counters, std::slice::from_ref(&daemon)).await?;
            let watching = spinner("watching the daemon".to_owned());
            let end = Instant::now() + self.duration;
            while Instant::now() < end {
                meter.sample();
                daemon.check()?;
                sleep(PROGRESS_EVERY.min(end.saturating_duration_since(Instant::now()))).await;
            }
            let costs = meter.end(environment).await?;
            watching.finish_and_clear();
            daemon.stop().await?;
            let seconds = self.duration.as_secs_f64();
            let per_s = |count| Value::ratio(count, seconds, 2);
            let stats = vec![
                Stat::new("daemon_cpu_percent", Value::cpu(costs.daemon, 2)),
                Stat::new("redis_cpu_percent", Value::cpu(costs.redis, 2)),
                Stat::new("database_cpu_percent", Value::cpu(costs.database, 2)),
                Stat::new("daemon_rss_mb", Value::rss(costs.daemon)),
                Stat::measured("daemon_rss_peak_mb", costs.daemon_peak.map(megabytes), 1),
                Stat::new("redis_rss_mb", Value::rss(costs.redis)),
                Stat::new("database_rss_mb", Value::rss(costs.database)),
                Stat::new("sql_per_s", per_s(costs.counts.sql)),
                Stat::new("redis_per_s", per_s(costs.counts.redis)),
            ];
            report.row("idle", run, stats);
        }
        Ok(report)
    }
}
