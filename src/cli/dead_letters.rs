//! `lapsed redrive` and `lapsed discard`: commands for dead tasks.

use std::num::NonZeroU32;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use lapsed::client::{ClientError, DeadCount, Pace};
use lapsed::compose::Adapters;
use lapsed::ledger::ListFilter;
use lapsed::task::State;
use lapsed::{Config, TaskClient};
use serde_json::json;

use super::EXIT_FAILED;
use super::filters::{self, Filters, FinishedFilters};
use super::log::stderr_line;
use super::named::NamedTask;
use super::output::Output;
use super::pauses;
use super::progress::Progress;
use super::tasks::OneKey;
use super::usage;

#[derive(Args)]
pub struct Redrive {
    #[command(flatten)]
    which: Which,
    /// State of the tasks: only `dead` tasks can be redriven
    #[arg(long, value_parser = ["dead"], conflicts_with = "key")]
    state: Option<String>,
    /// Maximum rate, e.g. 500/s
    #[arg(long, value_name = "N/s", default_value = "1000/s", value_parser = rate)]
    rate: NonZeroU32,
}

#[derive(Args)]
pub struct Discard {
    #[command(flatten)]
    which: Which,
    /// State of the tasks: only `dead` tasks can be discarded
    #[arg(long, value_parser = ["dead"], conflicts_with = "key")]
    state: Option<String>,
}

#[derive(Args)]
struct Which {
    /// Task key: Class@method[@argument]*, or the id of a task
    #[arg(conflicts_with_all = ["class", "method", "tag", "prefix", "recurring", "due_after", "due_before", "reason", "older_than", "newer_than", "error", "limit", "all"])]
    key: Option<NamedTask>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    finished: FinishedFilters,
    /// All dead tasks; required if no filter is given
    #[arg(long)]
    all: bool,
    /// Maximum number of tasks, earliest due first (--tag: earliest created first; --prefix with an argument: by key)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Only count the matching tasks
    #[arg(long)]
    dry_run: bool,
}

impl Redrive {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        if let Some(key) = &self.which.key {
            if self.which.dry_run {
                return dry_run_of_one(key, config, output, "redriven").await;
            }
            return OneKey::from(key.clone()).redrive(config, output).await;
        }
        let pace = Pace::per_second(self.rate);
        let many = Many {
            verb: "redriven",
            stays: true,
            which: self.which,
        };
        let redrive = async |tasks: &TaskClient, filter: &ListFilter, done: &Progress| {
            tasks
                .redrive_each(filter, pace, |count| done.show(count))
                .await
        };
        many.run(config, output, redrive).await
    }
}

impl Discard {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        if let Some(key) = &self.which.key {
            if self.which.dry_run {
                return dry_run_of_one(key, config, output, "discarded").await;
            }
            return discard_one(key, config, output).await;
        }
        let many = Many {
            verb: "discarded",
            stays: false,
            which: self.which,
        };
        let discard = async |tasks: &TaskClient, filter: &ListFilter, done: &Progress| {
            tasks.discard_each(filter, |count| done.show(count)).await
        };
        many.run(config, output, discard).await
    }
}

async fn discard_one(
    named: &NamedTask,
    config: &Config,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let ledger = Adapters::new(config)?.ledger;
    let key = &named.key(&*ledger).await?;
    let Some(task) = ledger.find(key).await? else {
        anyhow::bail!("there is no task `{key}`");
    };
    let state = task.state;
    anyhow::ensure!(
        state == State::Dead,
        "`{key}` is {state} and cannot be discarded, only dead tasks can"
    );
    let tasks = TaskClient::connect(config).await?;
    anyhow::ensure!(
        tasks.discard(key).await?,
        "`{key}` is not dead any more, or locked by another session; nothing was discarded"
    );
    let value = json!({ "discarded": 1, "dry_run": false });
    output.print(&value, format!("{key} is discarded"))?;
    Ok(ExitCode::SUCCESS)
}

async fn dry_run_of_one(
    named: &NamedTask,
    config: &Config,
    output: Output,
    verb: &str,
) -> anyhow::Result<ExitCode> {
    let ledger = Adapters::new(config)?.ledger;
    let key = &named.key(&*ledger).await?;
    match ledger.find(key).await? {
        Some(task) if task.state == State::Dead => {
            let value = json!({ verb: 1, "dry_run": true });
            output.print(&value, format!("1 would be {verb}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(task) => anyhow::bail!("`{key}` is {} and cannot be {verb}", task.state),
        None => anyhow::bail!("there is no task `{key}`"),
    }
}

/// A bulk command on all matching dead tasks.
struct Many {
    verb: &'static str,
    /// Whether the tasks still exist afterwards and may be paused or held.
    stays: bool,
    which: Which,
}

impl Many {
    async fn run(
        self,
        config: &Config,
        output: Output,
        act: impl AsyncFn(&TaskClient, &ListFilter, &Progress) -> Result<u64, ClientError>,
    ) -> anyhow::Result<ExitCode> {
        let Self { verb, stays, which } = self;
        let Which {
            key: _,
            filters,
            finished,
            all,
            limit,
            dry_run,
        } = which;
        let tasks = TaskClient::connect(config).await?;
        let mut filter = filters::resolve(&finished.restrict(filters.filter()), &tasks).await?;
        if filter.is_open() && !all {
            return usage(
                "this matches every dead task: give a filter (`--class`, `--method`, `--tag`, `--prefix`, `--recurring`, `--due-after`, `--due-before`, `--reason`, `--older-than`, `--newer-than`, `--error`), or `--all`",
            );
        }
        filter.limit = limit.unwrap_or(0);
        let DeadCount {
            count: would_be,
            is_part,
        } = tasks.count_dead(&filter).await?;
        let at_least = if is_part { "at least " } else { "" };
        if dry_run {
            let mut value = json!({ verb: would_be, "dry_run": true });
            if is_part {
                value["at_least"] = json!(true);
            }
            let text = match (is_part, would_be) {
                (true, 0) => {
                    "found none before counting stopped at its time limit; there may be some"
                        .to_owned()
                }
                _ => format!("{at_least}{would_be} would be {verb}"),
            };
            output.print(&value, text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (class, method) = (filter.class.clone(), filter.method.clone());
        let progress = Progress::new(Some(would_be));
        let result = act(&tasks, &filter, &progress).await;
        progress.finish();
        let count = result.with_context(|| {
            format!("stopped after {} of {at_least}{would_be}", progress.count())
        })?;
        let value = json!({ verb: count, "dry_run": false });
        output.print(&value, format!("{count} {verb}"))?;
        if stays && count > 0 {
            let ledger = Adapters::new(config)?.ledger;
            let (pauses, now) = (ledger.pauses().await?, ledger.now().await?);
            pauses::warn_of(&pauses, class.as_deref(), method.as_deref(), now);
        }
        if !progress.is_interrupted() {
            return Ok(ExitCode::SUCCESS);
        }
        stderr_line!("interrupted: {count} of {at_least}{would_be} {verb}; the rest is unchanged");
        Ok(ExitCode::from(EXIT_FAILED))
    }
}

/// Parses `500/s` or `500`.
fn rate(text: &str) -> Result<NonZeroU32, String> {
    let number = text.trim().strip_suffix("/s").unwrap_or(text);
    number.trim().parse().map_err(|_| {
        format!("`{text}` is not a rate, expected a whole number a second such as `500/s`")
    })
}
