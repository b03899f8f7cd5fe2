//! Meter: costs of daemons and servers between two moments.

use std::time::Duration;

use tokio::time::Instant;

use super::counters::{Counters, Counts};
use super::environment::Environment;
use super::process::Daemon;
use super::usage::{cpu_time, resident, resident_peak};

/// A running measurement of costs.
pub struct Meter {
    started: Instant,
    started_us: u64,
    counters: Counters,
    counts: Counts,
    daemons: Vec<Watched>,
    redis: Option<Watched>,
    database: Option<Watched>,
}

/// A process and its readings.
#[derive(Clone, Copy)]
struct Watched {
    pid: u32,
    cpu_before: Duration,
    resident_max: u64,
}

/// Measured costs.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Start and end, in microseconds since 1970.
    pub span_us: (u64, u64),
    /// All daemons together.
    pub daemon: Option<Cost>,
    /// The private Redis.
    pub redis: Option<Cost>,
    /// The private database.
    pub database: Option<Cost>,
    /// Peak resident memory of a daemon, in bytes.
    pub daemon_peak: Option<u64>,
    /// Counters of the servers.
    pub counts: Counts,
}

/// Costs of a process.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// CPU time.
    pub cpu: Duration,
    /// CPU time in percent of one core.
    pub cpu_percent: f64,
    /// Maximum resident memory of all samples, in bytes.
    pub resident_max: u64,
}

impl Watched {
    fn new(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            cpu_before: cpu_time(pid)?,
            resident_max: resident(pid)?,
        })
    }

    fn sample(&mut self) {
        let now = resident(self.pid).unwrap_or(0);
        self.resident_max = self.resident_max.max(now);
    }

    fn end(&self, elapsed: Duration) -> Option<Cost> {
        let used = cpu_time(self.pid)?.saturating_sub(self.cpu_before);
        Some(Cost {
            cpu: used,
            cpu_percent: used.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
            resident_max: self.resident_max,
        })
    }
}

impl Meter {
    /// Starts measuring.
    pub async fn begin(
        environment: &Environment,
        mut counters: Counters,
        daemons: &[Daemon],
    ) -> anyhow::Result<Self> {
        let counts = counters.read().await?;
        let (redis, database) = environment.server_pids();
        Ok(Self {
            started: Instant::now(),
            started_us: environment.now_us(),
            counters,
            counts,
            daemons: daemons
                .iter()
                .filter_map(|daemon| Watched::new(daemon.pid()?))
                .collect(),
            redis: redis.and_then(Watched::new),
            database: database.and_then(Watched::new),
        })
    }

    /// Samples memory; to be called regularly.
    pub fn sample(&mut self) {
        let daemons = self.daemons.iter_mut();
        for watched in daemons.chain(&mut self.redis).chain(&mut self.database) {
            watched.sample();
        }
    }

    /// Ends measuring.
    pub async fn end(&mut self, environment: &Environment) -> anyhow::Result<Costs> {
        self.sample();
        let elapsed = self.started.elapsed();
        let span_us = (self.started_us, environment.now_us());
        let daemons: Option<Vec<Cost>> = self.daemons.iter().map(|one| one.end(elapsed)).collect();
        let daemon = daemons.filter(|daemons| !daemons.is_empty());
        let daemon = daemon.map(|daemons| Cost {
            cpu: daemons.iter().map(|one| one.cpu).sum(),
            cpu_percent: daemons.iter().map(|one| one.cpu_percent).sum(),
            resident_max: daemons.iter().map(|one| one.resident_max).sum(),
        });
        let peaks = self.daemons.iter();
        Ok(Costs {
            span_us,
            daemon,
            redis: self.redis.and_then(|one| one.end(elapsed)),
            database: self.database.and_then(|one| one.end(elapsed)),
            daemon_peak: peaks.filter_map(|one| resident_peak(one.pid)).max(),
            counts: self.counters.read().await?.since(self.counts),
        })
    }
}
