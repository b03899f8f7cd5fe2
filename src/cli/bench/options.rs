//! What the command line of `lapsed bench` takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Serialize, Serializer};

/// Longest run: starts are remembered in 32 bits of microseconds.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// Most tasks of one kind in one run.
const TASKS_MAX: i64 = 100_000_000;

#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    pub scenario: Scenario,
}

#[derive(Subcommand)]
pub enum Scenario {
    /// How long after its due time a task starts, at a steady rate
    Lateness(Lateness),
    /// Whether a high rate is held
    Throughput(Throughput),
    /// Many tasks due in the same millisecond
    Burst(Burst),
    /// How fast tasks are created
    Enqueue(Enqueue),
    /// How fast an overdue backlog is worked off, and what newly due tasks feel of it
    Recovery(Recovery),
    /// What a daemon costs that has nothing to do
    Idle(Idle),
    /// One daemon against two
    Daemons(Daemons),
    /// Many tasks of a slow class due at once, and what another class feels of it
    Fairness(Fairness),
    /// How fast many tasks are called off by their tag
    Cancel(Cancel),
    /// How soon everything is done when a daemon is killed half way and started again
    Kill(Kill),
    /// Bare SETEX at a steady rate: whether each becomes a task and runs
    Adopt(Adopt),
}

/// What every scenario takes.
#[derive(Args, Serialize, Clone)]
pub struct Common {
    /// Start a Redis and a MariaDB of its own, instead of using the configured ones
    #[arg(long)]
    pub private: bool,
    /// Reach the private database by TCP, not by its Unix socket
    #[arg(long, requires = "private")]
    pub tcp: bool,
    /// Repeat, and print the medians too
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Draw how lateness is distributed
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// The daemon's runs at a time [default: as configured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: Option<u32>,
}

#[derive(Args, Serialize)]
pub struct Lateness {
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks that fall due in a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// How long tasks fall due before those that are counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long tasks fall due that are counted
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Which of the nets are up; a row for each
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    pub nets: Vec<Nets>,
    /// Stop Redis once the tasks are written
    #[arg(long, requires = "private")]
    pub redis_down: bool,
    /// Start the daemon when the tasks are written, so that it audits all pending tasks meanwhile; counts what falls due
    /// until its audit ends
    #[arg(long, conflicts_with = "redis_down")]
    pub audit: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// What says that a task may be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Nets {
    /// Only Redis' own `expired` events
    Event,
    /// Only what the daemon knows ahead
    Nudge,
    /// Only the look for what is overdue
    Sweep,
    /// As configured
    All,
}

