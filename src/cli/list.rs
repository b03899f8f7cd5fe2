//! `lapsed list`: tasks by state, filter and due time.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lapsed::Config;
use lapsed::compose::Adapters;
use lapsed::contract::TaskFilter;
use lapsed::ledger::{ListCursor, ListFilter};
use lapsed::task::Paused;

use super::filters::{self, Filters, FinishedFilters};
use super::log::stderr_line;
use super::output::Output;

#[derive(Args)]
pub struct List {
    /// Only tasks in these states
    #[arg(long, value_delimiter = ',', value_name = "STATE,..")]
    state: Vec<StateArg>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    finished: FinishedFilters,
    /// Tasks that retention has moved to the archive
    #[arg(long)]
    archived: bool,
    /// Maximum number of tasks
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Continue after the page that printed this cursor: its last line on stderr is `there may be more: --cursor
    /// CURSOR`
    #[arg(long)]
    cursor: Option<ListCursor>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateArg {
    /// Not started, or waiting for a retry
    Pending,
    /// Waiting for a retry
    Waiting,
    Running,
    Done,
    Dead,
    Cancelled,
    /// Pending and past its due time
    Overdue,
}

impl List {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let only_dead = matches!(self.state[..], [StateArg::Dead]);
        let states = self.state.iter().filter_map(StateArg::to_possible_value);
        let states: Vec<String> = states.map(|state| state.get_name().to_owned()).collect();
        let wanted = TaskFilter {
            state: Some(states.join(",")).filter(|states| !states.is_empty()),
            ..self.finished.restrict(self.filters.filter())
        };
        let filter = ListFilter {
            archived: self.archived,
            cursor: self.cursor,
            limit: self.limit,
            ..filters::resolve(&wanted, &adapters.client()).await?
        };
        let page = adapters.ledger.list(&filter).await?;
        let paused = Paused::of(&adapters.ledger.pauses().await?);
        match only_dead {
            true => output.dead(&page.tasks)?,
            false => output.tasks(&page.tasks, &page.malformed, &paused)?,
        }
        if !page.malformed.is_empty() && !self.archived {
            stderr_line!(
                "{} of these rows have a malformed key and never run: `lapsed cancel --prefix` cancels them",
                page.malformed.len()
            );
        }
        if let Some(searched) = page.searched {
            stderr_line!("stopped searching after {searched} rows, few of which match");
        }
        if let Some(next) = page.next {
            stderr_line!("there may be more: --cursor {next}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
