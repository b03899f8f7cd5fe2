//! Recurrence options of `schedule` and of bulk lines, and the recurrence in `show`.

use clap::{Args, ValueEnum};
use lapsed::Recurrence;
use lapsed::ledger::TaskRecord;
use lapsed::task::{self, CATCH_UP_LIMIT, CatchUp, Due, Overlap, RecurrenceInput, UnixMs};
use serde::Deserialize;

/// Number of occurrences that `show` prints.
const TOLD: usize = 3;

/// Recurrence options of `schedule`, and fields of a bulk line.
#[derive(Args, Clone, Default, PartialEq)]
pub struct RecurrenceOptions {
    /// Repeat at this interval, e.g. 15m. First run at --in or --at, else one interval from now
    #[arg(long, value_name = "DUR", conflicts_with_all = ["cron", "file"])]
    pub every: Option<String>,
    /// Repeat on this schedule: `minute hour day month weekday`, with six fields `second` first, or e.g. @daily
    #[arg(long, value_name = "EXPR", conflicts_with = "file")]
    pub cron: Option<String>,
    /// Time zone of the cron expression, e.g. Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub tz: Option<String>,
    /// No occurrence after this time
    #[arg(long, value_name = "RFC3339", conflicts_with = "file")]
    pub until: Option<String>,
    /// Number of occurrences
    #[arg(long, value_name = "N", conflicts_with_all = ["until", "file"])]
    pub times: Option<u32>,
    /// How to handle missed occurrences [default: skip]
    #[arg(long, value_enum, conflicts_with = "file")]
    pub catch_up: Option<CatchUpArg>,
    /// Maximum number of missed occurrences that `all` runs [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=i64::from(CATCH_UP_LIMIT)))]
    pub catch_up_max: Option<u32>,
    /// Whether an occurrence may start before the previous one has ended [default: skip]
    #[arg(long, value_enum, conflicts_with = "file")]
    pub overlap: Option<OverlapArg>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUpArg {
    /// Missed occurrences are dropped
    Skip,
    /// One run replaces all missed occurrences
    Once,
    /// Each missed occurrence runs, one after another
    All,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlapArg {
    /// The next occurrence is scheduled when the current one has ended
    Skip,
    /// Each occurrence is a separate task
    Allow,
}

impl From<CatchUpArg> for CatchUp {
    fn from(arg: CatchUpArg) -> Self {
        match arg {
            CatchUpArg::Skip => Self::Skip,
            CatchUpArg::Once => Self::Once,
            CatchUpArg::All => Self::All,
        }
    }
}

impl From<OverlapArg> for Overlap {
    fn from(arg: OverlapArg) -> Self {
        match arg {
            OverlapArg::Skip => Self::Skip,
            OverlapArg::Allow => Self::Allow,
        }
    }
}

impl RecurrenceOptions {
    /// Builds the recurrence, if there is one. `first` is the time from `--in` or `--at`.
    pub fn resolve(self, first: Option<Due>, now: UnixMs) -> Result<Option<Recurrence>, String> {
        if !self.is_recurring() {
            return match self {
                said if said == Self::default() => Ok(None),
                _ => Err(
                    "expected `every` or `cron` with the other options of a recurring task"
                        .to_owned(),
                ),
            };
        }
        let input = RecurrenceInput {
            every: self.every.as_deref(),
            cron: self.cron.as_deref(),
            tz: self.tz.as_deref(),
        };
        let rule = input.rule().map_err(|error| error.to_string())?;
        let until = self.until.as_deref().map(Due::parse_moment).transpose();
        let until = until.map_err(|error| format!("`until`: {error}"))?;
        let options = task::RecurrenceOptions {
            start: first.map(|first| first.resolve(now)),
            until: until.map(|until| until.resolve(now)),
            times: self.times,
            catch_up: self.catch_up.map(CatchUp::from),
            catch_up_max: self.catch_up_max,
            overlap: self.overlap.map(Overlap::from),
        };
        let recurrence = options.apply(rule).map_err(|error| error.to_string())?;
        Ok(Some(recurrence))
    }

    /// Whether the task recurs.
    pub fn is_recurring(&self) -> bool {
        self.every.is_some() || self.cron.is_some()
    }
}

/// Describes a stored recurrence; if it is invalid, the reason.
pub fn summary(stored: &str) -> String {
    match stored.parse::<Recurrence>() {
        Ok(recurrence) => recurrence.summary(),
        Err(error) => error.to_string(),
    }
}

/// Next occurrences of an unfinished recurring task.
pub fn occurrences(task: &TaskRecord) -> Vec<UnixMs> {
    let recurrence = task.recurrence.as_deref().map(str::parse::<Recurrence>);
    let Some(Ok(recurrence)) = recurrence else {
        return Vec::new();
    };
    if task.state.is_finished() {
        return Vec::new();
    }
    let mut occurrences = vec![task.due];
    let mut last = recurrence.continues_after(task.due);
    while occurrences.len() < TOLD
        && let Some(next) = recurrence.next(last)
    {
        occurrences.push(next);
        last = next;
    }
    occurrences
}
