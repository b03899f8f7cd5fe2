//! The command line. Data goes to stdout, everything else to stderr.

mod bench;
mod bulk;
mod cancel;
mod check_config;
mod dead_letters;
mod doctor;
mod filters;
mod list;
mod listen;
mod migrate;
mod output;
mod pauses;
mod progress;
mod prune;
mod recurrence_options;
mod schedule;
mod stats;
mod sweep;
mod task_options;
mod tasks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use lapsed::config::{ConfigSource, misspelled_variables};
use lapsed::engine::EngineError;
use lapsed::ledger::LedgerError;
use lapsed::{ClientError, Config, ConfigError};
use tracing_subscriber::EnvFilter;

use self::output::Output;

/// Failed at run time.
pub const EXIT_FAILED: u8 = 1;
/// Wrong usage, or a configuration that cannot be used.
const EXIT_USAGE: u8 = 2;
/// `doctor` found an error.
const EXIT_SICK: u8 = 3;

/// Delayed tasks on the Redis and MySQL you already have.
#[derive(Parser)]
#[command(
    name = "lapsed",
    version,
    max_term_width = 100,
    after_help = "Exit code: 0 done, 1 failed or refused by the ledger, 2 wrong usage or configuration, 3 `doctor` found an error"
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What help calls the options that every command has; they come last.
const GLOBAL: &str = "Global options";

#[derive(Args)]
struct Global {
    /// Configuration file [default: LAPSED_CONFIG, ./config/lapsed.toml, ./lapsed.toml, /etc/lapsed/lapsed.toml,
    /// built in]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How log lines look
    #[arg(long, global = true, help_heading = GLOBAL, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Colours in log lines
    #[arg(long, global = true, help_heading = GLOBAL, value_enum, default_value = "auto")]
    color: Color,
    /// Print data as JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
enum Command {
    /// The daemon: hear what falls due, run it, settle it
    ///
    /// SIGTERM and SIGINT stop gracefully: what runs has `engine.drain_timeout` to end, the rest is given back without
    /// counting an attempt. A second one stops at once. SIGHUP takes the routes, the recurring tasks and
    /// the retention of the configuration as it is then, and the log names what else has changed and needs a restart.
    /// LAPSED_LOG sets the log filter, such as `info` or `lapsed::engine=debug`.
    Listen(listen::Listen),
    /// Create the ledger's table, or adopt an existing one
    ///
    /// With --json: the steps, each with its statement, algorithm and lock, and whether it is done.
    Migrate(migrate::Migrate),
    /// Create a task, or many from a file
    Schedule(schedule::Schedule),
    /// Call a task off, or all that fit
    Cancel(cancel::Cancel),
    /// Move a pending task to another due time
    Reschedule(tasks::Reschedule),
    /// Milliseconds until a task may start; -2 if there is none that could
    Ttl(tasks::OneKey),
    /// Make a pending task due now
    Run(tasks::OneKey),
    /// Bring dead tasks back to pending, one or all that fit
    ///
    /// A redriven task keeps its due time, its id and its history, and gets all its attempts again. Many at once run in
    /// the share of the slots that a backlog has, so that what falls due meanwhile is not late for it.
    Redrive(dead_letters::Redrive),
    /// Delete dead tasks for good, one or all that fit
    Discard(dead_letters::Discard),
    /// Forget finished tasks: delete their rows, few at a time
    ///
    /// Whatever is pending stays. A task that was called off stays until its due time has passed, too.
    Prune(prune::Prune),
    /// Stop starting the tasks of a class; nothing is lost meanwhile
    Pause(pauses::PauseTasks),
    /// Go on with what was paused, or let go what is held for review
    Resume(pauses::Resume),
    /// List what is paused and held
    Pauses,
    /// Show one task
    Show(tasks::Show),
    /// List tasks
    List(list::List),
    /// Count tasks by state, class and method, and say how late they are
    ///
    /// Reads no more than 25,000 rows that are not finished, as many dead ones, and 10,000 done ones, and says where
    /// that was a part.
    Stats(stats::Stats),
    /// One sweep and one audit: report what is overdue, arm what Redis lost; runs nothing
    Sweep,
    /// Look for what keeps this installation from being punctual and safe
    Doctor(doctor::Doctor),
    /// Measure this installation, or one that is started for the purpose
    Bench(bench::Bench),
    /// A daemon under measurement
    #[command(hide = true)]
    BenchDaemon(bench::BenchDaemon),
    /// Read the configuration and say what is wrong with it
    CheckConfig,
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it looks at many rows, for a person who waits.
    fn is_patient(&self) -> bool {
        matches!(
            self,
            Self::List(_)
                | Self::Stats(_)
                | Self::Redrive(_)
                | Self::Discard(_)
                | Self::Prune(_)
                | Self::Sweep
        )
    }
}

impl Cli {
    /// Does what was asked.
    pub async fn run(self) -> ExitCode {
        self.global.start_log();
        let source = ConfigSource::find(self.global.config.as_deref());
        match self.dispatch(&source).await {
            Ok(code) => code,
            Err(error) => {
                let usage = is_callers(&error);
                for line in chain(&error).lines() {
                    eprintln!("error: {line}");
                }
                if depends_on_configuration(&error) {
                    eprintln!("note: configuration: {source}");
                }
                ExitCode::from(if usage { EXIT_USAGE } else { EXIT_FAILED })
            }
        }
    }

