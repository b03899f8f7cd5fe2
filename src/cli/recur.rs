//! How a task comes again, as people say it: options of `schedule`, fields of a bulk line, and what `show` tells.

use clap::{Args, ValueEnum};
use lapsed::Recurrence;
use lapsed::ledger::TaskRecord;
use lapsed::task::{CATCH_UP_LIMIT, CatchUp, Due, Overlap, Said, Terms, UnixMs};

/// How many occurrences `show` tells.
const TOLD: usize = 3;

/// Options of `schedule`.
#[derive(Args, Clone)]
pub struct Recur {
    /// Again and again, this far apart, such as 15m; the first time when --in or --at say, else after one period
    #[arg(long, value_name = "DUR", conflicts_with_all = ["cron", "file"])]
    every: Option<String>,
    /// Again and again, by this expression: minute hour day month weekday, with six fields the second first; or @daily
    #[arg(long, value_name = "EXPR", conflicts_with = "file")]
    cron: Option<String>,
    /// Time zone of the expression, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// No occurrence after this moment
    #[arg(long, value_name = "RFC3339", conflicts_with = "file")]
    until: Option<String>,
    /// So many occurrences
    #[arg(long, value_name = "N", conflicts_with_all = ["until", "file"])]
    times: Option<u32>,
    /// What becomes of occurrences that nobody ran in time [default: skip]
    #[arg(long, value_enum, conflicts_with = "file")]
    catch_up: Option<CatchUpArg>,
    /// How many of them `all` makes up for [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=i64::from(CATCH_UP_LIMIT)))]
    catch_up_max: Option<u32>,
    /// Whether the next one waits for the one before [default: skip]
    #[arg(long, value_enum, conflicts_with = "file")]
    overlap: Option<OverlapArg>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CatchUpArg {
    /// They are left out
    Skip,
    /// One run stands for all of them
    Once,
    /// Each is run, one after another
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum OverlapArg {
    /// The next one is armed when this one has ended
    Skip,
    /// Each is a task of its own
    Allow,
}

impl Recur {
    /// The recurrence that is asked for, if one is; `first` is what else was said about when.
    pub fn recurrence(self, first: Option<Due>, now: UnixMs) -> Result<Option<Recurrence>, String> {
        let fields = RecurFields {
            every: self.every,
            cron: self.cron,
            tz: self.tz,
            until: self.until,
            times: self.times,
            catch_up: self.catch_up.map(|catch_up| match catch_up {
                CatchUpArg::Skip => CatchUp::Skip,
                CatchUpArg::Once => CatchUp::Once,
                CatchUpArg::All => CatchUp::All,
            }),
            catch_up_max: self.catch_up_max,
            overlap: self.overlap.map(|overlap| match overlap {
                OverlapArg::Skip => Overlap::Skip,
                OverlapArg::Allow => Overlap::Allow,
            }),
        };
        fields.recurrence(first, now)
    }

    pub fn is_asked_for(&self) -> bool {
        self.every.is_some() || self.cron.is_some()
    }
}

/// The same, as a bulk line says it.
pub struct RecurFields {
    pub every: Option<String>,
    pub cron: Option<String>,
    pub tz: Option<String>,
    pub until: Option<String>,
    pub times: Option<u32>,
    pub catch_up: Option<CatchUp>,
    pub catch_up_max: Option<u32>,
    pub overlap: Option<Overlap>,
}

impl RecurFields {
    /// As [`Recur::recurrence`].
    pub fn recurrence(self, first: Option<Due>, now: UnixMs) -> Result<Option<Recurrence>, String> {
        let Self {
            every,
            cron,
            tz,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
        } = self;
        if every.is_none() && cron.is_none() {
            let said = tz.is_some()
                || until.is_some()
                || times.is_some()
                || catch_up.is_some()
                || catch_up_max.is_some()
                || overlap.is_some();
            return match said {
                true => {
                    Err("expected `every` or `cron` beside what is said about a series".to_owned())
                }
                false => Ok(None),
            };
        }
        let said = Said {
            every: every.as_deref(),
            cron: cron.as_deref(),
            tz: tz.as_deref(),
        };
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let rule = said.rule().map_err(|error| text(&error))?;
        let until = until.as_deref().map(Due::parse_moment).transpose();
        let until = until.map_err(|error| format!("`until`: {error}"))?;
        let terms = Terms {
            start: first.map(|first| first.resolve(now)),
            until: until.map(|until| until.resolve(now)),
            times,
            catch_up,
            catch_up_max,
            overlap,
        };
        terms.apply(rule).map(Some).map_err(|error| text(&error))
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
