//! How a task comes again, as people say it: options of `schedule`, fields of a bulk line, and what `show` tells.

use clap::{Args, ValueEnum};
use lapsed::Recurrence;
use lapsed::ledger::TaskRecord;
use lapsed::task::{CATCH_UP_LIMIT, CatchUp, Due, Overlap, Said, Terms, UnixMs};
use serde::Deserialize;

/// How many occurrences `show` tells.
const TOLD: usize = 3;

/// Options of `schedule`, and fields of a bulk line.
#[derive(Args, Clone, Default, PartialEq)]
pub struct RecurrenceOptions {
    /// Again and again, this far apart, such as 15m; the first time when --in or --at say, else after one period
    #[arg(long, value_name = "DUR", conflicts_with_all = ["cron", "file"])]
    pub every: Option<String>,
    /// Again and again, by this expression: minute hour day month weekday, with six fields the second first; or @daily
    #[arg(long, value_name = "EXPR", conflicts_with = "file")]
    pub cron: Option<String>,
    /// Time zone of the expression, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub tz: Option<String>,
    /// No occurrence after this moment
    #[arg(long, value_name = "RFC3339", conflicts_with = "file")]
    pub until: Option<String>,
    /// So many occurrences
    #[arg(long, value_name = "N", conflicts_with_all = ["until", "file"])]
    pub times: Option<u32>,
    /// What becomes of occurrences that nobody ran in time [default: skip]
    #[arg(long, value_enum, conflicts_with = "file")]
    pub catch_up: Option<CatchUpArg>,
    /// How many of them `all` makes up for [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=i64::from(CATCH_UP_LIMIT)))]
    pub catch_up_max: Option<u32>,
    /// Whether the next one waits for the one before [default: skip]
    #[arg(long, value_enum, conflicts_with = "file")]
    pub overlap: Option<OverlapArg>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUpArg {
    /// They are left out
    Skip,
    /// One run stands for all of them
    Once,
    /// Each is run, one after another
    All,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlapArg {
    /// The next one is armed when this one has ended
    Skip,
    /// Each is a task of its own
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
    /// The recurrence that is asked for, if one is; `first` is what else was said about when.
    pub fn resolve(self, first: Option<Due>, now: UnixMs) -> Result<Option<Recurrence>, String> {
        if !self.is_recurring() {
            return match self {
                said if said == Self::default() => Ok(None),
                _ => {
                    Err("expected `every` or `cron` beside what is said about a series".to_owned())
                }
            };
        }
        let said = Said {
            every: self.every.as_deref(),
            cron: self.cron.as_deref(),
            tz: self.tz.as_deref(),
        };
        let rule = said.rule().map_err(|error| error.to_string())?;
        let until = self.until.as_deref().map(Due::parse_moment).transpose();
        let until = until.map_err(|error| format!("`until`: {error}"))?;
        let terms = Terms {
            start: first.map(|first| first.resolve(now)),
            until: until.map(|until| until.resolve(now)),
            times: self.times,
            catch_up: self.catch_up.map(CatchUp::from),
            catch_up_max: self.catch_up_max,
            overlap: self.overlap.map(Overlap::from),
        };
        let recurrence = terms.apply(rule).map_err(|error| error.to_string())?;
        Ok(Some(recurrence))
    }

    /// Whether it is to come again.
    pub fn is_recurring(&self) -> bool {
        self.every.is_some() || self.cron.is_some()
    }
}

/// How a task comes again, for people; what cannot be read says why.
pub fn summary(stored: &str) -> String {
    match stored.parse::<Recurrence>() {
        Ok(recurrence) => recurrence.summary(),
        Err(error) => error.to_string(),
    }
}

/// The next occurrences of a task that comes again and has not ended.
pub fn occurrences(task: &TaskRecord) -> Vec<UnixMs> {
    let recurrence = task.recurrence.as_deref().map(str::parse::<Recurrence>);
    let Some(Ok(recurrence)) = recurrence else {
        return Vec::new();
    };
    if task.state.is_finished() {
        return Vec::new();
    }
    let mut occurrences = vec![task.due];
    let mut last = recurrence.goes_on_behind(task.due);
    while occurrences.len() < TOLD
        && let Some(next) = recurrence.next(last)
    {
        occurrences.push(next);
        last = next;
    }
    occurrences
}
