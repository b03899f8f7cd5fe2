//! Options that several scenarios have, and how they are parsed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};

/// Longest run: start times are kept as 32-bit microseconds.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of tasks of one kind in a run.
const TASKS_MAX: i64 = 100_000_000;

/// Options of every scenario.
#[derive(Args, Serialize, Clone)]
pub struct Common {
    /// Start a private Redis and MariaDB instead of using the configured servers
    #[arg(long)]
    pub private: bool,
    /// Measure a ledger in a private SQLite file, without any server
    #[arg(long, conflicts_with = "private")]
    pub embedded: bool,
    /// Directory of that file; the disk below it is measured, too [default: that of temporary files]
    #[arg(long, value_name = "DIR", requires = "embedded")]
    pub directory: Option<PathBuf>,
    /// Connect to the private database by TCP instead of its Unix socket
    #[arg(long, requires = "private")]
    pub tcp: bool,
    /// Start the private database with a thread pool: as many statements run at a time as there are cores
    #[arg(long, requires = "private")]
    pub thread_pool: bool,
    /// Number of repetitions; with more than one, medians are printed too
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Write a plot of the lateness distribution, or of the cost by the size of the table
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Concurrency of the daemon [default: as configured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: Option<u32>,
}

/// Overdue tasks that cannot start, which every search for overdue tasks meets first.
#[derive(Args, Serialize, Debug, Clone, Copy)]
pub struct Blocked {
    /// Tasks of another class that cannot start, overdue for longer than all others when the daemon starts
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tasks())]
    pub blocked: u32,
    /// Why they cannot start
    #[arg(long, value_name = "WHY", value_enum, default_value_t = BlockedBy::NoWorker)]
    pub blocked_by: BlockedBy,
}

/// Why tasks cannot start.
#[derive(ValueEnum, Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum BlockedBy {
    /// Their queue has no worker
    NoWorker,
    /// No route names their class
    NoRoute,
}

/// Number of tasks due at this rate within this span.
pub fn arriving(rate: u32, span: Duration) -> u64 {
    u64::try_from(span.as_millis() * u128::from(rate) / 1000).unwrap_or(u64::MAX)
}

/// `200` or `200/s`.
pub fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate @ 1..=1_000_000) => Ok(rate),
        _ => Err("expected tasks per second, 1 to 1000000".to_owned()),
    }
}

/// A duration of at most an hour.
pub fn span(text: &str) -> Result<Duration, String> {
    let span: Option<jiff::SignedDuration> = text.parse().ok();
    span.and_then(|span| Duration::try_from(span).ok())
        .filter(|span| *span <= RUN_MAX)
        .ok_or_else(|| {
            "expected a duration with a unit, such as 1500ms or 60s, of at most 1h".to_owned()
        })
}

/// A duration of 100 ms to an hour.
pub fn positive_span(text: &str) -> Result<Duration, String> {
    match span(text)? {
        span if span < Duration::from_millis(100) => Err("expected at least 100ms".to_owned()),
        span => Ok(span),
    }
}

/// A number of tasks.
pub fn tasks() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=TASKS_MAX)
}

/// A number of tasks, at least a thousand: `300000`, `300k` or `3M`.
pub fn number(text: &str) -> Result<u32, String> {
    let (digits, thousands) = match text.strip_suffix('k') {
        Some(digits) => (digits, 1_000),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => (text, 1),
        },
    };
    let number: Option<i64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(thousands))
        .filter(|number| (1_000..=TASKS_MAX).contains(number))
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| "expected a number such as 300000, 300k or 3M, 1000 to 100M".to_owned())
}

/// A number of tasks, at least one.
pub fn some_tasks() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=TASKS_MAX)
}

/// Serializes a duration as seconds.
pub fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
