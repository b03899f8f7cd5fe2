//! `lapsed move`: moves the unfinished tasks to another ledger.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use lapsed::compose::ledger_to_move;
use lapsed::config::{LedgerConfig, Secret};
use lapsed::ledger::transfer::Transfers;
use lapsed::ledger::transfer::mover::{Left, MoveCounts, Mover};
use lapsed::ledger::{LedgerError, ListFilter};
use lapsed::task::{Pause, PauseKind};
use lapsed::{Config, ConfigError};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::log::stderr_line;
use super::output::Output;
use super::pauses;
use super::progress::Progress;
use super::{EXIT_FAILED, usage};

/// Rest between two passes.
const REST: Duration = Duration::from_millis(200);

/// Rest after a ledger did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Of archived tasks, which only the old ledger has afterwards.
const ARCHIVE_STAYS: &str = "the archive of finished tasks stays in the old ledger: `lapsed show --archived` and `lapsed list --archived` read it there";

/// What else only the old ledger has.
const STAYS: &str = "the audit log, the history of the charts, answers kept for `Idempotency-Key`, and logins of browsers stay in the old ledger";

#[derive(Args)]
pub struct Move {
    /// The ledger that receives the tasks, e.g. mysql://user:password@host/database
    #[arg(
        long,
        value_name = "URL",
        env = "LAPSED_MOVE_TO",
        hide_env_values = true
    )]
    to: String,
    /// Its table [default: as configured]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Go on until Ctrl-C, with the tasks that producers still create here
    #[arg(long)]
    follow: bool,
    /// Copy the tasks that are done, dead or cancelled, too
    #[arg(long)]
    with_finished: bool,
    /// Only count the tasks
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Move although pauses or holds of this ledger are not set in the other one: tasks that are due start there
    #[arg(long)]
    without_pauses: bool,
}

