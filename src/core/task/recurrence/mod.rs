//! Recurrence: at a fixed interval, or by a cron expression.

mod counting;
pub(super) mod cron;
mod error;
mod input;
mod json;
mod limits;
mod options;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::cron::CronRule;
use super::{DELAY_MAX, UnixMs};

pub use self::counting::GRACE_MAX;
pub use self::error::RecurrenceError;
pub use self::input::RecurrenceInput;
pub use self::limits::{CATCH_UP_LIMIT, CATCH_UP_MAX, EVERY_MIN, TIMES_MAX};
pub use self::options::RecurrenceOptions;

/// Default time zone of a cron expression.
const UTC: &str = "UTC";

/// Recurrence rule of a task, with its options.
///
/// Occurrences have fixed times. Those of `every` are its start plus whole periods, so they do not drift; without a
/// start they count from 1970-01-01T00:00:00Z. Those of a cron expression are wall times in a time zone.
///
/// The text form, which is stored, is JSON. [`FromStr`](std::str::FromStr) and [`Display`](std::fmt::Display) are
/// inverse.
///
/// ```
/// use lapsed::task::{Recurrence, UnixMs};
/// use std::time::Duration;
///
/// let every = Recurrence::every(Duration::from_secs(900))?;
/// assert_eq!(every.next(UnixMs(1_000)), Some(UnixMs(900_000)));
/// let nine = Recurrence::cron("0 9 * * Mon-Fri")?.in_zone("Europe/Berlin")?;
/// let friday: UnixMs = "2026-11-20T08:00:00Z".parse::<jiff::Timestamp>().map(|at| UnixMs(at.as_millisecond())).unwrap();
/// assert_eq!(nine.next(friday).unwrap().to_string(), "2026-11-23T08:00:00.000Z");
/// assert_eq!(nine.to_string().parse::<Recurrence>()?, nine);
/// # Ok::<(), lapsed::task::RecurrenceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recurrence {
    rule: Rule,
    start: Option<UnixMs>,
    until: Option<UnixMs>,
    times: Option<u32>,
    catch_up: CatchUp,
    catch_up_max: u32,
    overlap: Overlap,
    /// The series continues after this moment, if an occurrence was moved or got an extra run.
    moved_from: Option<UnixMs>,
    /// True if a configuration declares it, so that each start of a daemon creates it.
    configured: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Every(Duration),
    Cron(Arc<CronRule>),
}

/// How missed occurrences are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// They are skipped.
    #[default]
    Skip,
    /// One run replaces all of them.
    Once,
    /// Each is run, in order.
    All,
}

/// Whether an occurrence waits for the end of the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It waits. The next occurrence is armed when this one has ended; those due meanwhile are missed.
    #[default]
    Skip,
    /// It does not wait. Each occurrence is a separate task.
    Allow,
}

/// What a recurrence repeats by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats<'a> {
    /// A length of time.
    Every(Duration),
    /// A cron expression on the clocks of a time zone.
    Cron {
        /// The expression.
        text: &'a str,
        /// The name of the zone.
        zone: &'a str,
    },
}

