//! `lapsed prune`: forget finished tasks.

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lapsed::client::{Pace, Pruning};
use lapsed::task::State;
use lapsed::{Config, TaskClient};
use serde_json::json;

use super::EXIT_FAILED;
use super::filters::duration;
use super::output::Output;
use super::usage;

#[derive(Args)]
pub struct Prune {
    /// Those that have been finished, and due, for so long go, such as 7d; else as `[retention]` has it
    #[arg(long, value_name = "DUR", value_parser = duration)]
    older_than: Option<Duration>,
    /// Only these states [default: done,cancelled; with neither `--older-than` nor `--keep` those that `[retention]`
    /// names]
    #[arg(long, value_delimiter = ',', value_name = "STATE,..")]
    state: Vec<Finished>,
    /// At most so many of each state stay, those that fell due last: the surplus goes, however young (but a minute).
    /// With `--older-than`, what fits either goes
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Only say how many it would be
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Finished {
    Done,
    Dead,
    Cancelled,
}

impl Finished {
    fn state(self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Dead => State::Dead,
            Self::Cancelled => State::Cancelled,
        }
    }
}

impl Prune {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let prunings = self.prunings(config);
        if prunings.is_empty() {
            return usage(
                "nothing says what is old enough: give `--older-than DUR` or `--keep N`, or set `done`, `dead`, `cancelled` or `done_max` in `[retention]`",
            );
        }
        let rate = NonZeroU32::new(config.retention.rate).unwrap_or(NonZeroU32::MIN);
        let tasks = TaskClient::connect(config).await?;
        let mut counts = serde_json::Map::new();
        let mut words = Vec::new();
        for pruning in prunings {
            let count = tokio::select! {
                count = tasks.prune(pruning, Pace::per_second(rate)) => count?,
                _ = tokio::signal::ctrl_c() => {
                    eprintln!("interrupted: what was deleted is gone, the rest is as it was");
                    return Ok(ExitCode::from(EXIT_FAILED));
                }
            };
            counts.insert(pruning.state.to_string(), json!(count));
            words.push(format!("{count} {}", pruning.state));
        }
        let would_be = if self.dry_run { "would be " } else { "" };
        let value = json!({ "pruned": counts, "dry_run": self.dry_run });
        output.print(&value, format!("{} {would_be}pruned", words.join(", ")))?;
        Ok(ExitCode::SUCCESS)
    }

    fn prunings(&self, config: &Config) -> Vec<Pruning> {
        let dry_run = self.dry_run;
        let retention = config.retention;
        let said = self.older_than.is_some() || self.keep.is_some();
        let pruning = |finished: Finished| match (said, finished) {
            (true, _) => (self.older_than, self.keep),
            (false, Finished::Done) => (retention.done, retention.done_max),
            (false, Finished::Dead) => (retention.dead, None),
            (false, Finished::Cancelled) => (retention.cancelled, None),
        };
        let states = match (&self.state[..], said) {
            ([], true) => &[Finished::Done, Finished::Cancelled][..],
            ([], false) => &[Finished::Done, Finished::Dead, Finished::Cancelled],
            (states, _) => states,
        };
        let prunings = states.iter().map(|finished| {
            let (older_than, keep) = pruning(*finished);
            Pruning {
                state: finished.state(),
                older_than,
                keep,
                dry_run,
            }
        });
        prunings
            .filter(|pruning| pruning.older_than.is_some() || pruning.keep.is_some())
            .collect()
    }
}
