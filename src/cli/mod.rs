//! Command line. Data goes to stdout, everything else to stderr.

#[cfg(feature = "sqlite")]
mod backup;
#[cfg(feature = "bench")]
mod bench;
mod bulk;
mod cancel;
mod check_config;
mod dead_letters;
#[cfg(all(feature = "sqlite", feature = "resp"))]
mod dev;
mod doctor;
mod filters;
#[cfg(feature = "resp")]
mod hash_password;
mod import;
mod list;
mod listen;
mod migrate;
mod moving;
#[cfg_attr(not(feature = "otel"), path = "otel/absent.rs")]
mod otel;
mod output;
mod pauses;
mod progress;
mod prune;
mod rearm;
mod recurrence_options;
mod schedule;
mod stats;
mod sweep;
mod take;
mod task_options;
mod tasks;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use lapsed::config::{ConfigSource, misspelled_variables};
use lapsed::engine::EngineError;
use lapsed::ledger::LedgerError;
use lapsed::{ClientError, Config, ConfigError};
use tracing_subscriber::EnvFilter;

use self::output::Output;

/// Exit code: failed at run time.
pub const EXIT_FAILED: u8 = 1;
/// Exit code: wrong usage or invalid configuration.
const EXIT_USAGE: u8 = 2;
/// Exit code: `doctor` found an error.
const EXIT_SICK: u8 = 3;

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
    /// Run the daemon: listen for due tasks, run them and record the results
    ///
    /// SIGTERM and SIGINT shut down gracefully: running tasks have `engine.drain_timeout` to finish, then they are
    /// released without counting an attempt. A second signal stops at once. SIGHUP reloads the routes, the recurring
    /// tasks and the retention; the log names other changed sections, which need a restart. LAPSED_LOG sets the log
    /// filter, e.g. `info` or `lapsed::engine=debug`.
    Listen(listen::Listen),
    /// Run a daemon without configuration and servers, to try things out
    ///
    /// Tasks are in an SQLite file. Redis clients schedule them on port 6380, HTTP is on port 8787. Routes come from the
    /// configuration file, if there is one; a task that no route matches is logged. Ledger, timer and addresses of the
    /// file are not used. Ctrl-C shuts down gracefully.
    #[cfg(all(feature = "sqlite", feature = "resp"))]
    Dev(dev::Dev),
    /// Create the ledger table, or adopt an existing one
    ///
    /// With --json, prints each step with its statement, algorithm, lock and whether it is done.
    Migrate(migrate::Migrate),
    /// Create a task, or many from a file
    Schedule(schedule::Schedule),
    /// Import the waiting jobs of another system as tasks
    ///
    /// Reads delayed jobs, and those that wait for a retry, and creates a task for each: same due time, payload and
    /// attempts. `[[import]]` in the configuration says which class and method a job becomes. The source is only read,
    /// unless --take is given. An import that was interrupted continues when it is started again: a job that is a task
    /// already is not created twice. Each job that cannot be imported is reported with its id; then the exit code is 1.
    Import(import::Import),
    /// Cancel a task, or all matching tasks
    Cancel(cancel::Cancel),
    /// Change the due time of a pending task
    Reschedule(tasks::Reschedule),
    /// Print the milliseconds until a task may start, or -2 if no such task is waiting
    Ttl(tasks::OneKey),
    /// Make a pending task due now
    Run(tasks::OneKey),
    /// Return dead tasks to pending: one task, or all matching tasks
    ///
    /// A redriven task keeps its due time, id and history, and gets its full number of attempts again. A bulk redrive
    /// runs in the backlog's share of the slots, so that newly due tasks are not delayed.
    Redrive(dead_letters::Redrive),
    /// Delete dead tasks: one task, or all matching tasks
    Discard(dead_letters::Discard),
    /// Delete finished tasks, in small batches
    ///
    /// Pending tasks are kept. A cancelled task is kept until its due time has passed.
    Prune(prune::Prune),
    /// Pause a class: its tasks stay pending until it is resumed
    Pause(pauses::PauseTasks),
    /// Resume a paused class, or release tasks that are held for review
    Resume(pauses::Resume),
    /// List pauses and holds
    Pauses,
    /// Show a task
    Show(tasks::Show),
    /// List tasks
    List(list::List),
    /// Take due tasks out of the ledger: print them as JSON lines, and complete them
    ///
    /// Claims the tasks as a daemon does, so that none is taken twice, and none is taken while a daemon runs it. Each
    /// batch of 100 is claimed, printed, and completed after the output was flushed. If it cannot be printed, its tasks
    /// are pending again. If `take` is killed in between, its tasks run again when their leases expire
    /// (`engine.lease`). A reader that ends early, such as `| head -1`, loses what it does not read: use --limit.
    ///
    /// Tasks that are not due, paused or held are not taken. Neither are those that only a daemon can judge: missed
    /// occurrences, payloads that are too long, and tasks that have killed their daemon three times. Routes are not
    /// considered: limits and `expire_after` do not apply.
    Take(take::Take),
    /// Count tasks by state, class and method, and show how late they are
    ///
    /// Reads at most 25,000 unfinished rows, 25,000 dead rows and 10,000 done rows, and marks counts that are partial.
    Stats(stats::Stats),
    /// Run one sweep and one audit: report overdue tasks and re-arm keys that Redis lost, without running tasks
    Sweep,
    /// Write the timer's entries again from the ledger, e.g. after a change of `timer`
    ///
    /// Arms each pending task that falls due in the future and has no entry. Tasks that have one are left as they are,
    /// so it can be run again at any time. Tasks that are due now need no entry: a daemon finds them in the ledger.
    /// With `redis.arm_horizon`, tasks due later than that are left to the daemon, which arms them when they are near.
    Rearm(rearm::Rearm),
    /// Move the unfinished tasks to another ledger, while producers and daemons go on
    ///
    /// Each task runs in the configured ledger until it is moved, and in the other one from then on: none is lost, and
    /// none runs twice, whenever this command, a daemon or a server dies. Start it again to continue. A running task is
    /// moved when its run has ended. A moved task keeps its key, due time, payload, attempts and history, gets a new id,
    /// and is done here.
    ///
    /// Start a daemon on the other ledger before. It must neither adopt keys (`adopt.enabled = false`) nor have the
    /// tables `[[recurring]]` until no daemon runs on the configured ledger. With --follow, tasks that producers still
    /// create here are moved as they come, until Ctrl-C: change the producers meanwhile.
    Move(moving::Move),
    /// Copy a ledger in an SQLite file, while daemons and producers use it
    ///
    /// The copy is of one moment. It appears under its name when it is complete, checked and on the disk. To restore it,
    /// stop the daemon, delete the files of the ledger (with those that end in -wal and -shm), copy the backup to their
    /// place, and start with `lapsed listen --hold-overdue`.
    #[cfg(feature = "sqlite")]
    Backup(backup::Backup),
    /// Diagnose the installation: servers, settings, permissions, clocks, table and expected lateness
    Doctor(doctor::Doctor),
    /// Benchmark this installation, or private servers started for the run
    #[cfg(feature = "bench")]
    Bench(bench::Bench),
    /// The daemon process of a benchmark
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchDaemon(bench::BenchDaemon),
    /// Print the hash of a password, read from stdin, for `[resp]`
    #[cfg(feature = "resp")]
    HashPassword,
    /// Print a random token for a client of the HTTP API, and the entry with its hash for the configuration
    ///
    /// The token is shown only now. It is not stored.
    Token(token::Token),
    /// Validate the configuration
    CheckConfig,
    /// Print a shell completion script
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it reads many rows and may take longer.
    fn is_patient(&self) -> bool {
        matches!(
            self,
            Self::List(_)
                | Self::Stats(_)
                | Self::Redrive(_)
                | Self::Discard(_)
                | Self::Prune(_)
                | Self::Import(_)
                | Self::Sweep
                | Self::Rearm(_)
                | Self::Take(_)
                | Self::Move(_)
        )
    }
}

