//! `lapsed cancel`: cancels one task, or all matching tasks.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use lapsed::client::{CancelReport, WouldCancel};
use lapsed::compose::Adapters;
use lapsed::contract::TaskFilter;
use lapsed::ledger::{CancelAnswer, Lookup, StateFilter};
use lapsed::task::{KeyError, State, UnixMs};
use lapsed::{Config, TaskClient};
use serde_json::json;

use super::filters::Filters;
use super::log::stderr_line;
use super::named::NamedTask;
use super::output::Output;
use super::progress::Progress;
use super::{EXIT_FAILED, usage};

#[derive(Args)]
pub struct Cancel {
    /// Task key: Class@method[@argument]*, or the id of a task
    #[arg(conflicts_with_all = ["class", "method", "tag", "prefix", "recurring", "due_after", "due_before", "error", "state", "all", "dry_run"], value_parser = task_key)]
    key: Option<NamedTask>,
    #[command(flatten)]
    filters: Filters,
    /// Only tasks in these states
    #[arg(long, value_delimiter = ',', value_name = "STATE,..", value_parser = ["pending", "waiting", "running", "overdue"])]
    state: Vec<String>,
    /// All unfinished tasks; required if no filter is given
    #[arg(long)]
    all: bool,
    /// Only count the matching tasks
    #[arg(long)]
    dry_run: bool,
}

/// Parses a key. Rows with a malformed key can be cancelled by prefix only.
fn task_key(text: &str) -> Result<NamedTask, String> {
    text.parse().map_err(|error: KeyError| {
        format!("{error}; a row with such a key is cancelled by `--prefix`")
    })
}

impl Cancel {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        if let Some(key) = &self.key {
            return cancel_one(key, config, output).await;
        }
        let filter = TaskFilter {
            state: Some(self.state.join(",")).filter(|states| !states.is_empty()),
            ..self.filters.filter()
        };
        let mut filter = filter.resolve(UnixMs(0))?;
        match (filter.is_open(), self.all) {
            (true, false) => {
                return usage(
                    "this matches every task: give a key, a filter (`--class`, `--method`, `--tag`, `--prefix`, `--recurring`, `--due-after`, `--due-before`, `--error`), or `--all`",
                );
            }
            (false, true) => return usage("`--all` and a filter exclude each other"),
            _ => {}
        }
        if filter.states.is_empty() && self.all {
            filter.states = StateFilter::UNFINISHED.to_vec();
        }
        let tasks = TaskClient::connect(config).await?;
        if self.dry_run {
            let WouldCancel { report, is_part } = tasks.would_cancel(&filter).await?;
            let CancelReport {
                cancelled, running, ..
            } = report;
            let mut value =
                json!({ "dry_run": true, "would_cancel": cancelled, "running": running });
            if is_part {
                value["at_least"] = json!(true);
            }
            let text = match (is_part, cancelled + running) {
                (true, 0) => {
                    "found none before counting stopped at its time limit; there may be some"
                        .to_owned()
                }
                (true, _) => format!("would cancel at least {cancelled}; {running} running"),
                (false, _) => format!("would cancel {cancelled}; {running} running"),
            };
            output.print(&value, text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let progress = Progress::new(None);
        let cancelled = tasks.cancel_each(&filter, |report| progress.show(report.cancelled));
        let result = cancelled.await;
        progress.finish();
        let report = result.with_context(|| format!("stopped after {}", progress.count()))?;
        let code = print_report(&report, output)?;
        if !progress.is_interrupted() {
            return Ok(code);
        }
        stderr_line!("interrupted: the remaining tasks are unchanged");
        Ok(ExitCode::from(EXIT_FAILED))
    }
}

async fn cancel_one(
    named: &NamedTask,
    config: &Config,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let adapters = Adapters::new(config)?;
    adapters.ledger.check().await?;
    let key = &named.key(&*adapters.ledger).await?;
    let before = adapters.ledger.look_up(std::slice::from_ref(key)).await?;
    let is_cancelled = |lookup: &Lookup| lookup.state == State::Cancelled && !lookup.deleted;
    let was_cancelled = before.iter().flatten().any(is_cancelled);
    let mut report = CancelReport::default();
    // Also for a cancelled task: its key may still be in Redis.
    match adapters.client().cancel(key).await? {
        CancelAnswer::Cancelled if was_cancelled => {
            output.print(&report, format!("`{key}` is cancelled already"))?;
            return Ok(ExitCode::SUCCESS);
        }
        CancelAnswer::Cancelled => report.cancelled = 1,
        CancelAnswer::Running => report.running = 1,
        CancelAnswer::Finished(state) => bail!("`{key}` is {state} already"),
        CancelAnswer::Unknown => bail!("there is no task `{key}`"),
    }
    print_report(&report, output)
}

fn print_report(report: &CancelReport, output: Output) -> anyhow::Result<ExitCode> {
    let CancelReport {
        cancelled,
        running,
        locked,
    } = report;
    output.print(
        report,
        format!("{cancelled} cancelled, {running} running (no further attempt will start)"),
    )?;
    if *locked == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    stderr_line!(
        "error: another session has locked {locked} of them, which are unchanged; cancel again when it has finished"
    );
    Ok(ExitCode::from(EXIT_FAILED))
}