impl Move {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let there = LedgerConfig {
            url: Secret::from(self.to.clone()),
            table: self.table.clone().unwrap_or(config.ledger.table.clone()),
            ..config.ledger.clone()
        };
        let from = ledger_to_move(&config.ledger)?;
        let to = match ledger_to_move(&there) {
            Ok(to) => to,
            Err(ConfigError { problems }) => {
                let problems = problems.into_iter().map(|problem| problem.message);
                let why: Vec<String> = problems.collect();
                return usage(&format!(
                    "`--to` names a ledger, as `ledger.url` does (mysql:// or sqlite://): {}",
                    why.join("; ")
                ));
            }
        };
        from.check().await.context("check the configured ledger")?;
        to.check()
            .await
            .context("check the ledger that receives the tasks")?;
        match (from.identity(), to.identity()) {
            (Some(from), Some(to)) if from != to => {}
            (Some(_), Some(_)) => return usage("`--to` is the configured ledger"),
            (None, _) => {
                return usage("the configured ledger has no identity: run `lapsed migrate`");
            }
            (_, None) => {
                return usage(
                    "the ledger that receives the tasks has no identity: run `lapsed migrate` with its URL",
                );
            }
        }
        let note = json!({ "moved_to": there.url.to_string() }).to_string();
        let mut mover = Mover::new(from.as_ref(), to.as_ref(), note);
        let plan = mover.plan().await?;
        let here = from.pauses().await.context("read the pauses")?;
        let there = to.pauses().await.context("read the other pauses")?;
        let missing_pauses = missing_pauses(here, &there);
        let moves_any = plan.tasks > 0 || self.follow;
        if moves_any && !missing_pauses.is_empty() && !self.without_pauses {
            let lines: Vec<String> = pauses::lines(&missing_pauses).collect();
            let problem = format!(
                "tasks are paused or held here that may start in the other ledger. Pause them there first \
                 (`lapsed pause`, or `lapsed listen --hold-overdue`, with `ledger.url` of that ledger), or pass `--without-pauses`.\n{}",
                lines.join("\n")
            );
            match self.dry_run {
                true => stderr_line!("warning: {problem}"),
                false => return usage(&problem),
            }
        }
        if self.dry_run {
            let value = json!({
                "tasks": plan.tasks, "running": plan.running, "half_moved": plan.held,
                "no_tasks": plan.foreign, "dry_run": true,
            });
            let text = format!(
                "unfinished tasks: {}, of which {} are running and {} half moved; rows that are no tasks: {}",
                plan.tasks, plan.running, plan.held, plan.foreign
            );
            output.print(&value, text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let archives = has_archived(&*from).await?;
        let progress = Progress::new(Some(plan.tasks));
        let left = self.carry(&mut mover, &progress).await;
        progress.finish();
        let counts = mover.counts().clone();
        let left = left.with_context(|| {
            format!(
                "stopped after {} tasks: run it again, it continues",
                counts.moved
            )
        })?;
        let old = config.ledger.url.to_string();
        let ended = self.print_result(&old, &counts, &left, progress.is_interrupted(), output)?;
        if archives {
            stderr_line!("note: {ARCHIVE_STAYS}");
        }
        Ok(ended)
    }

    /// Passes until nothing is left to try again, or until Ctrl-C.
    async fn carry(&self, mover: &mut Mover<'_>, progress: &Progress) -> anyhow::Result<Left> {
        let show = |counts: &MoveCounts| progress.show(counts.moved + counts.copied);
        let mut has_tidied = false;
        let mut has_copied = !self.with_finished;
        loop {
            let began = Instant::now();
            let passed: Result<Left, LedgerError> = async {
                if !has_tidied {
                    mover.tidy().await?;
                    has_tidied = true;
                }
                let left = mover.pass(show).await?;
                if !has_copied && !left.stopped {
                    mover.copy_finished(show).await?;
                    has_copied = true;
                }
                Ok(left)
            }
            .await;
            let rest = match passed {
                Ok(left) if progress.is_interrupted() => return Ok(left),
                Ok(left) if left.later == 0 && !self.follow => return Ok(left),
                // A pass reads every task that it leaves.
                Ok(_) => REST.max(began.elapsed()),
                Err(error) if error.is_transient() && !progress.is_interrupted() => {
                    progress.line(&format!("waiting for a ledger: {error}"));
                    RETRY_AFTER
                }
                Err(error) => return Err(error.into()),
            };
            sleep(rest).await;
            if show(mover.counts()) == ControlFlow::Break(()) {
                return Ok(mover.pass(show).await?);
            }
        }
    }

    fn print_result(
        &self,
        old: &str,
        counts: &MoveCounts,
        left: &Left,
        interrupted: bool,
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        let MoveCounts {
            moved,
            known,
            copied,
        } = counts;
        let complete = !interrupted && left.later == 0 && left.unfit_count == 0;
        let unfit: Vec<_> = left
            .unfit
            .iter()
            .map(|(key, why)| json!({ "key": key.as_str(), "error": why }))
            .collect();
        let value = json!({
            "moved": moved, "known": known, "copied": copied, "running": left.later,
            "refused": left.unfit_count, "refused_first": unfit, "no_tasks": left.foreign,
            "complete": complete, "dry_run": false,
        });
        let mut text = format!("moved: {moved}, of which {known} were already there");
        if self.with_finished {
            text += &format!("; finished tasks copied: {copied}");
        }
        if left.later > 0 {
            text += &format!("; running: {}", left.later);
        }
        if complete {
            text += &format!("\ncomplete: no unfinished task is left in {old}");
        }
        output.print(&value, text)?;
        for (key, why) in &left.unfit {
            stderr_line!("error: `{key}`: {why}");
        }
        if left.unfit_count > 0 {
            stderr_line!(
                "error: the other ledger refused {} tasks, which stay",
                left.unfit_count
            );
        }
        if left.foreign > 0 {
            stderr_line!("note: {} rows are no tasks, and stay", left.foreign);
        }
        if complete {
            stderr_line!("note: {STAYS}");
        }
        let failed = left.unfit_count > 0 || (interrupted && !self.follow);
        if interrupted && !self.follow {
            stderr_line!("interrupted: run it again, it continues");
        }
        Ok(match failed {
            true => EXIT_FAILED.into(),
            false => ExitCode::SUCCESS,
        })
    }
}

/// Whether a ledger has archived tasks. One without an archive has none.
async fn has_archived(ledger: &dyn Transfers) -> anyhow::Result<bool> {
    let any = ListFilter {
        archived: true,
        limit: 1,
        brief: true,
        ..ListFilter::default()
    };
    match ledger.list(&any).await {
        Ok(page) => Ok(!page.tasks.is_empty() || !page.malformed.is_empty()),
        Err(LedgerError::Refused { .. }) => Ok(false),
        Err(error) => Err(error).context("look for archived tasks"),
    }
}

/// Pauses and holds of one ledger that are not in effect in another one. A hold there is in effect if it is the same or a
/// later one, a pause if it ends no sooner.
fn missing_pauses(here: Vec<Pause>, there: &[Pause]) -> Vec<Pause> {
    let covers = |there: &Pause, here: &Pause| {
        there.kind == here.kind
            && there.scope.includes(&here.scope)
            && there.due_before >= here.due_before
            && there
                .until
                .is_none_or(|end| here.until.is_some_and(|here| here <= end))
    };
    let missing_pauses = here.into_iter().filter(|here| {
        // A release lets tasks start.
        here.kind != PauseKind::Release && !there.iter().any(|there| covers(there, here))
    });
    missing_pauses.collect()
}