#[derive(Args, Serialize)]
pub struct Throughput {
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks that fall due in a second, whether or not the daemon keeps up
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rate)]
    pub rate: u32,
    /// How long tasks fall due before those that are counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long tasks fall due that are counted
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// How many daemons share the work
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub daemons: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Burst {
    /// Tasks due in the same millisecond
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Enqueue {
    /// Tasks due in 1 to 24 days that are there already
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Without a daemon beside it
    #[arg(long)]
    pub no_daemon: bool,
    /// With a daemon beside it (the default)
    #[arg(long, conflicts_with = "no_daemon")]
    pub daemon: bool,
    /// How many create one by one at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub creators: u32,
    /// How many create in bulk at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub loaders: u32,
    /// Tasks of one bulk call
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// How long for each of the three ways
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Recovery {
    /// Tasks that are overdue when the daemon starts
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Tasks that fall due in a second meanwhile
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = rate)]
    pub rate: u32,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    /// How long tasks fall due, and how long the backlog may take
    #[arg(long, value_name = "DUR", default_value = "300s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Idle {
    /// Tasks due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// How long it is watched
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Daemons {
    /// How many daemons are compared with one
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub daemons: u32,
    /// How often one daemon and several take turns
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pairs: u32,
    /// Tasks that fall due within a second, in each turn
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Fairness {
    /// Tasks of the slow class, all due in the millisecond in which counting begins; 0 to compare
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub tasks: u32,
    /// How long each of them takes
    #[arg(long, value_name = "DUR", default_value = "100ms", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub takes: Duration,
    /// Tasks of the other class that fall due in a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// How long these fall due before those that are counted
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long these fall due that are counted
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Cancel {
    /// Tasks with the tag
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub tasks: u32,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// How long the servers rest before each measurement, from the writing of the tasks
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub rest: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Kill {
    /// Tasks, all due in the same millisecond
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// How long each of them takes
    #[arg(long, value_name = "DUR", default_value = "20ms", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub takes: Duration,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Adopt {
    /// Bare keys written in a second
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rate)]
    pub rate: u32,
    /// How long they are written
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// How long each lives
    #[arg(long, value_name = "DUR", default_value = "4s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
    /// Tasks due in 1 to 24 days that are there besides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Scenario {
    /// What every scenario takes.
    pub fn common(&self) -> &Common {
        match self {
            Self::Lateness(Lateness { common, .. })
            | Self::Throughput(Throughput { common, .. })
            | Self::Burst(Burst { common, .. })
            | Self::Enqueue(Enqueue { common, .. })
            | Self::Recovery(Recovery { common, .. })
            | Self::Idle(Idle { common, .. })
            | Self::Daemons(Daemons { common, .. })
            | Self::Fairness(Fairness { common, .. })
            | Self::Cancel(Cancel { common, .. })
            | Self::Kill(Kill { common, .. })
            | Self::Adopt(Adopt { common, .. }) => common,
        }
    }

    /// Its name, and everything that was asked for.
    pub fn describe(&self) -> (&'static str, serde_json::Result<serde_json::Value>) {
        use serde_json::to_value;
        match self {
            Self::Lateness(options) => ("lateness", to_value(options)),
            Self::Throughput(options) => ("throughput", to_value(options)),
            Self::Burst(options) => ("burst", to_value(options)),
            Self::Enqueue(options) => ("enqueue", to_value(options)),
            Self::Recovery(options) => ("recovery", to_value(options)),
            Self::Idle(options) => ("idle", to_value(options)),
            Self::Daemons(options) => ("daemons", to_value(options)),
            Self::Fairness(options) => ("fairness", to_value(options)),
            Self::Cancel(options) => ("cancel", to_value(options)),
            Self::Kill(options) => ("kill", to_value(options)),
            Self::Adopt(options) => ("adopt", to_value(options)),
        }
    }

    /// Far tasks, and most rows there will be.
    pub fn workload(&self) -> (u32, u64) {
        let runs = u64::from(self.common().runs);
        let (pending, rows) = match self {
            Self::Lateness(it) => {
                let nets = it.nets.len() as u64;
                (
                    it.pending,
                    nets * arriving(it.rate, it.warm_up + it.duration),
                )
            }
            Self::Throughput(it) => (it.pending, arriving(it.rate, it.warm_up + it.duration)),
            Self::Burst(it) => (it.pending, u64::from(it.tasks)),
            // Bulk is the fastest of the three.
            Self::Enqueue(it) => (it.pending, arriving(100_000, it.duration)),
            Self::Recovery(it) => (
                it.pending,
                u64::from(it.tasks) + arriving(it.rate, it.duration),
            ),
            Self::Idle(it) => (it.pending, 0),
            Self::Daemons(it) => (it.pending, 2 * u64::from(it.pairs) * u64::from(it.tasks)),
            Self::Fairness(it) => (
                it.pending,
                u64::from(it.tasks) + arriving(it.rate, it.warm_up + it.duration),
            ),
            Self::Cancel(it) => (it.pending, u64::from(it.tasks)),
            Self::Kill(it) => (it.pending, u64::from(it.tasks)),
            Self::Adopt(it) => (it.pending, arriving(it.rate, it.duration)),
        };
        (pending, u64::from(pending) + runs * rows)
    }
}

/// Tasks that fall due at this rate in this span.
pub fn arriving(rate: u32, span: Duration) -> u64 {
    u64::try_from(span.as_millis() * u128::from(rate) / 1000).unwrap_or(u64::MAX)
}

/// `200` or `200/s`.
fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate @ 1..=1_000_000) => Ok(rate),
        _ => Err("expected tasks per second, 1 to 1000000".to_owned()),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let span: Option<jiff::SignedDuration> = text.parse().ok();
    span.and_then(|span| Duration::try_from(span).ok())
        .filter(|span| *span <= RUN_MAX)
        .ok_or_else(|| {
            "expected a duration with a unit, such as 1500ms or 60s, of at most 1h".to_owned()
        })
}

fn positive_span(text: &str) -> Result<Duration, String> {
    match span(text)? {
        span if span < Duration::from_millis(100) => Err("expected at least 100ms".to_owned()),
        span => Ok(span),
    }
}

fn tasks() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=TASKS_MAX)
}

fn some_tasks() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=TASKS_MAX)
}

fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
