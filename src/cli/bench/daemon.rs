//! `lapsed bench-daemon`: the engine of `listen` with a handler that only reads the clock.
//!
//! It speaks to the measuring process in lines on its standard output: `resp <address>`, `http <address>`, `ready`, `audited`, and five times a second
//! `progress <tasks started> <runs not settled yet> <tasks of the backlog started> <Redis events received>`. A line on its standard input, or
//! its end, stops it; it then writes its record and ends. Interrupts of the terminal are the measuring process'
//! business.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use lapsed::clock::{LedgerClock, wall_micros};
use lapsed::compose::Adapters;
use lapsed::config::{RespConfig, RouteConfig};
use lapsed::engine::{Handle, Metrics};
use lapsed::handler::{Handler, HandlerError};
use lapsed::{Config, Handlers, TaskContext};
use lapsed_server::http::AppState;
use lapsed_server::resp::Listener;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::queues::{BLOCKED_QUEUE, EMPTY_QUEUE, QUEUE};
use super::recorder::Recorder;
use crate::otel::Export;
use crate::output::say;

/// The class and method of every task of a measurement.
pub const CLASS: &str = "Bench";
/// As [`CLASS`].
pub const METHOD: &str = "run";

/// Class of slow tasks that compete with the measured ones; their method is [`METHOD`].
pub const SLOW_CLASS: &str = "BenchSlow";

/// Class of tasks that wait for a worker of [`BLOCKED_QUEUE`], which has none; their method is [`METHOD`].
pub const NO_WORKER_CLASS: &str = "BenchNoWorker";

/// Class that no route names; its method is [`METHOD`].
pub const NO_ROUTE_CLASS: &str = "BenchNoRoute";

/// Class of tasks that fail for good, with [`ERRORS`] different errors; their method is [`METHOD`].
pub const FAILING_CLASS: &str = "BenchFailing";

/// Number of different errors.
const ERRORS: u32 = 20;

/// Class of which there are no tasks.
const EMPTY_CLASS: &str = "BenchEmpty";

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
    /// Whether tasks wait for a worker of a queue that has none
    #[arg(long)]
    blocked_queue: bool,
    /// Where the record goes
    #[arg(long)]
    record: PathBuf,
    /// Which clock
    #[arg(long, value_enum)]
    clock: StartClock,
    /// Open a RESP server for this many connections, and leave the tasks to pull workers
    #[arg(long, value_name = "N")]
    resp: Option<u32>,
}

impl BenchDaemon {
    pub async fn run(self, mut config: Config) -> anyhow::Result<ExitCode> {
        if let Some(connections) = self.resp {
            config.resp = RespConfig {
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
                socket: None,
                users: Vec::new(),
                tls: None,
                max_connections: connections as usize,
                ..config.resp
            };
            let routes = [
                pull_route(CLASS, QUEUE)?,
                pull_route(EMPTY_CLASS, EMPTY_QUEUE)?,
            ];
            config.routes.splice(0..0, routes.into_iter().flatten());
        }
        if self.blocked_queue {
            config
                .routes
                .splice(0..0, pull_route(NO_WORKER_CLASS, BLOCKED_QUEUE)?);
        }
        let mut adapters = Adapters::new(&config)?;
        let export = Export::start(&config.otel, &adapters.metrics)?;
        adapters.tracer = export.as_ref().and_then(Export::tracer);
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
        if self.resp.is_none() {
            handlers.on_handler((CLASS, METHOD), nothing);
        }
        if let Some(slow_ms) = self.slow_ms {
            let takes = Duration::from_millis(slow_ms);
            let slow = move |_: Vec<String>| async move {
                tokio::time::sleep(takes).await;
                Ok(())
            };
            handlers.on((SLOW_CLASS, METHOD), slow);
        }
        handlers.on((FAILING_CLASS, METHOD), |args: Vec<String>| async move {
            let number: u32 = args.first().and_then(|arg| arg.parse().ok()).unwrap_or(0);
            Err(HandlerError::permanent(format!(
                "error {}",
                number % ERRORS
            )))
        });
        let engine = adapters.engine(&config, handlers);
        let handle = engine.handle();
        let stop_servers = CancellationToken::new();
        let http = serve_http(&config, &adapters, handle.clone(), stop_servers.clone()).await?;
        let client = adapters.client();
        let resp = Listener::open(&config.resp, client, Arc::clone(&adapters.metrics))?;
        let resp = match resp {
            Some(resp) => {
                let address = resp.address().context("the RESP server has no address")?;
                say(&format!("resp {address}"))?;
                let resp = resp.with_workers(handle.pull());
                Some(tokio::spawn(
                    resp.serve(stop_servers.clone().cancelled_owned()),
                ))
            }
            None => None,
        };
        let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
        let ignoring = tokio::spawn(async move { while interrupt.recv().await.is_some() {} });

        let reporter = ProgressReporter {
            handle,
            recorder: Arc::clone(&recorder),
            metrics: Arc::clone(&adapters.metrics),
        };
        let reporting = tokio::spawn(reporter.report());
        let result = engine.run_until(stop_requested()).await;
        reporting.abort();
        ignoring.abort();
        stop_servers.cancel();
        for server in [resp, http].into_iter().flatten() {
            server.await.context("close the listeners")?;
        }
        adapters.ledger.close().await;
        if let Some(export) = export {
            export.stop().await;
        }
        result?;
        recorder
            .save(&self.record)
            .with_context(|| format!("write `{}`", self.record.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Serves the API and the dashboard, if the configuration has an address for them.
async fn serve_http(
    config: &Config,
    adapters: &Adapters,
    handle: Handle,
    stop: CancellationToken,
) -> anyhow::Result<Option<JoinHandle<()>>> {
    let Some(address) = config.http.listen else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("listen on `{address}`"))?;
    say(&format!("http {}", listener.local_addr()?))?;
    let metrics = Arc::clone(&adapters.metrics);
    let app = AppState::new(&config.http, adapters.client(), handle, metrics);
    let serving = lapsed_server::http::serve(listener, app, stop.cancelled_owned());
    Ok(Some(tokio::spawn(serving)))
}

/// Leaves the tasks of a class to the workers of a queue.
fn pull_route(class: &str, queue: &str) -> anyhow::Result<Vec<RouteConfig>> {
    let route = format!("[[routes]]\nmatch = '^{class}@'\npull = {{ queue = '{queue}' }}\n");
    Ok(Config::from_toml(&route)?.routes)
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

/// Reads the ledger's clock, or the wall clock, in microseconds since 1970.
pub fn now_us(clock: Option<&LedgerClock>) -> u64 {
    match clock {
        None => wall_micros(),
        Some(clock) => u64::try_from(clock.now().0).unwrap_or(0) * 1000,
    }
}

/// Waits for a line on standard input, or its end: the measuring process is gone then.
async fn stop_requested() {
    let mut line = String::new();
    let mut stdin = tokio::io::BufReader::new(tokio::io::stdin());
    let _ = stdin.read_line(&mut line).await;
}

struct ProgressReporter {
    handle: Handle,
    recorder: Arc<Recorder>,
    metrics: Arc<Metrics>,
}

impl ProgressReporter {
    async fn report(self) -> anyhow::Result<()> {
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
