//! Command-line options of `lapsed bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Serialize, Serializer};

/// Longest run: start times are kept as 32-bit microseconds.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of tasks of one kind in a run.
const TASKS_MAX: i64 = 100_000_000;

#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    pub scenario: Scenario,
}

#[derive(Subcommand)]
pub enum Scenario {
    /// Lateness at a steady rate: from due time to start
    Lateness(Lateness),
    /// Sustained throughput: whether a high rate is kept up
    Throughput(Throughput),
    /// Many tasks due in the same millisecond
    Burst(Burst),
    /// Rate at which tasks are created
    Enqueue(Enqueue),
    /// Time to drain an overdue backlog, and lateness of newly due tasks meanwhile
    Recovery(Recovery),
    /// Cost of an idle daemon
    Idle(Idle),
    /// One daemon compared with several
    Daemons(Daemons),
    /// Lateness of one class while many slow tasks of another are due
    Fairness(Fairness),
    /// Rate at which tasks are cancelled by tag
    Cancel(Cancel),
    /// Time to finish all tasks when the daemon is killed halfway and restarted
    Kill(Kill),
    /// Adoption of bare SETEX keys at a steady rate
    Adopt(Adopt),
}

/// Options of every scenario.
#[derive(Args, Serialize, Clone)]
pub struct Common {
    /// Start a private Redis and MariaDB instead of using the configured servers
    #[arg(long)]
    pub private: bool,
    /// Connect to the private database by TCP instead of its Unix socket
    #[arg(long, requires = "private")]
    pub tcp: bool,
    /// Number of repetitions; with more than one, medians are printed too
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Write a plot of the lateness distribution
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Concurrency of the daemon [default: as configured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: Option<u32>,
}

#[derive(Args, Serialize)]
pub struct Lateness {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks due per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Signal sources to enable; one row for each
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    pub nets: Vec<Nets>,
    /// Stop Redis after writing the tasks
    #[arg(long, requires = "private")]
    pub redis_down: bool,
    /// Start the daemon after writing the tasks, so that it audits all pending tasks during the measurement; counts
    /// tasks due until the audit ends
    #[arg(long, conflicts_with = "redis_down")]
    pub audit: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// A source of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Nets {
    /// Only `expired` events of Redis
    Event,
    /// Only nudges by the daemon
    Nudge,
    /// Only the sweep
    Sweep,
    /// As configured
    All,
}

#[derive(Args, Serialize)]
pub struct Throughput {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks due per second, whether or not the daemon keeps up
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Number of daemons that share the work
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
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
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

#[derive(Args, Serialize)]
pub struct Recovery {
    /// Overdue tasks when the daemon starts
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Tasks due per second meanwhile
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = rate)]
    pub rate: u32,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    /// How long new tasks fall due; also the time limit for the backlog
    #[arg(long, value_name = "DUR", default_value = "300s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

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

#[derive(Args, Serialize)]
pub struct Daemons {
    /// Number of daemons compared with one
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub daemons: u32,
    /// Number of pairs of runs: one daemon, then several
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pairs: u32,
    /// Tasks of each run, due within one second
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some_tasks())]
    pub tasks: u32,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Args, Serialize)]
pub struct Fairness {
    /// Slow tasks, all due when the measurement begins; 0 for a baseline
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = tasks())]
    pub tasks: u32,
    /// Run time of each of them
    #[arg(long, value_name = "DUR", default_value = "100ms", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub takes: Duration,
    /// Tasks of the other class due per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Pending tasks in the table, due in 1 to 24 days
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
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Pause between writing the tasks and each measurement
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
    /// Run time of each of them
    #[arg(long, value_name = "DUR", default_value = "20ms", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub takes: Duration,
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub pending: u32,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
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

/// The table of scenarios: evaluates an expression with the name and the options of any of them.
macro_rules! with_options {
    (@table $scenario:expr, $name:pat_param, $options:ident, $body:expr, $($variant:ident $text:literal,)*) => {
        match $scenario {
            $(Scenario::$variant($options) => {
                let $name = $text;
                $body
            })*
        }
    };
    ($scenario:expr, |$name:pat_param, $options:ident| $body:expr) => {
        with_options!(
            @table $scenario, $name, $options, $body,
            Lateness "lateness",
            Throughput "throughput",
            Burst "burst",
            Enqueue "enqueue",
            Recovery "recovery",
            Idle "idle",
            Daemons "daemons",
            Fairness "fairness",
            Cancel "cancel",
            Kill "kill",
            Adopt "adopt",
        )
    };
}
pub(super) use with_options;

impl Scenario {
    /// Options of every scenario.
    pub fn common(&self) -> &Common {
        with_options!(self, |_, options| &options.common)
    }

    /// Name and options of the scenario, for the report.
    pub fn describe(&self) -> (&'static str, serde_json::Result<serde_json::Value>) {
        with_options!(self, |name, options| (name, serde_json::to_value(options)))
    }

    /// Number of pending tasks, and the maximum number of rows in all.
    pub fn workload(&self) -> (u32, u64) {
        let pending = with_options!(self, |_, options| options.pending);
        let rows = match self {
            Self::Lateness(it) => {
                it.nets.len() as u64 * arriving(it.rate, it.warm_up + it.duration)
            }
            Self::Throughput(it) => arriving(it.rate, it.warm_up + it.duration),
            Self::Burst(it) => u64::from(it.tasks),
            // Bulk is the fastest of the three.
            Self::Enqueue(it) => arriving(100_000, it.duration),
            Self::Recovery(it) => u64::from(it.tasks) + arriving(it.rate, it.duration),
            Self::Idle(_) => 0,
            Self::Daemons(it) => 2 * u64::from(it.pairs) * u64::from(it.tasks),
            Self::Fairness(it) => u64::from(it.tasks) + arriving(it.rate, it.warm_up + it.duration),
            Self::Cancel(it) => u64::from(it.tasks),
            Self::Kill(it) => u64::from(it.tasks),
            Self::Adopt(it) => arriving(it.rate, it.duration),
        };
        let runs = u64::from(self.common().runs);
        (pending, u64::from(pending) + runs * rows)
    }
}

/// Number of tasks due at this rate within this span.
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
