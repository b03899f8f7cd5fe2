//! Scenario `compare`: the same work with each timer.

use std::time::Duration;

use clap::Args;
use lapsed::config::TimerKind;
use serde::{Serialize, Serializer};
use tokio::time::{Instant, sleep, sleep_until};

use super::burst::Burst;
use super::daemon::PROGRESS_EVERY;
use super::environment::Environment;
use super::idle::Idle;
use super::lateness::{Lateness, Nets};
use super::options::{Common, arriving, positive_span, rate, seconds, some_tasks, tasks};
use super::process::Numbers;
use super::progress::bar;
use super::report::{Report, lateness_stats};
use super::samples::{Lateness as Sample, Samples};
use super::stats::{Stat, Value};
use super::tasks::task;
use super::workload;

/// Warm-up of the steady rate, which is not counted.
const WARM_UP: Duration = Duration::from_secs(3);

/// How long to wait for tasks that were created due.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Args, Serialize)]
pub struct Compare {
    /// Timers to compare [default: all]
    #[arg(long, value_delimiter = ',', value_name = "TIMER,..", value_parser = timer)]
    #[serde(serialize_with = "names")]
    pub timers: Vec<TimerKind>,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks due per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Duration of each measurement at this rate, and of the idle one
    #[arg(long, value_name = "DUR", default_value = "15s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Tasks due in the same millisecond
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = some_tasks())]
    pub burst: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

fn timer(name: &str) -> Result<TimerKind, String> {
    let mut all = TimerKind::ALL.into_iter();
    all.find(|kind| kind.as_str() == name).ok_or_else(|| {
        let names = TimerKind::ALL.map(TimerKind::as_str);
        format!("expected one of {}", names.join(", "))
    })
}

fn names<S: Serializer>(timers: &[TimerKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(timers.iter().map(|kind| kind.as_str()))
}

impl Compare {
    /// The timers to compare.
    pub fn timers(&self) -> &[TimerKind] {
        match &self.timers[..] {
            [] => &TimerKind::ALL,
            timers => timers,
        }
    }

    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            for timer in self.timers() {
                let stats = self.measure(environment, *timer, &mut report).await?;
                report.row(timer.as_str(), run, stats);
            }
        }
        Ok(report)
    }

    async fn measure(
        &self,
        environment: &mut Environment,
        timer: TimerKind,
        report: &mut Report,
    ) -> anyhow::Result<Vec<Stat>> {
        environment.switch_timer(timer).await?;
        let before = environment.redis_memory().await?;
        let written = workload::write_far(environment, self.pending).await?;
        environment.has_written(self.pending, written.took);
        let after = environment.redis_memory().await?;
        let bytes = after.zip(before);
        let bytes = bytes.map(|(after, before)| after.saturating_sub(before));
        let mut stats = vec![Stat::new(
            "redis_bytes_per_task",
            Value::ratio(bytes, f64::from(self.pending), 0),
        )];

        let common = Common {
            runs: 1,
            plot: None,
            ..self.common.clone()
        };
        let lateness = Lateness {
            pending: self.pending,
            rate: self.rate,
            warm_up: WARM_UP,
            duration: self.duration,
            nets: vec![Nets::All],
            redis_down: false,
            audit: false,
            common: common.clone(),
        };
        let mut steady = lateness.run(environment).await?;
        stats.extend(picked(
            steady.first(),
            &[
                ("p50_ms", "p50_ms"),
                ("p99_ms", "p99_ms"),
                ("max_ms", "max_ms"),
                ("early", "early"),
                ("lost", "lost"),
                ("duplicates", "duplicates"),
                ("sql_per_task", "sql_per_task"),
                ("redis_per_task", "redis_per_task"),
                ("daemon_cpu_percent", "daemon_cpu_percent"),
                ("redis_cpu_percent", "redis_cpu_percent"),
                ("database_cpu_percent", "database_cpu_percent"),
            ],
        ));
        let curves = steady.curves.drain(..);
        let curves = curves.map(|(_, samples)| (timer.as_str().to_owned(), samples));
        report.curves.extend(curves);

        let now = lateness_stats(&self.measure_due_now(environment).await?);
        stats.extend(picked(
            &now,
            &[
                ("p50_ms", "due_now_p50_ms"),
                ("p99_ms", "due_now_p99_ms"),
                ("max_ms", "due_now_max_ms"),
            ],
        ));

        let burst = Burst {
            tasks: self.burst,
            pending: self.pending,
            common: common.clone(),
        };
        let burst = burst.run(environment).await?;
        stats.extend(picked(
            burst.first(),
            &[
                ("all_started_ms", "burst_started_ms"),
                ("all_settled_ms", "burst_settled_ms"),
                ("lost", "burst_lost"),
                ("duplicates", "burst_duplicates"),
            ],
        ));

        let idle = Idle {
            pending: self.pending,
            duration: self.duration,
            common,
        };
        let idle = idle.run(environment).await?;
        stats.extend(picked(
            idle.first(),
            &[
                ("daemon_cpu_percent", "idle_daemon_cpu_percent"),
                ("redis_cpu_percent", "idle_redis_cpu_percent"),
                ("database_cpu_percent", "idle_database_cpu_percent"),
                ("sql_per_s", "idle_sql_per_s"),
                ("redis_per_s", "idle_redis_per_s"),
            ],
        ));
        Ok(stats)
    }

    /// Lateness of tasks that another process creates due at once, one at a time.
    async fn measure_due_now(&self, environment: &mut Environment) -> anyhow::Result<Samples> {
        let count = u32::try_from(arriving(self.rate, self.duration))?;
        let first = environment.take_numbers(count);
        let numbers = Numbers {
            first,
            count,
            ..Numbers::default()
        };
        let mut daemon = environment.daemon(numbers, &[], false)?;
        daemon.ready(false).await?;
        let bar = bar("tasks due now", u64::from(count));
        let (began, mut due_us) = (Instant::now(), Vec::with_capacity(count as usize));
        for index in 0..count {
            let at = Duration::from_secs_f64(f64::from(index) / f64::from(self.rate));
            sleep_until(began + at).await;
            let created = environment
                .client
                .create(task(first + index), Duration::ZERO);
            let due = created.await?.due();
            due_us.push(u64::try_from(due.0).unwrap_or(0) * 1000);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let deadline = Instant::now() + PATIENCE;
        while daemon.progress().started < u64::from(count) && Instant::now() < deadline {
            daemon.check()?;
            sleep(PROGRESS_EVERY).await;
        }
        let watched_us = environment.now_us();
        let record = daemon.stop().await?;
        let lateness = record.starts_us.iter().zip(due_us);
        Ok(Samples::new(lateness.map(|(start, due)| match start {
            Some(start) => Sample::Started(start.saturating_sub(due)),
            None => Sample::MoreThan(watched_us.saturating_sub(due)),
        })))
    }
}

/// Some statistics, under other names.
fn picked(stats: &[Stat], names: &[(&str, &'static str)]) -> Vec<Stat> {
    let named = names.iter().filter_map(|(name, renamed)| {
        let stat = stats.iter().find(|stat| stat.name == *name)?;
        Some(Stat::new(renamed, stat.value))
    });
    named.collect()
}
