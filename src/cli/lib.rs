//! The command line of `lapsed`. Data goes to stdout, everything else to stderr.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
// They panic when stdout or stderr cannot be written: see `log` and `output`.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod backup;
#[cfg(feature = "bench")]
mod bench;
mod bulk;
mod cancel;
mod check_config;
mod command;
mod dead_letters;
mod dev;
mod doctor;
mod failure;
mod filters;
mod hash_password;
mod healthcheck;
mod import;
mod list;
mod listen;
mod log;
mod migrate;
mod moving;
mod named;
#[cfg_attr(not(feature = "otel"), path = "otel/absent.rs")]
mod otel;
mod output;
mod pauses;
mod progress;
mod prune;
mod rearm;
mod schedule;
mod stats;
mod sweep;
mod take;
mod task_args;
mod tasks;
mod times;
mod token;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser};
use lapsed::Config;
use lapsed::config::ConfigSource;

use self::command::Command;
use self::failure::{depends_on_configuration, is_callers};
use self::log::{Color, LogFormat, stderr_line};
use self::output::Output;

pub use self::failure::{EXIT_FAILED, EXIT_SICK, EXIT_USAGE, chain, usage};
#[cfg(feature = "fuzzing")]
#[doc(hidden)] // for the fuzz targets
pub use self::import::fuzzing;
pub use self::log::write_line;

/// Delayed tasks on the Redis and MySQL you already have.
#[derive(Parser)]
#[command(
    name = "lapsed",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 success, 1 failure or refused by the ledger, 2 usage or configuration error, 3 `doctor` found an error"
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Help heading of the options that every command has.
const GLOBAL: &str = "Global options";

#[derive(Args)]
struct Global {
    /// Configuration file [default: LAPSED_CONFIG, ./config/lapsed.toml, ./lapsed.toml, /etc/lapsed/lapsed.toml,
    /// built in]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Format of log lines
    #[arg(long, global = true, help_heading = GLOBAL, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// When to color log lines
    #[arg(long, global = true, help_heading = GLOBAL, value_enum, default_value = "auto")]
    color: Color,
    /// Print data as JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Print the times of tasks and pauses in the time zone of this machine; JSON stays in UTC
    #[arg(long, global = true, help_heading = GLOBAL)]
    local: bool,
}

impl Cli {
    /// Runs the command and returns the exit code.
    pub async fn run(self) -> ExitCode {
        log::start(self.global.log_format, self.global.color);
        let source = ConfigSource::find(self.global.config.as_deref());
        let result = self.dispatch(&source).await;
        // An error is printed after what the daemon has logged.
        log::flush();
        result.unwrap_or_else(|error| {
            for line in chain(&error).lines() {
                stderr_line!("error: {line}");
            }
            if depends_on_configuration(&error) {
                stderr_line!("note: configuration: {source}");
            }
            ExitCode::from(match is_callers(&error) {
                true => EXIT_USAGE,
                false => EXIT_FAILED,
            })
        })
    }

    async fn dispatch(self, source: &ConfigSource) -> anyhow::Result<ExitCode> {
        if self.global.local {
            times::use_zone_of_machine()?;
        }
        if let Command::Completions { shell } = self.command {
            // Into memory first: the generator panics on a closed pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Self::command(), "lapsed", &mut script);
            output::say(String::from_utf8_lossy(&script).trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Command::Dev(dev) = self.command {
            return dev.run(source.clone()).await;
        }
        if let Command::Token(token) = self.command {
            return token.run(Output {
                json: self.global.json,
            });
        }
        if let Command::HashPassword = self.command {
            return hash_password::run();
        }
        let mut config = Config::load_from(source)?;
        if self.command.is_patient() {
            config.ledger.statement_timeout = config.ledger.command_timeout;
        }
        self.command.log_configuration(source);
        self.command.warn_of_passwords();
        dev::note_file(&config);
        let output = Output {
            json: self.global.json,
        };
        match self.command {
            Command::Listen(listen) => listen.run(config, self.global.config).await,
            Command::Migrate(migrate) => migrate.run(&config, output).await,
            Command::Schedule(schedule) => schedule.run(&config, output).await,
            Command::Import(import) => import.run(&config, output).await,
            Command::Cancel(cancel) => cancel.run(&config, output).await,
            Command::Reschedule(reschedule) => reschedule.run(&config, output).await,
            Command::Ttl(one) => one.ttl(&config, output).await,
            Command::Run(one) => one.run_now(&config, output).await,
            Command::Redrive(redrive) => redrive.run(&config, output).await,
            Command::Discard(discard) => discard.run(&config, output).await,
            Command::Prune(prune) => prune.run(&config, output).await,
            Command::Pause(pause) => pause.run(&config, output).await,
            Command::Resume(resume) => resume.run(&config, output).await,
            Command::Pauses => pauses::list(&config, output).await,
            Command::Show(show) => show.run(&config, output).await,
            Command::Why(why) => why.run(&config, output).await,
            Command::List(list) => list.run(&config, output).await,
            Command::Take(take) => take.run(config, output).await,
            Command::Stats(stats) => stats.run(&config, output).await,
            Command::Sweep => sweep::run(config, output).await,
            Command::Rearm(rearm) => rearm.run(&config, output).await,
            Command::Move(move_tasks) => move_tasks.run(&config, output).await,
            Command::Backup(backup) => backup.run(&config, output).await,
            Command::Healthcheck(healthcheck) => healthcheck.run(&config, output).await,
            Command::Doctor(doctor) => doctor.run(&config, source, output).await,
            #[cfg(feature = "bench")]
            Command::Bench(bench) => bench.run(config, self.global.config, output).await,
            #[cfg(feature = "bench")]
            Command::BenchDaemon(daemon) => daemon.run(config).await,
            Command::CheckConfig => check_config::run(&config, source, output),
            Command::Completions { .. } | Command::Token(_) => unreachable!("answered above"),
            Command::Dev(_) => unreachable!("answered above"),
            Command::HashPassword => unreachable!("answered above"),
        }
    }
}