impl Recurrence {
    /// What it repeats by.
    pub fn repeats(&self) -> Repeats<'_> {
        match &self.rule {
            Rule::Every(period) => Repeats::Every(*period),
            Rule::Cron(rule) => Repeats::Cron {
                text: rule.text(),
                zone: rule.zone_name(),
            },
        }
    }

    /// No occurrence is later than this.
    pub fn end(&self) -> Option<UnixMs> {
        self.until
    }

    /// Creates a recurrence with a period, in whole milliseconds.
    ///
    /// # Errors
    /// Returns [`RecurrenceError::Every`] for less than [`EVERY_MIN`] or more than [`DELAY_MAX`].
    pub fn every(period: Duration) -> Result<Self, RecurrenceError> {
        if !(EVERY_MIN..=DELAY_MAX).contains(&period) {
            return Err(RecurrenceError::Every);
        }
        Ok(Self::of(Rule::Every(Duration::from_millis(
            period.as_millis() as u64,
        ))))
    }

    /// Creates a recurrence from a cron expression in UTC: `minute hour day month weekday`, with six fields the second
    /// first, or a name such as `@daily`.
    ///
    /// # Errors
    /// Returns [`RecurrenceError::Cron`], which names the invalid field.
    pub fn cron(text: &str) -> Result<Self, RecurrenceError> {
        Ok(Self::of(Rule::Cron(Arc::new(CronRule::parse(text, UTC)?))))
    }

    fn of(rule: Rule) -> Self {
        Self {
            rule,
            start: None,
            until: None,
            times: None,
            catch_up: CatchUp::default(),
            catch_up_max: CATCH_UP_MAX,
            overlap: Overlap::default(),
            moved_from: None,
            configured: false,
        }
    }

    /// Sets the time zone of the cron expression, an IANA name.
    ///
    /// # Errors
    /// Returns [`RecurrenceError::Zone`] for an unknown name, and [`RecurrenceError::ZoneOfEvery`] without a cron
    /// expression.
    pub fn in_zone(self, name: &str) -> Result<Self, RecurrenceError> {
        let Rule::Cron(rule) = &self.rule else {
            return Err(RecurrenceError::ZoneOfEvery);
        };
        let rule = Rule::Cron(Arc::new(CronRule::parse(rule.text(), name)?));
        Ok(Self { rule, ..self })
    }

    /// Sets the start: no occurrence is before it, and the periods of `every` count from it.
    #[must_use]
    pub fn starting(self, start: UnixMs) -> Self {
        Self {
            start: Some(start),
            ..self
        }
    }

    /// Sets the end: no occurrence is after it.
    #[must_use]
    pub fn until(self, until: UnixMs) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    /// Ends the series after this many occurrences, counted from its creation. Missed and failed ones count.
    ///
    /// # Errors
    /// Returns [`RecurrenceError::Times`] for 0, or more than [`TIMES_MAX`].
    pub fn times(self, times: u32) -> Result<Self, RecurrenceError> {
        match (1..=TIMES_MAX).contains(&times) {
            true => Ok(Self {
                times: Some(times),
                ..self
            }),
            false => Err(RecurrenceError::Times),
        }
    }

    /// Sets how missed occurrences are treated.
    #[must_use]
    pub fn catch_up(self, catch_up: CatchUp) -> Self {
        Self { catch_up, ..self }
    }

    /// Sets how many missed occurrences [`CatchUp::All`] runs, the latest. Clamped to 1 to [`CATCH_UP_LIMIT`].
    #[must_use]
    pub fn catch_up_max(self, occurrences: u32) -> Self {
        Self {
            catch_up_max: occurrences.clamp(1, CATCH_UP_LIMIT),
            ..self
        }
    }

    /// Sets whether an occurrence waits for the end of the previous one.
    #[must_use]
    pub fn overlap(self, overlap: Overlap) -> Self {
        Self { overlap, ..self }
    }

    /// True if each occurrence is a separate task.
    pub fn may_overlap(&self) -> bool {
        self.overlap == Overlap::Allow
    }

    pub(super) fn catches_up(&self) -> (CatchUp, u32) {
        (self.catch_up, self.catch_up_max)
    }

    /// Returns the start, if one is set.
    pub fn start(&self) -> Option<UnixMs> {
        self.start
    }

    /// Returns the time after which the series continues, if an occurrence was moved.
    fn moved_from(&self) -> Option<UnixMs> {
        self.moved_from
    }

    /// Notes that the occurrence at `due` was moved, so that the series continues after it. Only the first move counts.
    #[must_use]
    pub fn moved(self, due: UnixMs) -> Self {
        Self {
            moved_from: self.moved_from.or(Some(due)),
            ..self
        }
    }

    /// Marks it as declared by a configuration. Pruning keeps its finished row, because the next start of a daemon
    /// would create the task again otherwise.
    #[must_use]
    pub fn configured(self) -> Self {
        Self {
            configured: true,
            ..self
        }
    }

    /// True if a configuration declares it, or once did.
    pub fn is_configured(&self) -> bool {
        self.configured
    }

    /// Returns the recurrence after the moved occurrence has ended.
    #[must_use]
    pub fn settled(self) -> Self {
        Self {
            moved_from: None,
            ..self
        }
    }

    /// Returns the first occurrence strictly after `after`, or `None` if there is none.
    ///
    /// The search is bounded: it ends with the year 2200.
    pub fn next(&self, after: UnixMs) -> Option<UnixMs> {
        let after = match self.start {
            Some(start) => after.max(UnixMs(start.0.saturating_sub(1))),
            None => after,
        };
        let next = match &self.rule {
            Rule::Every(period) => {
                let (start, period) =
                    (self.start.unwrap_or(UnixMs(0)).0, period.as_millis() as i64);
                let periods = after.0.saturating_sub(start).div_euclid(period) + 1;
                UnixMs(start.saturating_add(periods.saturating_mul(period)))
            }
            Rule::Cron(rule) => rule.next(after)?,
        };
        (next > after && self.until.is_none_or(|until| next <= until)).then_some(next)
    }

    /// Lower bound of the time between two occurrences, except at clock changes.
    pub(in crate::task) fn closest(&self) -> Duration {
        match &self.rule {
            Rule::Every(period) => *period,
            Rule::Cron(rule) => rule.closest(),
        }
    }

    /// True if `moment` is an occurrence.
    pub fn has(&self, moment: UnixMs) -> bool {
        self.next(UnixMs(moment.0.saturating_sub(1))) == Some(moment)
    }

    /// Resolves the recurrence at its creation: `every` counts from `now` unless it has a start, and
    /// [`times`](Self::times) become an end.
    #[must_use]
    pub fn anchored(mut self, now: UnixMs) -> Self {
        let behind = self.starts_after(now);
        if let (Rule::Every(_), None) = (&self.rule, self.start) {
            self.start = Some(now);
        }
        if let Some(times) = self.times.take() {
            let mut last = behind;
            for _ in 0..times {
                match self.next(last) {
                    Some(next) => last = next,
                    None => break,
                }
            }
            self.until = Some(last);
        }
        self
    }

    /// Takes the start of `stored` if both have the same rule and `self` has no start.
    #[must_use]
    pub fn starting_like(self, stored: &Self) -> Self {
        let start = stored.start.filter(|_| self.rule == stored.rule);
        Self {
            start: self.start.or(start),
            ..self
        }
    }

    /// True if `stored` is what `self` became at its creation. Ignores a start or a number of times that `self` does
    /// not set or that has not changed, and the mark of a configuration.
    pub fn is_same_as(&self, stored: &Self) -> bool {
        let like_stored = Self {
            start: self.start.or(stored.start),
            until: match self.times {
                Some(_) => stored.until,
                None => self.until,
            },
            times: None,
            moved_from: stored.moved_from,
            configured: stored.configured,
            ..self.clone()
        };
        like_stored == *stored
    }

    /// Describes it: `every 15m`, `cron 0 9 * * Mon-Fri (Europe/Berlin)`, and options that differ from the defaults.
    pub fn summary(&self) -> String {
        let mut text = match &self.rule {
            Rule::Every(period) => format!("every {}", span(*period)),
            Rule::Cron(rule) => format!("cron {} ({})", rule.text(), rule.zone_name()),
        };
        let moment = |name: &str, moment: UnixMs| format!(", {name} {moment}");
        text += &self.start.map_or_else(String::new, |at| moment("from", at));
        text += &self
            .until
            .map_or_else(String::new, |at| moment("until", at));
        text += match self.catch_up {
            CatchUp::Skip => "",
            CatchUp::Once => ", catches up once",
            CatchUp::All => ", catches up on all",
        };
        text += match self.overlap {
            Overlap::Skip => "",
            Overlap::Allow => ", may overlap",
        };
        text
    }
}

fn span(period: Duration) -> String {
    jiff::SignedDuration::try_from(period)
        .map_or_else(|_| String::new(), |span| format!("{span:#}"))
}

#[cfg(test)]
mod tests;
