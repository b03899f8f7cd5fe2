//! `lapsed bench`: benchmarks an installation, private servers started for the run, or a private file.
//!
//! The measuring process writes the tasks and waits. Measured daemons are separate processes ([`daemon`]), so that
//! their costs are separate too. [`measure`] is one run, from writing the first row to the records of all daemons.
//! The scenarios differ in their plans and in what they report.

mod adopt;
mod burst;
mod by_size;
mod cancel;
mod compare;
mod connection;
mod counters;
mod daemon;
mod daemons;
mod enqueue;
mod environment;
mod fairness;
mod followers;
mod http;
mod idle;
mod kill;
mod lateness;
mod measure;
mod meter;
mod options;
mod plot;
mod private;
mod process;
mod progress;
mod pull;
mod queues;
mod recorder;
mod recovery;
mod report;
mod results;
mod samples;
mod scenario;
mod sizes;
mod stats;
mod store;
mod tasks;
mod throughput;
mod usage;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use lapsed::config::ConfigError;
use lapsed::{Config, config};
use tokio::signal::unix::{SignalKind, signal};

pub use self::daemon::BenchDaemon;
use self::environment::{Choice, Environment};
use self::lateness::Nets;
use self::report::Heading;
use self::scenario::Scenario;
use super::log::stderr_line;
use super::output::Output;

#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    pub scenario: Scenario,
}

impl Bench {
    /// Measures, cleans up, and reports.
    pub async fn run(
        self,
        config: Config,
        file: Option<PathBuf>,
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        let scenario = self.scenario;
        check(&scenario)?;
        let common = scenario.common().clone();
        let (name, options) = scenario.describe();
        let (pending, rows) = scenario.workload();
        // From here on, both signals end this process only after cleaning up.
        let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
        let choice = Choice {
            config,
            file,
            private: common.private,
            embedded: common.embedded,
            directory: common.directory.clone(),
            tcp: common.tcp,
            thread_pool: common.thread_pool,
            concurrency: common.concurrency.map(|runs| runs as usize),
            rows,
            buffer_pool_mb: scenario.buffer_pool_mb(),
        };
        let mut environment = Environment::prepare(choice).await?;
        let work = async {
            if pending > 0 {
                let written = workload::write_far(&environment, pending).await?;
                environment.has_written(pending, written.took);
            }
            scenario.run(&mut environment).await
        };
        let result = tokio::select! {
            result = work => result,
            _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
        };
        let notes = notes(&scenario, &environment);
        let cleaned = environment.clean_up().await;
        if let (Err(_), Err(left)) = (&result, &cleaned) {
            stderr_line!("warning: {left:#}");
        }
        let report = result?;
        let heading = Heading {
            scenario: name,
            options: options.context("describe the options")?,
            notes,
        };
        report.publish(&heading, common.plot.as_deref(), output)?;
        cleaned?;
        ensure!(report.failures.is_empty(), "{}", report.failures.join("\n"));
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks combinations of options.
fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let (pending, rows) = scenario.workload();
    if rows - u64::from(pending) > u64::from(tasks::FAR) {
        return Err(usage(&format!(
            "all runs together have more than {} tasks: ask for fewer runs, a lower rate or a shorter duration",
            tasks::FAR
        )));
    }
    if let Scenario::Sizes(sizes) = scenario {
        if sizes.common.embedded {
            return Err(usage(
                "this scenario loads a table on a server: leave `--embedded` out, or use `--private`",
            ));
        }
        if !sizes.are_ascending() {
            return Err(usage("`--sizes` are not ascending"));
        }
    }
    let needs_redis = match scenario {
        Scenario::Adopt(_) | Scenario::Compare(_) | Scenario::Daemons(_) => true,
        Scenario::Lateness(lateness) => {
            lateness.redis_down || lateness.audit || lateness.nets != [Nets::All]
        }
        _ => false,
    };
    if scenario.common().embedded && needs_redis {
        return Err(usage(
            "`--embedded` measures one daemon without Redis, which this scenario needs: leave it out, or use `--private`",
        ));
    }
    let Scenario::Lateness(lateness) = scenario else {
        return Ok(());
    };
    let needs_own_redis = [Nets::Nudge, Nets::Sweep];
    if !lateness.common.private
        && lateness
            .nets
            .iter()
            .any(|nets| needs_own_redis.contains(nets))
    {
        return Err(usage(
            "`--nets nudge` and `--nets sweep` switch expired events off, which is allowed on private servers only: add `--private`",
        ));
    }
    Ok(())
}

/// A usage error, with its exit code.
fn usage(message: &str) -> anyhow::Error {
    let problem = config::Problem {
        path: String::new(),
        message: message.to_owned(),
    };
    ConfigError {
        problems: vec![problem],
    }
    .into()
}

/// Notes on how to read the results.
fn notes(scenario: &Scenario, environment: &Environment) -> Vec<String> {
    let clock = if environment.is_private() {
        "lateness: from the due millisecond to the handler's first instruction, both on this host's clock, to the microsecond"
    } else {
        "lateness: on the database's clock as the daemon follows it, accurate to about 2 ms; early means more than 2 ms early"
    };
    let counts = if environment.is_embedded() {
        "sql, redis: there are no servers; the daemon's CPU and memory include SQLite's"
    } else if environment.is_private() {
        "sql: `Questions` of the database (no pings, no preparing); redis: `INFO commandstats` without INFO; both during the measured span"
    } else {
        "sql, redis: counted by the servers, other clients included; CPU and memory of the servers are not known"
    };
    let recorder = "recorder_mb: the measurement's own memory, which is part of the daemon's";
    let handed = if environment.is_private() {
        "lateness: from the due millisecond until a worker has its task, both on this host's clock, to the microsecond"
    } else {
        "lateness: until a worker has its task, on the database's clock as this process follows it, accurate to about 2 ms; early means more than 2 ms early"
    };
    let answered =
        "GET, POST: until the last byte of the answer; the client shares the cores with the daemon";
    let paged = "pages: one at a time, until the last byte; kb: of the page, and compressed with all that it loads";
    let reads = "rows read: counted by the database, other clients included, on average for a call: rows, index entries, and rows of its own temporary tables";
    let loaded = "the table is loaded by the server; the keys of its tasks are not armed in Redis";
    let notes: &[&str] = match scenario {
        Scenario::Pull(_) => &[handed, counts],
        Scenario::Http(_) => &[answered, paged],
        Scenario::Enqueue(_) | Scenario::Idle(_) | Scenario::Cancel(_) => &[counts],
        Scenario::Kill(_) => &[],
        Scenario::Sizes(_) => &[reads, loaded],
        _ => &[clock, counts, recorder],
    };
    notes.iter().map(ToString::to_string).collect()
}
