//! The commands that look.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lapsed::compose::Adapters;
use lapsed::config::{RecurringConfig, RouteConfig};
use lapsed::doctor::{self, Severity};
use lapsed::ledger::{Catalog, ListFilter, Pauses, StateFilter};
use lapsed::task::{Due, Paused, ScheduleError, State, UnixMs};
use lapsed::{Config, Engine, HandlerRegistry};
use serde_json::json;

use super::filters::Filters;
use super::output::Output;
use super::{EXIT_FAILED, EXIT_SICK};

#[derive(Args)]
pub struct List {
    /// Only these states
    #[arg(long, value_delimiter = ',', value_name = "STATE,..")]
    state: Vec<StateArg>,
    #[command(flatten)]
    filters: Filters,
    /// Due at this moment or later
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    due_after: Option<UnixMs>,
    /// Due before this moment
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    due_before: Option<UnixMs>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Go on behind the page that named this cursor; where there may be more, the last line on stderr is
    /// `there may be more: --cursor N`
    #[arg(long, value_parser = cursor)]
    cursor: Option<u64>,
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
    /// Pending, and the time has passed
    Overdue,
}

impl StateArg {
    fn filters(self) -> Vec<StateFilter> {
        match self {
            Self::Pending => vec![
                StateFilter::Is(State::Pending),
                StateFilter::Is(State::Waiting),
            ],
            Self::Waiting => vec![StateFilter::Is(State::Waiting)],
            Self::Running => vec![StateFilter::Is(State::Running)],
            Self::Done => vec![StateFilter::Is(State::Done)],
            Self::Dead => vec![StateFilter::Is(State::Dead)],
            Self::Cancelled => vec![StateFilter::Is(State::Cancelled)],
            Self::Overdue => vec![StateFilter::Overdue],
        }
    }
}

fn cursor(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .map_err(|_| "expected the number that the page before named behind `--cursor`")
}

fn moment(text: &str) -> Result<UnixMs, ScheduleError> {
    Due::parse_moment(text).map(|due| due.resolve(UnixMs(0)))
}

impl List {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        let only_dead = matches!(self.state[..], [StateArg::Dead]);
        let filter = ListFilter {
            states: self.state.into_iter().flat_map(StateArg::filters).collect(),
            due_after: self.due_after,
            due_before: self.due_before,
            cursor: self.cursor,
            limit: self.limit,
            ..self.filters.resolve(&adapters.client()).await?
        };
        let page = adapters.ledger.list(&filter).await?;
        let paused = Paused::of(&adapters.ledger.all().await?);
        match only_dead {
            true => output.dead(&page.tasks)?,
            false => output.tasks(&page.tasks, &paused)?,
        }
        if let Some(next) = page.next {
            eprintln!("there may be more: --cursor {next}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub async fn sweep(config: Config, output: Output) -> anyhow::Result<ExitCode> {
    let (sweep, audit) = Engine::new(config, HandlerRegistry::new())
        .reconcile()
        .await?;
    let value = json!({ "sweep": sweep, "audit": audit });
    output.print(
        &value,
        format!(
            "{} overdue, {} pending ahead, {} keys armed again, {} deleted rows revived, {} keys adopted",
            sweep.overdue, audit.pending, audit.rearmed, audit.revived, audit.adopted
        ),
    )?;
    if audit.complete {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: the audit broke off: not all keys were looked at");
    Ok(EXIT_FAILED.into())
}

#[derive(Args)]
pub struct Doctor {
    /// Mend what can be mended without risk
    #[arg(long)]
    fix: bool,
}

impl Doctor {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let report = if self.fix {
            doctor::fix(config).await
        } else {
            doctor::examine(config).await
        };
        output.print(&report, report.to_string().trim_end())?;
        Ok(match report.worst() {
            Severity::Error => ExitCode::from(EXIT_SICK),
            Severity::Ok | Severity::Note | Severity::Warning => ExitCode::SUCCESS,
        })
    }
}

pub fn check_config(config: &Config, output: Output) -> anyhow::Result<ExitCode> {
    let targets = config.routes.iter().map(
        |route| json!({ "match": route.matches.as_str(), "target": route.target.to_string() }),
    );
    let targets: Vec<_> = targets.collect();
    let warnings: Vec<String> = config
        .recurring
        .iter()
        .filter_map(|series| doubt(config, series))
        .collect();
    let (routes, recurring) = (config.routes.len(), config.recurring.len());
    let value = json!({
        "ok": true, "routes": routes, "targets": targets, "recurring": recurring, "warnings": warnings,
    });
    let plural = |count| if count == 1 { "" } else { "s" };
    let mut text = format!(
        "the configuration is in order, {routes} route{}",
        plural(routes)
    );
    if recurring > 0 {
        text += &format!(", {recurring} recurring task{}", plural(recurring));
    }
    for route in &config.routes {
        text += &format!("\n  {}  ->  {}", route.matches, route.target);
    }
    for series in &config.recurring {
        let recurrence = series.recurrence.summary();
        text += &format!("\n  {}  comes again: {recurrence}", series.key);
    }
    output.print(&value, text)?;
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What speaks against a series of the configuration ever running, if anything does.
fn doubt(config: &Config, series: &RecurringConfig) -> Option<String> {
    let RecurringConfig {
        key, recurrence, ..
    } = series;
    let is_routed = |route: &RouteConfig| route.matches.is_match(key.as_str());
    let doubt = match recurrence.next(lapsed::clock::wall()) {
        None if recurrence.next(UnixMs(0)).is_none() => {
            "never comes: no occurrence lies between `start` and `until`"
        }
        None => "is over: its last occurrence has passed",
        Some(_) if !config.routes.iter().any(is_routed) => {
            "matches no route: only a program with a handler for it runs it"
        }
        Some(_) => return None,
    };
    Some(format!("`{key}` of `[[recurring]]` {doubt}"))
}
