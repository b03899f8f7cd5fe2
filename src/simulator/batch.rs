//! Many seeds, each in a process of its own: no state of one run reaches another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::plan::{FaultKind, Given};

/// What many runs have shown.
#[derive(Debug, Default)]
pub struct Report {
    pub seeds: u64,
    /// Seeds that found something, with what they found.
    pub failed: BTreeMap<u64, Vec<String>>,
    pub struck: BTreeMap<String, u64>,
    pub guards: BTreeMap<String, u64>,
    pub claims: u64,
    pub writes: u64,
    pub daemon_ms: u64,
    /// How often the judge looked at what only some runs have, by name.
    pub looked: BTreeMap<String, u64>,
}

/// What one run has shown, read from what its process has printed of its [`Outcome`](crate::outcome::Outcome).
#[derive(Debug, Default)]
pub struct Shown {
    pub violations: Vec<String>,
    struck: BTreeMap<String, u64>,
    guards: BTreeSet<String>,
    numbers: Vec<u64>,
    looked: BTreeMap<String, u64>,
    /// The number of lines of the trace, and their digest.
    pub digest: String,
    /// What it wrote if it ended otherwise than it should.
    pub broken: Option<String>,
}

impl Shown {
    fn not_started(error: &io::Error) -> Self {
        Self {
            broken: Some(error.to_string()),
            ..Self::default()
        }
    }

    fn of(output: &str) -> Self {
        let mut shown = Self::default();
        for line in output.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            match kind {
                "violation" => shown.violations.push(rest.to_owned()),
                "struck" => shown.struck.extend(counted(rest)),
                "looked" => shown.looked.extend(counted(rest)),
                "guard" => drop(shown.guards.insert(rest.to_owned())),
                "numbers" => {
                    let numbers = rest
                        .split(' ')
                        .map(|number| number.parse().unwrap_or_default());
                    shown.numbers = numbers.collect();
                }
                "digest" => rest.clone_into(&mut shown.digest),
                _ => {}
            }
        }
        shown
    }

    /// What it found first, if anything.
    pub fn first_failure(&self) -> Option<String> {
        let first = self.violations.first().or(self.broken.as_ref());
        first.cloned()
    }
}

/// Reads a name and a number.
fn counted(text: &str) -> Option<(String, u64)> {
    let (name, count) = text.split_once(' ')?;
    Some((name.to_owned(), count.parse().ok()?))
}

/// Runs one seed in a process of its own, without these steps of its plan.
pub fn run(seed: u64, given: Given, without: &[usize]) -> Shown {
    let steps: Vec<String> = without.iter().map(ToString::to_string).collect();
    let steps = steps.join(",");
    let mut options = given.options();
    if !without.is_empty() {
        options.extend(["--without", &steps]);
    }
    run_with(seed, &options)
}

/// Runs one seed in a process of its own, with these options.
pub fn run_with(seed: u64, options: &[&str]) -> Shown {
    match std::env::current_exe() {
        Ok(program) => run_on(&program, seed, options),
        Err(error) => Shown::not_started(&error),
    }
}

/// Runs one seed on a build of the simulator.
pub fn run_on(program: &Path, seed: u64, options: &[&str]) -> Shown {
    let mut command = Command::new(program);
    command.arg("seed").arg(seed.to_string()).args(options);
    let ended = match command.stdin(Stdio::null()).output() {
        Ok(ended) => ended,
        Err(error) => return Shown::not_started(&error),
    };
    let mut shown = Shown::of(&String::from_utf8_lossy(&ended.stdout));
    // A panic of the product is a finding, too.
    let errors = String::from_utf8_lossy(&ended.stderr);
    if shown.digest.is_empty() || errors.contains("panicked") {
        let first = errors.lines().take(4).collect::<Vec<_>>().join(" | ");
        shown.broken = Some(format!("{}: {first}", ended.status));
    }
    shown
}

/// Runs seeds from `first` on, until there are `count` or `time` is over.
pub fn run_many(
    first: u64,
    count: u64,
    time: Option<Duration>,
    jobs: usize,
    given: Given,
) -> Report {
    let report = Mutex::new(Report::default());
    let next = AtomicU64::new(first);
    let began = tokio::time::Instant::now();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = time.is_some_and(|time| began.elapsed() >= time);
                    if is_over || seed - first >= count {
                        break;
                    }
                    let shown = run(seed, given, &[]);
                    let mut report = report.lock().expect("nothing panics while holding it");
                    report.add(seed, shown);
                }
            });
        }
    });
    report
        .into_inner()
        .expect("nothing panics while holding it")
}

impl Report {
    fn add(&mut self, seed: u64, shown: Shown) {
        self.seeds += 1;
        if shown.first_failure().is_some() {
            let found = shown.violations.into_iter().chain(shown.broken);
            self.failed.insert(seed, found.collect());
        }
        for (kind, count) in shown.struck {
            *self.struck.entry(kind).or_default() += count;
        }
        for guard in shown.guards {
            *self.guards.entry(guard).or_default() += 1;
        }
        for (name, count) in shown.looked {
            *self.looked.entry(name).or_default() += count;
        }
        let [claims, writes, ms] = shown.numbers[..] else {
            return;
        };
        self.claims += claims;
        self.writes += writes;
        self.daemon_ms += ms;
    }

    /// Returns the kinds of faults that have not struck, and what the judge has not looked at.
    pub fn missing(&self) -> Vec<String> {
        let kinds = FaultKind::ALL.into_iter().map(FaultKind::name);
        let not_struck = kinds.filter(|kind| !self.struck.contains_key(kind));
        let looked = self.looked.iter();
        let not_looked = looked.filter(|(_, count)| **count == 0);
        not_struck
            .chain(not_looked.map(|(name, _)| name.clone()))
            .collect()
    }
}
