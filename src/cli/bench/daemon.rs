//! `lapsed bench-daemon`: the engine of `listen` with a handler that only reads the clock.
//!
//! It speaks to the measuring process in lines on its standard output: `ready`, `audited`, and five times a second
//! `progress <tasks started> <runs not settled yet> <tasks of the backlog started> <Redis events received>`. A line on its standard input, or
//! its end, stops it; it then writes its record and ends. Interrupts of the terminal are the measuring process'
//! business.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use lapsed::clock::{LedgerClock, wall_micros};
use lapsed::compose::Adapters;
use lapsed::engine::{Handle, Metrics};
use lapsed::handler::{Handler, HandlerError};
use lapsed::{Config, Handlers, TaskContext};
use tokio::io::AsyncBufReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

use super::recorder::Recorder;
use crate::cli::output::say;

/// The class and method of every task of a measurement.
pub const CLASS: &str = "Bench";
/// As [`CLASS`].
pub const METHOD: &str = "run";

/// Class of slow tasks that compete with the measured ones; their method is [`METHOD`].
pub const SLOW_CLASS: &str = "BenchSlow";

/// Interval of progress lines.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Clock that start times are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StartClock {
    /// Wall clock of the machine, in microseconds: servers and daemons share it.
    Wall,
    /// The ledger's clock as the daemon follows it, in milliseconds.
    Ledger,
}

#[derive(Args)]
pub struct BenchDaemon {
    /// The number of the first task
    #[arg(long)]
    first: u32,
    /// How many tasks
    #[arg(long)]
    count: u32,
    /// How many of them are a backlog
    #[arg(long)]
    backlog: u32,
    /// How long tasks of the slow class take, if there is one
    #[arg(long, value_name = "MS")]
    slow_ms: Option<u64>,
    /// Where the record goes
    #[arg(long)]
    record: PathBuf,
    /// Which clock
    #[arg(long, value_enum)]
    clock: StartClock,
}

impl BenchDaemon {
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let clock = match self.clock {
            StartClock::Wall => None,
            StartClock::Ledger => Some(adapters.ledger.clock().clone()),
        };
        // With a margin: later readings may set the ledger's clock back.
        let base_us = now_us(clock.as_ref()).saturating_sub(60_000_000);
        let recorder = Arc::new(Recorder::new(self.first, self.count, self.backlog, base_us));
        let mut handlers = Handlers::new();
        let nothing = Nothing {
            recorder: Arc::clone(&recorder),
            clock,
        };
        handlers.on_handler((CLASS, METHOD), nothing);
        if let Some(slow_ms) = self.slow_ms {
            let takes = Duration::from_millis(slow_ms);
            let slow = move |_: Vec<String>| async move {
                tokio::time::sleep(takes).await;
                Ok(())
            };
            handlers.on((SLOW_CLASS, METHOD), slow);
        }
        let engine = adapters.engine(config, handlers);
        let handle = engine.handle();
        let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
        let ignoring = tokio::spawn(async move { while interrupt.recv().await.is_some() {} });

        let teller = Teller {
            handle,
            recorder: Arc::clone(&recorder),
            metrics: Arc::clone(&adapters.metrics),
        };
        let telling = tokio::spawn(teller.tell());
        let result = engine.run_until(told_to_stop()).await;
        telling.abort();
        ignoring.abort();
        adapters.ledger.close().await;
        result?;
        recorder
            .save(&self.record)
            .with_context(|| format!("write `{}`", self.record.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The handler: first reads the clock.
struct Nothing {
    recorder: Arc<Recorder>,
    clock: Option<LedgerClock>,
}

#[async_trait]
impl Handler for Nothing {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let now_us = now_us(self.clock.as_ref());
        let number = context.key().args().next().and_then(|arg| arg.parse().ok());
        self.recorder.start(number.unwrap_or(u32::MAX), now_us);
        Ok(())
    }
}

fn now_us(clock: Option<&LedgerClock>) -> u64 {
    match clock {
        None => wall_micros(),
        Some(clock) => u64::try_from(clock.now().0).unwrap_or(0) * 1000,
    }
}

/// Waits for a line on standard input, or its end: the measuring process is gone then.
async fn told_to_stop() {
    let mut line = String::new();
    let mut stdin = tokio::io::BufReader::new(tokio::io::stdin());
    let _ = stdin.read_line(&mut line).await;
}

struct Teller {
    handle: Handle,
    recorder: Arc<Recorder>,
    metrics: Arc<Metrics>,
}

impl Teller {
    async fn tell(self) -> anyhow::Result<()> {
        let (mut ready, mut audited) = (false, false);
        let mut ticks = interval(PROGRESS_EVERY);
        loop {
            ticks.tick().await;
            if !ready && self.handle.ledger_answers() {
                ready = self.handle.is_listening() != Some(false);
                if ready {
                    say("ready")?;
                }
            }
            if !audited {
                audited = has_audited(&self.metrics.render());
                if audited {
                    say("audited")?;
                }
            }
            // Read first: runs that start in between can only make the result look less settled.
            let started = self.recorder.started();
            let (running, backlog) = (self.handle.running(), self.recorder.backlog_started());
            let events = self.metrics.events_received();
            say(&format!("progress {started} {running} {backlog} {events}"))?;
        }
    }
}

/// Waits until the first audit is over, or was done by another daemon.
fn has_audited(metrics: &str) -> bool {
    let skipped = |line: &str| {
        line.strip_prefix("lapsed_audits_skipped_total ")
            .is_some_and(|count| count != "0")
    };
    metrics.contains("lapsed_audits_total{") || metrics.lines().any(skipped)
}