impl Cli {
    /// Runs the command and returns the exit code.
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
            // Into memory first: the generator panics on a closed pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Self::command(), "lapsed", &mut script);
            output::say(String::from_utf8_lossy(&script).trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        #[cfg(all(feature = "sqlite", feature = "resp"))]
        if let Command::Dev(dev) = self.command {
            return dev.run(source.clone()).await;
        }
        if let Command::Token(token) = self.command {
            return token.run(Output {
                json: self.global.json,
            });
        }
        #[cfg(feature = "resp")]
        if let Command::HashPassword = self.command {
            return hash_password::run();
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
            Command::List(list) => list.run(&config, output).await,
            Command::Take(take) => take.run(config, output).await,
            Command::Stats(stats) => stats.run(&config, output).await,
            Command::Sweep => sweep::run(config, output).await,
            Command::Rearm(rearm) => rearm.run(&config, output).await,
            Command::Move(move_tasks) => move_tasks.run(&config, output).await,
            #[cfg(feature = "sqlite")]
            Command::Backup(backup) => backup.run(&config, output).await,
            Command::Doctor(doctor) => doctor.run(&config, source, output).await,
            #[cfg(feature = "bench")]
            Command::Bench(bench) => bench.run(config, self.global.config, output).await,
            #[cfg(feature = "bench")]
            Command::BenchDaemon(daemon) => daemon.run(config).await,
            Command::CheckConfig => check_config::run(&config, source, output),
            Command::Completions { .. } | Command::Token(_) => unreachable!("answered above"),
            #[cfg(all(feature = "sqlite", feature = "resp"))]
            Command::Dev(_) => unreachable!("answered above"),
            #[cfg(feature = "resp")]
            Command::HashPassword => unreachable!("answered above"),
        }
    }
}

impl Command {
    /// Warns about ignored variables, and notes if only the built-in defaults are in use.
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
        let says_so_itself = match self {
            Self::Listen(_) | Self::Doctor(_) | Self::CheckConfig => true,
            #[cfg(feature = "bench")]
            Self::Bench(_) | Self::BenchDaemon(_) => true,
            _ => false,
        };
        let is_set = names.iter().any(|name| name.starts_with("LAPSED__"));
        if *source == ConfigSource::Defaults && !is_set && !says_so_itself {
            eprintln!("note: configuration: {source}");
        }
    }
}

/// Whether the error may come from a wrong configuration source: the file is invalid, or its server refuses or does
/// not answer.
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
        _ => false,
    };
    let of_ledger = error.downcast_ref().is_some_and(is_of_server);
    of_client || of_engine || of_ledger || error.downcast_ref::<ConfigError>().is_some()
}

/// Whether the error is in the configuration or the command line, whatever the ledger contains.
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

/// Reports wrong usage that clap cannot detect.
fn usage(message: &str) -> anyhow::Result<ExitCode> {
    eprintln!("error: {message}");
    Ok(ExitCode::from(EXIT_USAGE))
}

/// Text of an error and its causes, without repetitions.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // A driver's text often is a prefix and then a text that is already shown.
        let news = cause.rsplit(": ").next().unwrap_or_default();
        if !text.contains(news) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = text + colon + &cause;
        }
    }
    text
}

impl Global {
    /// Starts logging. `LAPSED_LOG` is a filter of tracing, e.g. `info` or `lapsed::engine=debug`.
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
