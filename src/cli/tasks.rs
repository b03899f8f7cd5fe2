//! Commands on one existing task: `reschedule`, `ttl`, `run`, `redrive` and `show`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use lapsed::Config;
use lapsed::compose::Adapters;
use lapsed::contract::TaskView;
use lapsed::ledger::{ListFilter, RescheduleAnswer, RunNowAnswer};
use lapsed::task::{KeyError, Paused, TaskKey};
use serde_json::json;

use super::log::stderr_line;
use super::named::NamedTask;
use super::output::{Malformed, Output, say, task_lines};
use super::pauses::{kept_back, stays_pending_now};
use super::task_args::When;
use super::{EXIT_FAILED, times, usage};

#[derive(Args)]
pub struct Reschedule {
    /// Task key: Class@method[@argument]*
    key: TaskKey,
    #[command(flatten)]
    when: When,
}

impl Reschedule {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let Some(due) = self.when.due() else {
            return usage("reschedule needs `--in DUR` or `--at RFC3339`");
        };
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let due = match due.resolve_checked(tasks.now().await?) {
            Ok(due) => due,
            Err(error) => return usage(&error.to_string()),
        };
        match adapters.ledger.reschedule(&self.key, due).await? {
            RescheduleAnswer::Moved(arming) => {
                let not_armed = tasks.arm_again(&self.key, arming).await;
                let (kept_back, but) = stays_pending_now(&adapters, &self.key, arming.due).await;
                let value = json!({
                    "key": self.key.as_str(), "id": arming.to_string(), "due": arming.due.to_string(),
                    "armed": not_armed.is_none(), "not_armed": not_armed, "kept_back": kept_back,
                });
                output.print(
                    &value,
                    format!("{} is due {}{but}", self.key, times::shown(arming.due)),
                )?;
                Ok(ExitCode::SUCCESS)
            }
            RescheduleAnswer::Running => bail!("`{}` is being run and cannot be moved", self.key),
            RescheduleAnswer::Finished(state) => bail!(
                "`{}` is {state} and cannot be moved; schedule it again",
                self.key
            ),
            RescheduleAnswer::Unknown => bail!("there is no task `{}`", self.key),
        }
    }
}

/// Participle of `redrive`, in texts and as a JSON field.
const REDRIVEN: &str = "redriven";

#[derive(Args)]
pub struct OneKey {
    /// Task key: Class@method[@argument]*, or the id of a task
    key: NamedTask,
}

impl From<NamedTask> for OneKey {
    fn from(key: NamedTask) -> Self {
        Self { key }
    }
}

impl OneKey {
    pub async fn ttl(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        const NO_SUCH_TASK: i64 = -2;
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let key = self.key.key(&*adapters.ledger).await?;
        let left = adapters.client().pttl(&key).await?;
        let left = left.map_or(NO_SUCH_TASK, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        output.print(&json!({ "ttl_ms": left }), left)?;
        Ok(ExitCode::SUCCESS)
    }

    pub async fn run_now(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let key = self.key.key(&*adapters.ledger).await?;
        let answer = adapters.ledger.run_now(&key).await?;
        print_due(&key, &adapters, answer, "run", output).await
    }

    pub async fn redrive(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let key = self.key.key(&*adapters.ledger).await?;
        let answer = adapters.ledger.redrive(&key).await?;
        print_due(&key, &adapters, answer, REDRIVEN, output).await
    }
}

async fn print_due(
    key: &TaskKey,
    adapters: &Adapters,
    answer: RunNowAnswer,
    verb: &str,
    output: Output,
) -> anyhow::Result<ExitCode> {
    match answer {
        RunNowAnswer::Due(arming) => {
            adapters.client().arm_again(key, arming).await;
            let (kept_back, but) = stays_pending_now(adapters, key, arming.due).await;
            let mut value =
                json!({ "id": arming.to_string(), "key": key.as_str(), "kept_back": kept_back });
            if verb == REDRIVEN {
                value[REDRIVEN] = json!(1);
                value["dry_run"] = json!(false);
            }
            output.print(&value, format!("{key} is due now (id {arming}){but}"))?;
            Ok(ExitCode::SUCCESS)
        }
        RunNowAnswer::Refused(state) => bail!("`{key}` is {state} and cannot be {verb}"),
        RunNowAnswer::Unknown => bail!("there is no task `{key}`"),
    }
}

/// `show` also accepts a malformed key: another program may have written a row with it.
#[derive(Args)]
pub struct Show {
    /// Task key: Class@method[@argument]*, or the id of a task
    key: String,
    /// Show a task that retention has moved to the archive; of a key, the latest
    #[arg(long)]
    archived: bool,
}

impl Show {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let named = match self.key.parse::<NamedTask>() {
            Ok(named) => named,
            Err(error) => return self.show_malformed(&adapters, output, error).await,
        };
        if self.archived {
            return show_archived(&named, &adapters, output).await;
        }
        let key = named.key(&*adapters.ledger).await?;
        match adapters.ledger.find(&key).await? {
            Some(task) => {
                let pauses = adapters.ledger.pauses().await?;
                let view = TaskView::single(&task, &Paused::of(&pauses));
                let mut text = task_lines(&view);
                if view.kept_back.is_some()
                    && let (_, Some(why)) = kept_back(&pauses, &task.key, task.due)
                {
                    text += &format!("\n{:<13} {why}", "kept back");
                }
                output.print(&view, text)?;
                Ok(ExitCode::SUCCESS)
            }
            None => {
                if output.json {
                    say("null")?;
                }
                let is_archived = config.retention.archive
                    && adapters.ledger.find_archived(&key).await?.is_some();
                match is_archived {
                    true => stderr_line!(
                        "error: there is no task `{key}`, but an archived one: `lapsed show --archived '{key}'`"
                    ),
                    false => stderr_line!("error: there is no task `{}`", key),
                }
                Ok(ExitCode::from(EXIT_FAILED))
            }
        }
    }

    async fn show_malformed(
        self,
        adapters: &Adapters,
        output: Output,
        error: KeyError,
    ) -> anyhow::Result<ExitCode> {
        // In key order, the key itself comes before longer keys with this prefix.
        let filter = ListFilter {
            prefix: Some(self.key.clone()).filter(|key| !key.is_empty()),
            limit: 1,
            ..ListFilter::default()
        };
        let page = adapters.ledger.list(&filter).await?;
        match page.malformed.iter().find(|row| row.key == self.key) {
            Some(row) => {
                let row = Malformed::new(row);
                output.print(&row, row.lines())?;
                Ok(ExitCode::SUCCESS)
            }
            None => usage(&format!(
                "invalid value '{}': {error}",
                self.key.escape_debug()
            )),
        }
    }
}

async fn show_archived(
    named: &NamedTask,
    adapters: &Adapters,
    output: Output,
) -> anyhow::Result<ExitCode> {
    match named.archived(&*adapters.ledger).await? {
        Some(task) => {
            let view = TaskView::single(&task, &Paused::default());
            output.print(&view, task_lines(&view))?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            if output.json {
                say("null")?;
            }
            stderr_line!("error: there is no archived task `{named}`");
            Ok(ExitCode::from(EXIT_FAILED))
        }
    }
}
