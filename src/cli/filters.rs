//! Filter options of `list`, `cancel`, `redrive` and `discard`.

use std::time::Duration;

use clap::Args;
use lapsed::TaskClient;
use lapsed::contract::TaskFilter;
use lapsed::ledger::ListFilter;
use lapsed::task::{Due, Reason, ScheduleError, UnixMs, parse_length};

#[derive(Args)]
pub struct Filters {
    /// Only tasks of this class
    #[arg(long, value_parser = some_text)]
    class: Option<String>,
    /// Only tasks of this method
    #[arg(long, value_parser = some_text)]
    method: Option<String>,
    /// Only tasks with this tag
    #[arg(long, value_parser = some_text)]
    tag: Option<String>,
    /// Only tasks whose key starts with this prefix
    #[arg(long, value_parser = some_text)]
    prefix: Option<String>,
    /// Only recurring tasks
    #[arg(long)]
    recurring: bool,
    /// Only tasks due at this time or later; for a retry, the time of the retry
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    due_after: Option<UnixMs>,
    /// Only tasks due before this time; for a retry, the time of the retry
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    due_before: Option<UnixMs>,
    /// Only tasks whose last error contains this text (case-insensitive)
    #[arg(long, value_name = "TEXT", value_parser = some_text)]
    error: Option<String>,
}

/// Filter options for finished tasks.
#[derive(Args)]
pub struct FinishedFilters {
    /// Only tasks that died for this reason: permanent, exhausted, deadline, poison or expired
    #[arg(long)]
    reason: Option<Reason>,
    /// Only tasks that finished longer ago than this, e.g. 2h or 7d
    #[arg(long, value_name = "DUR", value_parser = age)]
    older_than: Option<String>,
    /// Only tasks that finished within this time, e.g. 2h or 7d
    #[arg(long, value_name = "DUR", value_parser = age)]
    newer_than: Option<String>,
}

impl Filters {
    /// Returns the filter, without states.
    pub fn filter(self) -> TaskFilter {
        let Self {
            class,
            method,
            tag,
            prefix,
            recurring,
            due_after,
            due_before,
            error,
        } = self;
        TaskFilter {
            class,
            method,
            tag,
            prefix,
            recurring,
            due_after: due_after.map(|due| due.to_string()),
            due_before: due_before.map(|due| due.to_string()),
            error,
            ..TaskFilter::default()
        }
    }
}

impl FinishedFilters {
    /// Adds these options to a filter.
    pub fn restrict(self, filter: TaskFilter) -> TaskFilter {
        let Self {
            reason,
            older_than,
            newer_than,
        } = self;
        TaskFilter {
            reason: reason.map(|reason| reason.as_str().to_owned()),
            older_than,
            newer_than,
            ..filter
        }
    }
}

/// Parses a moment.
pub fn moment(text: &str) -> Result<UnixMs, ScheduleError> {
    Due::parse_moment(text).map(|due| due.resolve(UnixMs(0)))
}

/// Resolves a filter for the ledger; reads the ledger's clock only if an age is given.
pub async fn resolve(filter: &TaskFilter, tasks: &TaskClient) -> anyhow::Result<ListFilter> {
    let now = match filter.older_than.is_some() || filter.newer_than.is_some() {
        true => tasks.now().await?,
        false => UnixMs(0),
    };
    Ok(filter.resolve(now)?)
}

/// Refuses an empty text, e.g. of an unset shell variable: it would match everything.
pub fn some_text(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("it is empty, which matches everything: expected some text"),
        text => Ok(text.to_owned()),
    }
}

/// Refuses what is not a positive age.
fn age(text: &str) -> Result<String, String> {
    match duration(text)?.is_zero() {
        true => Err("expected a positive duration, such as 2h or 7d".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Parses a duration with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_length(text).map_err(|error| error.to_string())
}
