//! `lapsed take`: takes due tasks out of the ledger by hand.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use lapsed::compose::Adapters;
use lapsed::engine::{ManualClaims, TakeReport, TakenTask};
use lapsed::ledger::{ListFilter, StateFilter, TaskRecord};
use lapsed::task::{Arming, Paused, UnixMs};
use lapsed::{Config, Handlers};
use tokio::time::interval;

use super::EXIT_FAILED;
use super::filters::moment;
use super::filters::some_text;
use super::log::stderr_line;
use super::output::Output;

/// Tasks that are claimed, printed and completed together.
const BATCH: u32 = 100;

#[derive(Args)]
pub struct Take {
    /// Only tasks due before this time; for a retry, the time of the retry
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    due_before: Option<UnixMs>,
    /// Only tasks due at this time or later; for a retry, the time of the retry
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    due_after: Option<UnixMs>,
    /// Only tasks of this class
    #[arg(long, value_parser = some_text)]
    class: Option<String>,
    /// Only tasks of this method
    #[arg(long, value_parser = some_text)]
    method: Option<String>,
    /// Only tasks with this tag
    #[arg(long, value_parser = some_text)]
    tag: Option<String>,
    /// Maximum number of tasks
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Print the tasks as `list --json` does, and leave them where they are
    #[arg(long)]
    peek: bool,
}

impl Take {
    pub async fn run(self, config: Config, _: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(&config)?;
        adapters.ledger.check().await?;
        let paused = Paused::of(&adapters.ledger.pauses().await?);
        let claims = adapters.engine(&config, Handlers::new()).manual_claims();
        let limit = self.limit as usize;
        let peek = self.peek;
        let mut filter = self.filter();
        let (mut count, mut kept_back) = (0, 0);
        let mut total = TakeReport::default();
        loop {
            filter.limit = BATCH.min(u32::try_from(limit - count).unwrap_or(BATCH));
            let page = adapters.ledger.list(&filter).await?;
            let (waiting, due): (Vec<TaskRecord>, Vec<TaskRecord>) = page
                .tasks
                .into_iter()
                .partition(|task| paused.blocks(&task.key, task.due).is_some());
            kept_back += waiting.len();
            if peek {
                Output { json: true }.tasks(&due, &[], &paused)?;
                count += due.len();
            } else {
                let TakeReport { completed, lost } = take(&claims, &due).await?;
                total.completed += completed;
                total.lost += lost;
                count += completed + lost;
            }
            filter.cursor = page.next;
            if filter.cursor.is_none() || count >= limit {
                break;
            }
        }
        if kept_back > 0 {
            stderr_line!("note: {kept_back} due tasks are paused or held, and stay");
        }
        if total.lost > 0 {
            stderr_line!(
                "error: {} of the printed tasks could not be completed: they run again",
                total.lost
            );
            return Ok(EXIT_FAILED.into());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn filter(self) -> ListFilter {
        ListFilter {
            states: vec![StateFilter::Overdue],
            class: self.class,
            method: self.method,
            tag: self.tag,
            due_after: self.due_after,
            due_before: self.due_before,
            ..ListFilter::default()
        }
    }
}

/// Claims these tasks, prints them, and completes them. Gives them back if they cannot be printed.
async fn take(claims: &ManualClaims, due: &[TaskRecord]) -> anyhow::Result<TakeReport> {
    let armings: Vec<Arming> = due.iter().filter_map(arming).collect();
    if armings.is_empty() {
        return Ok(TakeReport::default());
    }
    let taken = claims.claim(&armings).await?;
    match print(claims, &taken).await {
        Ok(()) => claims.complete(&taken).await.with_context(|| {
            format!(
                "complete {} printed tasks: they run again when their leases expire",
                taken.len()
            )
        }),
        Err(error) => {
            claims.release(&taken).await.with_context(|| {
                format!(
                    "release {} tasks that could not be printed ({error}): they run when their leases expire",
                    taken.len()
                )
            })?;
            Err(error).with_context(|| format!("print tasks: {} are pending again", taken.len()))
        }
    }
}

/// Prints tasks, one a line, and renews their leases while the reader of standard output is slow.
async fn print(claims: &ManualClaims, taken: &[TakenTask]) -> std::io::Result<()> {
    let mut text = String::new();
    for task in taken {
        text.push_str(&task.to_json_line());
        text.push('\n');
    }
    let mut printed = tokio::task::spawn_blocking(move || {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    });
    let every = claims.lease() / 3;
    let mut renewals = interval(every);
    renewals.reset();
    loop {
        tokio::select! {
            result = &mut printed => {
                return result.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
            }
            _ = renewals.tick() => if let Err(error) = claims.renew(taken).await {
                tracing::debug!(%error, "could not renew the leases of taken tasks");
            },
        }
    }
}

/// The arming of a listed task; its id is `<row>-<end_time ms>`.
fn arming(task: &TaskRecord) -> Option<Arming> {
    let (row, _) = task.id.split_once('-')?;
    Some(Arming {
        row: row.parse().ok()?,
        due: task.due,
    })
}
