//! `lapsed prune`: deletes or archives finished tasks.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use lapsed::client::{Pace, Pruning};
use lapsed::task::State;
use lapsed::{Config, TaskClient};
use serde_json::json;
use tokio::time::Instant;

use super::EXIT_FAILED;
use super::filters::duration;
use super::log::stderr_line;
use super::output::Output;
use super::progress::Progress;
use super::usage;

/// Time limit for counting rows of one state in a dry run.
const COUNT_MAX: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct Prune {
    /// Delete tasks that finished and were due longer ago than this, e.g. 7d; without it, the ages of `[retention]` apply
    #[arg(long, value_name = "DUR", value_parser = duration)]
    older_than: Option<Duration>,
    /// Only tasks in these states [default: done,cancelled; without --older-than and --keep, as configured]
    #[arg(long, value_delimiter = ',', value_name = "STATE,..")]
    state: Vec<Finished>,
    /// Keep the N most recently due tasks of each state and delete the others that are older than a minute. With
    /// --older-than, tasks that match either option are deleted
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Delete them even if `[retention]` has `archive = true`, which moves them to the archive
    #[arg(long)]
    no_archive: bool,
    /// Only count the matching tasks
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
                "no age is set: give `--older-than DUR` or `--keep N`, or set `done`, `dead`, `cancelled` or `done_max` in `[retention]`",
            );
        }
        let rate = NonZeroU32::new(config.retention.rate).unwrap_or(NonZeroU32::MIN);
        let tasks = TaskClient::connect(config).await?;
        let mut counts = serde_json::Map::new();
        let mut words = Vec::new();
        let (mut is_part, mut interrupted) = (false, false);
        for pruning in prunings {
            let progress = Progress::new(None);
            let counted_until = Instant::now() + COUNT_MAX;
            let count = tasks.prune_each(pruning, Pace::per_second(rate), |count| {
                if pruning.dry_run && Instant::now() >= counted_until {
                    is_part = true;
                    return ControlFlow::Break(());
                }
                progress.show(count)
            });
            let result = count.await;
            progress.finish();
            let count = result
                .with_context(|| format!("stopped after {} {}", progress.count(), pruning.state))?;
            counts.insert(pruning.state.to_string(), json!(count));
            words.push(format!("{count} {}", pruning.state));
            interrupted = progress.is_interrupted();
            if interrupted {
                break;
            }
        }
        let would_be = if self.dry_run { "would be " } else { "" };
        let at_least = if is_part { "at least " } else { "" };
        let archive = self.archives(config);
        let pruned = if archive { "archived" } else { "pruned" };
        let mut value = json!({ "pruned": counts, "dry_run": self.dry_run });
        if archive {
            value["archived"] = json!(true);
        }
        if is_part {
            value["at_least"] = json!(true);
        }
        let text = format!("{at_least}{} {would_be}{pruned}", words.join(", "));
        output.print(&value, text)?;
        if interrupted {
            let pruned = if archive {
                "archived rows are in the archive"
            } else {
                "deleted rows are gone"
            };
            stderr_line!("interrupted: {pruned}, the rest is unchanged");
            return Ok(ExitCode::from(EXIT_FAILED));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// True if the tasks are archived, as the daemon would do.
    fn archives(&self, config: &Config) -> bool {
        config.retention.archive && !self.no_archive
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
                archive: self.archives(config),
                dry_run,
            }
        });
        prunings
            .filter(|pruning| pruning.older_than.is_some() || pruning.keep.is_some())
            .collect()
    }
}