    async fn dispatch(self, source: &ConfigSource) -> anyhow::Result<ExitCode> {
        if let Command::Completions { shell } = self.command {
            // Into memory first: the generator has no patience with a reader that goes away.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Self::command(), "lapsed", &mut script);
            output::say(String::from_utf8_lossy(&script).trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut config = Config::load_from(source)?;
        if self.command.is_patient() {
            config.ledger.statement_timeout = config.ledger.command_timeout;
        }
        self.command.tell_about_configuration(source);
        let output = Output {
            json: self.global.json,
        };
        match self.command {
            Command::Listen(listen) => listen.run(config, self.global.config).await,
            Command::Migrate(migrate) => migrate.run(&config, output).await,
            Command::Schedule(schedule) => schedule.run(&config, output).await,
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
            Command::List(list) => list.run(&config, output).await,
            Command::Stats(stats) => stats.run(&config, output).await,
            Command::Sweep => sweep::run(config, output).await,
            Command::Doctor(doctor) => doctor.run(&config, source, output).await,
            Command::Bench(bench) => bench.run(config, self.global.config, output).await,
            Command::BenchDaemon(daemon) => daemon.run(&config).await,
            Command::CheckConfig => check_config::run(&config, source, output),
            Command::Completions { .. } => unreachable!("answered above"),
        }
    }
}

impl Command {
    /// Warns of variables that are not read, and says when nothing but the defaults is in use.
    fn tell_about_configuration(&self, source: &ConfigSource) {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let names: Vec<String> = names.collect();
        for misspelled in misspelled_variables(names.iter().map(String::as_str)) {
            let (name, meant) = (misspelled.name, misspelled.meant);
            match self {
                Self::Listen(_) => {
                    tracing::warn!("the variable `{name}` is not read: did you mean `{meant}`?");
                }
                _ => {
                    eprintln!("warning: the variable `{name}` is not read: did you mean `{meant}`?")
                }
            }
        }
        let says_so_itself = matches!(
            self,
            Self::Listen(_)
                | Self::Doctor(_)
                | Self::CheckConfig
                | Self::Bench(_)
                | Self::BenchDaemon(_)
        );
        let is_set = names.iter().any(|name| name.starts_with("LAPSED__"));
        if *source == ConfigSource::Defaults && !is_set && !says_so_itself {
            eprintln!("note: configuration: {source}");
        }
    }
}

/// Whether the error may come from reading another configuration than was meant: the file cannot be used, or the
/// server that it names refuses or does not answer.
fn depends_on_configuration(error: &anyhow::Error) -> bool {
    let is_of_server = |error: &LedgerError| {
        matches!(
            error,
            LedgerError::Unavailable { .. } | LedgerError::Refused { .. }
        )
    };
    let of_client = match error.downcast_ref() {
        Some(ClientError::Ledger(error)) => is_of_server(error),
        Some(ClientError::Config(_)) => true,
        _ => false,
    };
    let of_engine = match error.downcast_ref() {
        Some(EngineError::Ledger(error)) => is_of_server(error),
        Some(EngineError::Config(_)) => true,
        _ => false,
    };
    let of_ledger = error.downcast_ref().is_some_and(is_of_server);
    of_client || of_engine || of_ledger || error.downcast_ref::<ConfigError>().is_some()
}

/// Whether it is what was said that cannot be, in the configuration or on the command line, whatever the ledger holds.
fn is_callers(error: &anyhow::Error) -> bool {
    let of_client = error.downcast_ref::<ClientError>().is_some_and(|error| {
        matches!(
            error,
            ClientError::Key(_)
                | ClientError::Schedule(_)
                | ClientError::Scope(_)
                | ClientError::Trace(_)
                | ClientError::Recurrence(_)
                | ClientError::Invalid(_)
                | ClientError::Config(_)
                | ClientError::Ledger(LedgerError::Invalid(_) | LedgerError::Unfit { .. })
        )
    });
    let of_ledger = matches!(
        error.downcast_ref(),
        Some(LedgerError::Invalid(_) | LedgerError::Unfit { .. })
    );
    of_client || of_ledger || error.downcast_ref::<ConfigError>().is_some()
}

/// Wrong usage that only shows when options are taken together.
fn usage(message: &str) -> anyhow::Result<ExitCode> {
    eprintln!("error: {message}");
    Ok(ExitCode::from(EXIT_USAGE))
}

/// An error and what caused it, leaving out what a text above has said already.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // A driver's text often is a prefix of its own and then what we have said.
        let news = cause.rsplit(": ").next().unwrap_or_default();
        if !text.contains(news) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = text + colon + &cause;
        }
    }
    text
}

impl Global {
    /// `LAPSED_LOG` takes the filter of tracing, such as `info` or `lapsed::engine=debug`.
    fn start_log(&self) {
        let filter = std::env::var("LAPSED_LOG").unwrap_or_else(|_| "info,sqlx=warn".to_owned());
        let filter = EnvFilter::try_new(&filter).unwrap_or_else(|error| {
            eprintln!("warning: LAPSED_LOG: {error}; using `info`");
            EnvFilter::new("info,sqlx=warn")
        });
        let ansi = match self.color {
            Color::Auto => std::io::IsTerminal::is_terminal(&std::io::stderr()),
            Color::Always => true,
            Color::Never => false,
        };
        let log = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_env_filter(filter)
            .with_ansi(ansi);
        match self.log_format {
            LogFormat::Text => log.with_target(false).init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
    }
}
