//! Runs daemons, producers and faults on virtual time, and judges what happened.
//!
//! Everything of a run is drawn from its seed: what is done, what goes wrong, and all that the program asks of the kernel.
//! A process runs one seed; the other commands start such processes.

mod attempts;
mod batch;
mod connection;
mod daemon;
mod history;
mod http;
mod judge;
mod keyed;
mod ledger;
mod members;
mod moving;
mod outcome;
mod plan;
mod process;
mod producer;
mod programs;
mod random;
mod record;
mod run;
mod server;
mod shrink;
mod signals;
mod sql;
mod worker;
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::plan::{Given, Plan};

/// Simulates daemons with faults on virtual time.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds
    Seeds(Seeds),
    /// Run one seed in this process
    Seed(Seed),
    /// Run seeds twice each, and compare their traces
    Twice {
        /// Number of seeds
        #[arg(default_value_t = 50)]
        count: u64,
        /// First seed
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Let the ledger forget transactions, and see that it is found
    Canary {
        /// Number of seeds
        #[arg(default_value_t = 10)]
        count: u64,
    },
    /// Find the smallest plan of a seed that still fails, and tell its story
    Shrink {
        /// The seed
        seed: u64,
        #[command(flatten)]
        given: Given,
    },
}

#[derive(Args)]
struct Seeds {
    /// Number of seeds
    #[arg(default_value_t = 500)]
    count: u64,
    /// First seed; drawn from the clock if it is not given
    #[arg(long, env = "SEED")]
    first: Option<u64>,
    /// Stop after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Processes at a time
    #[arg(long)]
    jobs: Option<usize>,
    #[command(flatten)]
    given: Given,
    /// The simulator without a fault: stop with success at the first seed that fails here and passes there
    #[arg(long, value_name = "PROGRAM")]
    unpatched: Option<PathBuf>,
}

#[derive(Args)]
struct Seed {
    /// The seed
    seed: u64,
    /// Steps of the plan to leave out
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Print what happens
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    given: Given,
    /// Let the ledger forget this many of a hundred transactions, which must be found
    #[arg(long, default_value_t = 0)]
    canary: u64,
}

fn main() -> ExitCode {
    let is_well = match Options::parse().command {
        Command::Seeds(seeds) => run_seeds(&seeds),
        Command::Seed(seed) => run_seed(&seed),
        Command::Twice { count, first } => run_twice(first, count),
        Command::Canary { count } => run_canary(count),
        Command::Shrink { seed, given } => shrink::shrink(seed, given),
    };
    ExitCode::from(u8::from(!is_well))
}

fn run_seed(options: &Seed) -> bool {
    let plan = Plan::draw(options.seed, options.given).without(&options.without);
    if options.trace {
        // In a thread of its own: it takes randomness of the kernel, and a run must be the same with and without it.
        std::thread::spawn(log_to_stdout)
            .join()
            .expect("no other log is set");
        print!("{plan}");
    }
    random::seed_kernel(options.seed);
    let outcome = run::simulate(plan, options.trace, options.canary);
    print!("{outcome}");
    outcome.violations.is_empty()
}

fn log_to_stdout() {
    let log = std::env::var("RUST_LOG").unwrap_or_default();
    let log = tracing_subscriber::fmt().with_env_filter(log);
    log.without_time().with_ansi(false).init();
}

fn run_seeds(options: &Seeds) -> bool {
    let first = options.first.unwrap_or_else(seed_of_the_clock);
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let began = tokio::time::Instant::now();
    if let Some(unpatched) = &options.unpatched {
        return until_failure(first, options.count, options.given, unpatched);
    }
    let time = options.seconds.map(Duration::from_secs);
    let report = batch::run_many(first, options.count, time, jobs, options.given);
    let took = began.elapsed();
    let time = Duration::from_millis(report.daemon_ms);
    println!(
        "{} seeds from {first} in {took:.1?}: {:.1} hours of daemons, {} claims, {} transactions",
        report.seeds,
        time.as_secs_f64() / 3_600.0,
        report.claims,
        report.writes,
    );
    println!("looked at: {}", listed(&report.looked));
    println!("faults: {}", listed(&report.struck));
    println!("guards: {}", report.guards.len());
    for (guard, seeds) in &report.guards {
        println!("  {seeds:>6} seeds  {guard}");
    }
    for (seed, found) in &report.failed {
        println!("FAILED: SEED={seed}");
        for line in found.iter().take(3) {
            println!("    {line}");
        }
    }
    if let Some(seed) = report.failed.keys().next() {
        println!(
            "{} seeds failed; `simulate shrink {seed}` tells the story",
            report.failed.len()
        );
    }
    // Only plans of all kinds have all that can be seen.
    let missing = report.missing();
    let is_complete = missing.is_empty() || report.seeds < 250 || options.given != Given::default();
    if !is_complete {
        println!("never seen: {}", missing.join(", "));
    }
    report.failed.is_empty() && is_complete
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// Runs seeds until one fails that passes without the fault, and says how many that took.
fn until_failure(first: u64, count: u64, given: Given, unpatched: &Path) -> bool {
    let options = given.options();
    for number in 0..count {
        let seed = first + number;
        let Some(found) = batch::run_with(seed, &options).first_failure() else {
            continue;
        };
        let Some(without) = batch::run_on(unpatched, seed, &options).first_failure() else {
            println!(
                "found by seed {} of {count}: SEED={seed} {found}",
                number + 1
            );
            return true;
        };
        println!("FAILED: SEED={seed} fails without the fault, too: {without}; with it: {found}");
    }
    println!("not found by {count} seeds");
    false
}

fn run_twice(first: u64, count: u64) -> bool {
    let mut differ = Vec::new();
    for seed in first..first + count {
        let [one, other] = [batch::run_with(seed, &[]), batch::run_with(seed, &[])];
        if one.digest.is_empty() || one.digest != other.digest {
            differ.push(seed);
        }
    }
    println!("{count} seeds twice: {} differ {differ:?}", differ.len());
    differ.is_empty()
}

fn run_canary(count: u64) -> bool {
    let found = (1..=count).filter(|seed| {
        let shown = batch::run_with(*seed, &["--canary", "5"]);
        shown.first_failure().is_some()
    });
    let found = found.count();
    println!("a ledger that forgets: found by {found} of {count} seeds");
    found > 0
}

fn seed_of_the_clock() -> u64 {
    lapsed_core::clock::wall_micros()
}
