//! Scenario `adopt`: bare `SETEX`, or `ZADD` with the timer `sorted_set`, at a steady rate, with counts of runs and lateness.

use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, sleep, sleep_until};

use clap::Args;
use lapsed::config::TimerKind;
use serde::Serialize;

use super::daemon::PROGRESS_EVERY;
use super::environment::Environment;
use super::meter::Meter;
use super::options::{Common, arriving, positive_span, rate, seconds, tasks};
use super::process::Numbers;
use super::progress::{bar, spinner};
use super::recorder::Record;
use super::report::{Report, lateness_stats};
use super::samples::{Lateness, Samples};
use super::stats::{Stat, Value};
use super::tasks::task;

/// Interval between batches of keys.
const TICK: Duration = Duration::from_millis(10);

/// How long to wait for missing runs after the last key is due; then they count as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// Due time of each key, in microseconds since 1970.
struct Armed {
    due_us: Vec<u64>,
    took: Duration,
}

#[derive(Args, Serialize)]
pub struct Adopt {
    /// Bare keys written per second
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rate)]
    pub rate: u32,
    /// Duration of writing
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Time to live of each key
    #[arg(long, value_name = "DUR", default_value = "4s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Adopt {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let count = u32::try_from(arriving(self.rate, self.duration))?;
            let first = environment.take_numbers(count);
            let numbers = Numbers {
                first,
                count,
                ..Numbers::default()
            };
            let mut daemon = environment.daemon(numbers, &[], false)?;
            daemon.await_audit().await?;
            let counters = environment.counters().await?;
            let mut meter =
                Meter::begin(environment, counters, std::slice::from_ref(&daemon)).await?;
            let armed = self.arm(environment, first, count).await?;
            let last_us = armed.due_us.last().copied().unwrap_or(0);
            let until_us = last_us + PATIENCE.as_micros() as u64;
            let running = spinner("running".to_owned());
            while environment.now_us() < until_us {
                daemon.check()?;
                meter.sample();
                let progress = daemon.progress();
                if progress.started >= u64::from(count) && progress.running == 0 {
                    break;
                }
                sleep(PROGRESS_EVERY).await;
            }
            running.finish_and_clear();
            let watched_us = environment.now_us();
            let costs = meter.end(environment).await?;
            let record = daemon.stop().await?;
            let (own, lateness) = judge(&armed, &record, watched_us);
            let per_task = |count| Value::ratio(count, f64::from(count_of(&armed)), 3);
            let mut stats = own;
            stats.extend(lateness_stats(&lateness));
            stats.extend(
                [
                    ("daemon_cpu_percent", Value::cpu(costs.daemon, 1)),
                    ("redis_cpu_percent", Value::cpu(costs.redis, 1)),
                    ("database_cpu_percent", Value::cpu(costs.database, 1)),
                    ("daemon_rss_mb", Value::rss(costs.daemon)),
                    ("sql_per_task", per_task(costs.counts.sql)),
                    ("redis_per_task", per_task(costs.counts.redis)),
                ]
                .map(|(name, value)| Stat::new(name, value)),
            );
            let label = format!("{}/s", self.rate);
            report.curves.push((format!("{label} #{run}"), lateness));
            report.row(label, run, stats);
        }
        Ok(report)
    }

    /// Writes the keys of these numbers, like programs that do not know lapsed.
    async fn arm(
        &self,
        environment: &Environment,
        first: u32,
        count: u32,
    ) -> anyhow::Result<Armed> {
        let mut redis = environment.redis().await.context("connect to redis")?;
        let config = &environment.config;
        let prefix = &config.redis.key_prefix;
        let sets = &config.sorted_set.keys;
        let set_of = |number: u32| format!("{prefix}{}", sets[number as usize % sets.len()]);
        let ttl_ms = u64::try_from(self.ttl.as_millis())?;
        let bar = bar("keys", u64::from(count));
        let (began, mut due_us) = (Instant::now(), Vec::with_capacity(count as usize));
        let mut written = 0;
        while written < count {
            sleep_until(began + TICK * u32::try_from(due_us.len().div_ceil(self.tick()))?).await;
            let batch = u32::try_from(self.tick())?.min(count - written);
            let mut set = redis::pipe();
            let due_ms = environment.now_us() / 1000 + ttl_ms;
            for number in first + written..first + written + batch {
                let task = task(number);
                let key = task.key();
                if config.timer == TimerKind::SortedSet {
                    set.zadd(set_of(number), key.as_str(), due_ms).ignore();
                    continue;
                }
                let name = format!("{prefix}{key}");
                set.cmd("PSETEX").arg(name).arg(ttl_ms).arg("").ignore();
            }
            set.exec_async(&mut redis).await.context("write keys")?;
            // All keys are written: none is due later than this.
            let due = environment.now_us() + ttl_ms * 1000;
            due_us.resize(due_us.len() + batch as usize, due);
            written += batch;
            bar.set_position(u64::from(written));
        }
        bar.finish_and_clear();
        Ok(Armed {
            due_us,
            took: began.elapsed(),
        })
    }

    /// Keys of one tick.
    fn tick(&self) -> usize {
        usize::try_from(arriving(self.rate, TICK))
            .unwrap_or(1)
            .max(1)
    }
}

fn count_of(armed: &Armed) -> u32 {
    u32::try_from(armed.due_us.len()).unwrap_or(u32::MAX).max(1)
}

/// Evaluates the keys: counts and lateness.
fn judge(armed: &Armed, record: &Record, watched_us: u64) -> (Vec<Stat>, Samples) {
    let lost = record.runs.iter().filter(|runs| **runs == 0).count();
    let twice = record.runs.iter().map(|runs| runs.saturating_sub(1));
    let written_per_s = armed.due_us.len() as f64 / armed.took.as_secs_f64();
    let last_due = armed.due_us.last().copied().unwrap_or(0);
    let last_start = record
        .starts_us
        .iter()
        .flatten()
        .max()
        .copied()
        .unwrap_or(0);
    let behind_s = last_start.saturating_sub(last_due) as f64 / 1e6;
    let stats = [
        ("written", Value::Count(armed.due_us.len() as u64)),
        ("written_per_s", Value::Measured(written_per_s, 0)),
        ("lost", Value::Count(lost as u64)),
        ("duplicates", Value::Count(twice.map(u64::from).sum())),
        ("behind_s", Value::Measured(behind_s, 1)),
    ]
    .map(|(name, value)| Stat::new(name, value));
    let lateness = record.starts_us.iter().zip(&armed.due_us);
    let lateness = lateness.map(|(start, due)| match start {
        Some(start) => Lateness::Started(start.saturating_sub(*due)),
        None => Lateness::MoreThan(watched_us.saturating_sub(*due)),
    });
    (stats.into(), Samples::new(lateness))
}
