//! The commands of the program.

use clap::Subcommand;
use lapsed::config::{ConfigSource, misspelled_variables};
use lapsed_doctor::has_password;

use super::backup;
#[cfg(feature = "bench")]
use super::bench;
use super::dev;
use super::log::stderr_line;
use super::{
    cancel, dead_letters, doctor, healthcheck, import, list, listen, migrate, moving, pauses,
    prune, rearm, schedule, stats, take, tasks, token, why,
};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run the daemon: listen for due tasks, run them and record the results
    ///
    /// SIGTERM and SIGINT shut down gracefully: running tasks have `engine.drain_timeout` to finish, then they are
    /// released without counting an attempt. A second signal stops at once. SIGHUP reloads the routes, the recurring
    /// tasks and the retention; the log names other changed sections, which need a restart. While stdin or stderr is a
    /// terminal, SIGHUP stops instead: the terminal was closed. LAPSED_LOG sets the log filter, e.g. `info` or
    /// `lapsed::engine=debug`.
    Listen(listen::Listen),
    /// Run a daemon without configuration and servers, to try things out
    ///
    /// Tasks are in an SQLite file. Redis clients schedule them on port 6380, HTTP is on port 8787. Routes come from the
    /// configuration file, if there is one; a task that no route matches is logged. Ledger, timer and addresses of the
    /// file are not used. Ctrl-C shuts down gracefully.
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
    /// Say why a task has not run
    ///
    /// It is paused or held, no daemon has a route for it, no worker asks for its queue, all slots are taken, it waits for
    /// a retry, is not due, runs, or has ended: with the remedy. Daemons are known from their heartbeats in Redis.
    Why(why::WhyTask),
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
    /// place, and start with `lapsed listen --hold-overdue`: without it, tasks that have run since the copy, and are due,
    /// run a second time at once.
    Backup(backup::Backup),
    /// Diagnose the installation: servers, settings, permissions, clocks, table and expected lateness
    Doctor(doctor::Doctor),
    /// Ask the daemon of this machine whether it is healthy
    ///
    /// For containers without a shell: the exit code is 0 if it answers on `http.listen` within 2 s, else 1.
    Healthcheck(healthcheck::Healthcheck),
    /// Benchmark this installation, or private servers started for the run
    #[cfg(feature = "bench")]
    Bench(bench::Bench),
    /// The daemon process of a benchmark
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchDaemon(bench::BenchDaemon),
    /// Print the hash of a password, read from stdin, for `[resp]`
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
    pub(super) fn is_patient(&self) -> bool {
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

    /// Warns of passwords on the command line, which every user of the machine can see.
    pub(super) fn warn_of_passwords(&self) {
        let variables = match self {
            Self::Move(_) => "LAPSED_MOVE_TO",
            Self::Import(_) => "LAPSED_IMPORT_FROM_REDIS and LAPSED_IMPORT_FROM_MYSQL",
            _ => return,
        };
        let args = std::env::args_os().filter_map(|arg| arg.into_string().ok());
        if args.into_iter().any(|arg| has_password(&arg)) {
            stderr_line!(
                "warning: every user of this machine can see the password on the command line: set {variables} instead"
            );
        }
    }

    /// Warns about ignored variables, and notes if only the built-in defaults are in use.
    pub(super) fn log_configuration(&self, source: &ConfigSource) {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let names: Vec<String> = names.collect();
        for misspelled in misspelled_variables(names.iter().map(String::as_str)) {
            let (name, meant) = (misspelled.name, misspelled.meant);
            match self {
                Self::Listen(_) => {
                    tracing::warn!("the variable `{name}` is not read: did you mean `{meant}`?");
                }
                _ => {
                    stderr_line!(
                        "warning: the variable `{name}` is not read: did you mean `{meant}`?"
                    )
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
            stderr_line!("note: configuration: {source}");
        }
    }
}
