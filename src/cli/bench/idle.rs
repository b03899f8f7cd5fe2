//! Scenario `idle`: costs of a daemon while no task is due.

use tokio::time::{Instant, sleep};

use super::daemon::PROGRESS_EVERY;
use super::environment::Environment;
use super::meter::{Cost, Meter};
use super::options::Idle;
use super::process::Numbers;
use super::progress::spinner;
use super::report::{Report, megabytes};
use super::stats::{Row, Stat, Value};

impl Idle {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let mut daemon = environment.daemon(Numbers::default(), &[], false)?;
            let waiting = spinner("the daemon starts, and audits".to_owned());
            daemon.ready(false).await?;
            waiting.finish_and_clear();
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
            let cpu = |cost: Option<Cost>| Value::measured(cost.map(|cost| cost.cpu_percent), 2);
            let rss = |cost: Option<Cost>| {
                Value::measured(cost.map(|cost| megabytes(cost.resident_max)), 1)
            };
            let per_s =
                |count: Option<u64>| Value::measured(count.map(|count| count as f64 / seconds), 2);
            let stat = |name, value| Stat { name, value };
            let stats = vec![
                stat("daemon_cpu_percent", cpu(costs.daemon)),
                stat("redis_cpu_percent", cpu(costs.redis)),
                stat("database_cpu_percent", cpu(costs.database)),
                stat("daemon_rss_mb", rss(costs.daemon)),
                stat(
                    "daemon_rss_peak_mb",
                    Value::measured(costs.daemon_peak.map(megabytes), 1),
                ),
                stat("redis_rss_mb", rss(costs.redis)),
                stat("database_rss_mb", rss(costs.database)),
                stat("sql_per_s", per_s(Some(costs.counts.sql))),
                stat("redis_per_s", per_s(costs.counts.redis)),
            ];
            report.rows.push(Row {
                label: "idle".to_owned(),
                run: Some(run),
                stats,
            });
        }
        Ok(report)
    }
}
