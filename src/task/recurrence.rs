//! How a task comes again: every so often, or by a cron expression.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cron::CronRule;
use super::{DELAY_MAX, Due, UnixMs, parse_length};

/// The shortest time from one occurrence to the next.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// How many missed occurrences [`CatchUp::All`] makes up for, unless it is told otherwise.
pub const CATCH_UP_MAX: u32 = 1_000;

/// The most that it can be told: they are counted one by one, whenever a run of the series ends.
pub const CATCH_UP_LIMIT: u32 = 10_000;

/// Most occurrences that [`Recurrence::times`] counts off.
pub const TIMES_MAX: u32 = 10_000;

/// Time zone of a cron expression that names none.
const UTC: &str = "UTC";

/// How a task comes again.
///
/// Occurrences have fixed times: those of `every` are its start plus whole periods, so that nothing drifts; without a start
/// they are counted from 1970-01-01T00:00:00Z. Those of a cron expression are wall times in a time zone.
///
/// Its text, which it is stored as, is JSON; [`FromStr`] and [`Display`](fmt::Display) are inverse.
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
    /// Behind this moment the series goes on, if somebody moved an occurrence, or had one run besides.
    moved_from: Option<UnixMs>,
    /// A configuration wants it, at every start of a daemon.
    standing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Every(Duration),
    Cron(Arc<CronRule>),
}

/// What becomes of occurrences that nobody ran in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// They are left out.
    #[default]
    Skip,
    /// One run stands for all of them.
    Once,
    /// Each is run, one after another.
    All,
}

/// Whether an occurrence waits for the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The next one is armed when this one has ended; what fell due meanwhile is a missed one.
    #[default]
    Skip,
    /// Each is a task of its own.
    Allow,
}

impl Recurrence {
    /// Every `period`, in whole milliseconds.
    ///
    /// # Errors
    /// [`RecurrenceError::Every`] for less than [`EVERY_MIN`] or more than [`DELAY_MAX`].
    pub fn every(period: Duration) -> Result<Self, RecurrenceError> {
        if !(EVERY_MIN..=DELAY_MAX).contains(&period) {
            return Err(RecurrenceError::Every);
        }
        Ok(Self::of(Rule::Every(Duration::from_millis(
            period.as_millis() as u64,
        ))))
    }

    /// By a cron expression, in UTC: `minute hour day month weekday`, with six fields the second first, or a name such as `@daily`.
    ///
    /// # Errors
    /// [`RecurrenceError::Cron`] names the field that does not fit.
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
            standing: false,
        }
    }

    /// Its cron expression is meant in this time zone, an IANA name.
    ///
    /// # Errors
    /// [`RecurrenceError::Zone`] for a name that nobody knows; [`RecurrenceError::ZoneOfEvery`] where there is no cron expression.
    pub fn in_zone(self, name: &str) -> Result<Self, RecurrenceError> {
        let Rule::Cron(rule) = &self.rule else {
            return Err(RecurrenceError::ZoneOfEvery);
        };
        let rule = Rule::Cron(Arc::new(CronRule::parse(rule.text(), name)?));
        Ok(Self { rule, ..self })
    }

    /// No occurrence before this moment; the periods of `every` are counted from it.
    #[must_use]
    pub fn starting(self, start: UnixMs) -> Self {
        Self {
            start: Some(start),
            ..self
        }
    }

    /// No occurrence after this moment.
    #[must_use]
    pub fn until(self, until: UnixMs) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    /// So many occurrences, counted on the calendar from when it is created: one that is missed or fails counts, too.
    ///
    /// # Errors
    /// [`RecurrenceError::Times`] for none, or more than [`TIMES_MAX`].
    pub fn times(self, times: u32) -> Result<Self, RecurrenceError> {
        match (1..=TIMES_MAX).contains(&times) {
            true => Ok(Self {
                times: Some(times),
                ..self
            }),
            false => Err(RecurrenceError::Times),
        }
    }

    /// What becomes of occurrences that nobody ran in time.
    #[must_use]
    pub fn catch_up(self, catch_up: CatchUp) -> Self {
        Self { catch_up, ..self }
    }

    /// How many of them [`CatchUp::All`] makes up for: the latest. At least 1, and at most [`CATCH_UP_LIMIT`].
    #[must_use]
    pub fn catch_up_max(self, occurrences: u32) -> Self {
        Self {
            catch_up_max: occurrences.clamp(1, CATCH_UP_LIMIT),
            ..self
        }
    }

    /// Whether an occurrence waits for the one before.
    #[must_use]
    pub fn overlap(self, overlap: Overlap) -> Self {
        Self { overlap, ..self }
    }

    /// Whether each occurrence is a task of its own.
    pub fn may_overlap(&self) -> bool {
        self.overlap == Overlap::Allow
    }

    pub(super) fn catches_up(&self) -> (CatchUp, u32) {
        (self.catch_up, self.catch_up_max)
    }

    /// No occurrence before this moment, if one was said.
    pub(crate) fn start(&self) -> Option<UnixMs> {
        self.start
    }

    /// Behind this moment the series goes on, if somebody moved an occurrence.
    pub(super) fn moved_from(&self) -> Option<UnixMs> {
        self.moved_from
    }

    /// Notes that the occurrence at `due` was moved: the series goes on behind it. Only the first move counts. A millisecond
    /// less, and that occurrence comes all the same.
    #[must_use]
    pub fn moved(self, due: UnixMs) -> Self {
        Self {
            moved_from: self.moved_from.or(Some(due)),
            ..self
        }
    }

    /// Notes that a configuration wants it at every start: its row is kept when it has ended, since without it the next
    /// start would begin it anew.
    #[must_use]
    pub fn standing(self) -> Self {
        Self {
            standing: true,
            ..self
        }
    }

    /// Whether a configuration wants it, or did once.
    pub fn is_standing(&self) -> bool {
        self.standing
    }

    /// As it is after that occurrence.
    #[must_use]
    pub fn settled(self) -> Self {
        Self {
            moved_from: None,
            ..self
        }
    }

    /// The first occurrence strictly after this moment; `None`: there is none.
    ///
    /// Its work is bounded: nothing beyond the year 2200 is looked for.
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

    /// Whether this very moment is an occurrence.
    pub fn has(&self, moment: UnixMs) -> bool {
        self.next(UnixMs(moment.0.saturating_sub(1))) == Some(moment)
    }

    /// As it begins now: `every` counts from now unless it has a start, and [`times`](Self::times) become a last moment.
    #[must_use]
    pub fn anchored(mut self, now: UnixMs) -> Self {
        let behind = self.begins_behind(now);
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

    /// With the start of `stored`, if that has the same rule and none was said.
    #[must_use]
    pub fn starting_like(self, stored: &Self) -> Self {
        let start = stored.start.filter(|_| self.rule == stored.rule);
        Self {
            start: self.start.or(start),
            ..self
        }
    }

    /// Whether `self`, as it is wanted, is what `stored` has become. A start or a number of times that was not said, or was
    /// said before, makes no difference, nor who wants it.
    pub fn is_same_as(&self, stored: &Self) -> bool {
        let like_stored = Self {
            start: self.start.or(stored.start),
            until: match self.times {
                Some(_) => stored.until,
                None => self.until,
            },
            times: None,
            moved_from: stored.moved_from,
            standing: stored.standing,
            ..self.clone()
        };
        like_stored == *stored
    }

    /// For people: `every 15m`, `cron 0 9 * * Mon-Fri (Europe/Berlin)`, and what differs from the usual.
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

/// The JSON of a recurrence, in the ledger as in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tz: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    catch_up: CatchUp,
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up_max: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    overlap: Overlap,
    /// Milliseconds; written by the statement that moves an occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<i64>,
    /// Looked for by the statements that prune.
    #[serde(default, skip_serializing_if = "is_default")]
    standing: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (every, cron, tz) = match &self.rule {
            Rule::Every(period) => (Some(span(*period)), None, None),
            Rule::Cron(rule) => {
                let zone = rule.zone_name();
                let zone = (zone != UTC).then(|| zone.to_owned());
                (None, Some(rule.text().to_owned()), zone)
            }
        };
        let stored = Stored {
            every,
            cron,
            tz,
            start: self.start.map(|start| start.to_string()),
            until: self.until.map(|until| until.to_string()),
            times: self.times,
            catch_up: self.catch_up,
            catch_up_max: (self.catch_up_max != CATCH_UP_MAX).then_some(self.catch_up_max),
            overlap: self.overlap,
            moved_from: self.moved_from.map(|moment| moment.0),
            standing: self.standing,
        };
        f.write_str(&serde_json::to_string(&stored).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Recurrence {
    type Err = RecurrenceError;

    fn from_str(text: &str) -> Result<Self, RecurrenceError> {
        let Stored {
            every,
            cron,
            tz,
            start,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
            moved_from,
            standing,
        } = serde_json::from_str(text).map_err(|error| RecurrenceError::Json(error.to_string()))?;
        let said = Said {
            every: every.as_deref(),
            cron: cron.as_deref(),
            tz: tz.as_deref(),
        };
        let mut recurrence = said.rule()?;
        recurrence.start = start.as_deref().map(moment).transpose()?;
        recurrence.until = until.as_deref().map(moment).transpose()?;
        if let Some(times) = times {
            recurrence = recurrence.times(times)?;
        }
        if let Some(occurrences) = catch_up_max {
            recurrence = recurrence.catch_up_max(occurrences);
        }
        Ok(Self {
            moved_from: moved_from.map(UnixMs),
            standing,
            ..recurrence.catch_up(catch_up).overlap(overlap)
        })
    }
}

/// A rule as people say it, in a file or on the command line.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// A duration such as `15m`.
    pub every: Option<&'a str>,
    /// A cron expression.
    pub cron: Option<&'a str>,
    /// An IANA time zone, for the latter.
    pub tz: Option<&'a str>,
}

impl Said<'_> {
    /// The recurrence, with nothing said but this.
    ///
    /// # Errors
    /// [`RecurrenceError`] says what was expected.
    pub fn rule(self) -> Result<Recurrence, RecurrenceError> {
        let recurrence = match (self.every, self.cron) {
            (Some(every), None) => Recurrence::every(period(every)?)?,
            (None, Some(cron)) => Recurrence::cron(cron)?,
            _ => return Err(RecurrenceError::EveryOrCron),
        };
        match self.tz {
            Some(zone) => recurrence.in_zone(zone),
            None => Ok(recurrence),
        }
    }
}

fn period(text: &str) -> Result<Duration, RecurrenceError> {
    parse_length(text).map_err(|_| RecurrenceError::Every)
}

fn span(period: Duration) -> String {
    jiff::SignedDuration::try_from(period)
        .map_or_else(|_| String::new(), |span| format!("{span:#}"))
}

fn moment(text: &str) -> Result<UnixMs, RecurrenceError> {
    let due = Due::parse_moment(text).map_err(|error| RecurrenceError::Json(error.to_string()))?;
    Ok(due.resolve(UnixMs(0)))
}

/// Why a recurrence was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecurrenceError {
    /// Not a period.
    #[error(
        "`every` does not fit, expected a duration from 1s to 10 years with its unit, such as `30s`, `15m` or `1h 30m`"
    )]
    Every,
    /// Neither, or both.
    #[error("expected one of `every` and `cron`")]
    EveryOrCron,
    /// Not a cron expression.
    #[error("cron `{}`: {problem}", .text.escape_debug())]
    Cron {
        /// What was found.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Not a time zone.
    #[error("`{}` is not a time zone, expected an IANA name such as `Europe/Berlin`", .0.escape_debug())]
    Zone(String),
    /// A time zone without a cron expression.
    #[error("`tz` belongs to `cron`: `every` counts the time that passes, in no zone")]
    ZoneOfEvery,
    /// Too few or too many.
    #[error("`times` does not fit, expected 1 to {TIMES_MAX}")]
    Times,
    /// Two ends.
    #[error("expected at most one of `times` and `until`")]
    TimesAndUntil,
    /// None at all, or too many.
    #[error("`catch_up_max` does not fit, expected 1 to {CATCH_UP_LIMIT}")]
    CatchUpMax,
    /// A limit of what is not done.
    #[error(
        "`catch_up_max` belongs to `catch_up` = `all`: nothing else makes up for more than one"
    )]
    CatchUpMaxOfAll,
    /// It has no occurrence in the future.
    #[error("no occurrence lies ahead: it was to end before")]
    Over,
    /// The key leaves no room for the suffix of its occurrences.
    #[error(
        "key has {bytes} bytes, expected at most {max} where occurrences may overlap: each is a task of its own"
    )]
    KeyTooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// The key has a suffix already, where each occurrence is to have its own.
    #[error(
        "key ends in the suffix `@{0}`, expected none where occurrences may overlap: each has a suffix of its own"
    )]
    KeyHasSuffix(String),
    /// Not the JSON of one.
    #[error("recurrence cannot be read: {0}")]
    Json(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn every(text: &str) -> Recurrence {
        let said = Said {
            every: Some(text),
            cron: None,
            tz: None,
        };
        said.rule().unwrap()
    }

    fn cron(text: &str, zone: &str) -> Recurrence {
        Recurrence::cron(text).unwrap().in_zone(zone).unwrap()
    }

    /// Rules of all kinds that come often enough to be looked for millisecond by millisecond, or day by day.
    fn rules() -> impl Strategy<Value = Recurrence> {
        let crons = prop::sample::select(vec![
            "* * * * *",
            "*/7 * * * *",
            "15,45 */3 * * *",
            "30 2 * * *",
            "0,30 1-3 * * *",
            "0 9 * * Mon-Fri",
            "0 0 1 * *",
            "0 0 L * *",
            "0 12 15W * *",
            "0 0 29 2 *",
            "0 0 13 * Fri",
            "0 18 * * Fri#2",
            "*/20 * 2 * * *",
        ]);
        let zones = prop::sample::select(vec![
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "Australia/Lord_Howe",
            "Asia/Kathmandu",
            "Africa/Cairo",
        ]);
        let every = (1_000u64..100_000_000).prop_map(|ms| {
            let rule = Recurrence::every(Duration::from_millis(ms)).unwrap();
            rule.starting(UnixMs(1_700_000_000_000 + ms as i64 % 977))
        });
        prop_oneof![
            every,
            (crons, zones).prop_map(|(text, zone)| cron(text, zone))
        ]
    }

    /// From 2020 to 2040.
    fn moments() -> impl Strategy<Value = UnixMs> {
        (1_577_836_800_000i64..2_208_988_800_000).prop_map(UnixMs)
    }

    proptest! {
        #[test]
        fn the_next_occurrence_is_strictly_later(rule in rules(), after in moments()) {
            let next = rule.next(after).unwrap();
            prop_assert!(next > after);
            prop_assert!(rule.has(next));
        }

        #[test]
        fn no_occurrence_is_skipped(rule in rules(), after in moments(), between in 0.0f64..1.0) {
            let next = rule.next(after).unwrap();
            let inside = UnixMs(after.0 + ((next.0 - after.0 - 1) as f64 * between) as i64);
            prop_assert_eq!(rule.next(inside), Some(next), "asked at {}", inside);
        }

        #[test]
        fn what_is_shown_is_read_again(
            rule in rules(),
            until in prop::option::of(moments()),
            catch_up in prop::sample::select(vec![CatchUp::Skip, CatchUp::Once, CatchUp::All]),
            overlap in prop::sample::select(vec![Overlap::Skip, Overlap::Allow]),
            max in 1u32..5_000,
            moved in prop::option::of(moments()),
        ) {
            let mut rule = rule.catch_up(catch_up).catch_up_max(max).overlap(overlap);
            if let Some(until) = until {
                rule = rule.until(until);
            }
            if let Some(moved) = moved {
                rule = rule.moved(moved);
            }
            prop_assert_eq!(rule.to_string().parse::<Recurrence>(), Ok(rule));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}", cron in "[0-9*,/LW#A-Z -]{0,30}") {
            let _ = text.parse::<Recurrence>();
            let _ = Recurrence::cron(&cron);
        }
    }

    /// Against a search of every second, over the changes of the clocks.
    #[test]
    fn a_wall_time_is_found_wherever_a_slow_search_finds_it() {
        let changes = [
            ("Europe/Berlin", "2026-03-28T23:00:00Z"),
            ("Europe/Berlin", "2026-10-24T22:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T13:00:00Z"),
            ("America/New_York", "2026-11-01T04:00:00Z"),
        ];
        for (name, from) in changes {
            let zone = jiff::tz::TimeZone::get(name).unwrap();
            let start: jiff::Timestamp = from.parse().unwrap();
            // Every half hour runs by the time that passes: what the wall shows at any second is what counts.
            let rule = cron("*/30 * * * *", name);
            let slow: Vec<i64> = (1..=6 * 3600)
                .map(|second| start + jiff::SignedDuration::from_secs(second))
                .filter(|at| {
                    let wall = zone.to_datetime(*at);
                    wall.minute() % 30 == 0 && wall.second() == 0
                })
                .map(|at| at.as_millisecond())
                .collect();
            let mut found = Vec::new();
            let mut at = UnixMs(start.as_millisecond());
            while let Some(next) = rule.next(at)
                && next.0 <= start.as_millisecond() + 6 * 3_600_000
            {
                found.push(next.0);
                at = next;
            }
            assert_eq!(found, slow, "{name} {from}");
        }
    }

    #[test]
    fn periods_are_counted_from_the_start_and_never_drift() {
        let rule = every("15m").starting(UnixMs(1_000_007));
        assert_eq!(rule.next(UnixMs(0)), Some(UnixMs(1_000_007)));
        assert_eq!(rule.next(UnixMs(1_000_007)), Some(UnixMs(1_900_007)));
        assert_eq!(rule.next(UnixMs(100_000_000)), Some(UnixMs(100_000_007)));
        assert_eq!(every("15m").next(UnixMs(1)), Some(UnixMs(900_000)));
    }

    #[test]
    fn a_series_ends_at_its_last_moment_or_after_its_number_of_times() {
        let rule = every("1s").until(UnixMs(3_000));
        assert_eq!(rule.next(UnixMs(2_000)), Some(UnixMs(3_000)));
        assert_eq!(rule.next(UnixMs(3_000)), None);
        let three = every("1s").times(3).unwrap().anchored(UnixMs(500));
        assert_eq!(three.next(UnixMs(2_500)), Some(UnixMs(3_500)));
        assert_eq!(three.next(UnixMs(3_500)), None);
    }

    #[test]
    fn who_wants_a_series_is_stored_and_makes_no_other_one() {
        let (ours, theirs) = (every("15m").standing(), every("15m"));
        assert!(ours.to_string().contains("\"standing\":true"), "{ours}");
        assert!(!theirs.to_string().contains("standing"), "{theirs}");
        assert_eq!(ours.to_string().parse::<Recurrence>().unwrap(), ours);
        assert!(ours.is_same_as(&theirs) && theirs.is_same_as(&ours));
        assert!(ours.moved(UnixMs(1)).settled().is_standing());
    }

    #[test]
    fn a_period_may_be_said_in_days_as_any_length_of_time() {
        const DAY_MS: i64 = 86_400_000;
        for (text, days) in [("1d", 1), ("7d", 7), ("3650d", 3650), ("24h", 1)] {
            let rule = every(text);
            assert_eq!(rule.next(UnixMs(0)), Some(UnixMs(days * DAY_MS)), "{text}");
            assert_eq!(rule.to_string().parse::<Recurrence>(), Ok(rule));
        }
    }

    #[test]
    fn more_times_than_there_will_ever_be_end_with_the_last() {
        let leap = cron("0 0 29 2 *", "UTC").times(TIMES_MAX).unwrap();
        let leap = leap.anchored(UnixMs(0));
        assert_eq!(leap.until.map(|last| leap.next(last)), Some(None));
        assert!(leap.next(UnixMs(0)).is_some());
    }

    #[test]
    fn what_was_not_said_makes_no_other_series() {
        let stored = every("15m").anchored(UnixMs(77));
        assert!(every("15m").is_same_as(&stored));
        assert!(every("15m").starting(UnixMs(77)).is_same_as(&stored));
        assert!(every("15m").is_same_as(&stored.clone().moved(UnixMs(5))));
        assert!(!every("15m").starting(UnixMs(78)).is_same_as(&stored));
        assert!(!every("16m").is_same_as(&stored));
        assert!(!every("15m").catch_up(CatchUp::All).is_same_as(&stored));
        assert!(!every("15m").is_same_as(&stored.until(UnixMs(9))));
    }

    #[test]
    fn it_is_shown_as_people_would_say_it() {
        let rule = cron("0 9 * * Mon-Fri", "Europe/Berlin").catch_up(CatchUp::Once);
        assert_eq!(
            rule.summary(),
            "cron 0 9 * * Mon-Fri (Europe/Berlin), catches up once"
        );
        assert_eq!(
            rule.to_string(),
            r#"{"cron":"0 9 * * Mon-Fri","tz":"Europe/Berlin","catch_up":"once"}"#
        );
        assert_eq!(every("90m").summary(), "every 1h 30m");
    }

    #[test]
    fn what_does_not_fit_says_what_was_expected() {
        let refused = [
            (
                r#"{"every":"500ms"}"#,
                "`every` does not fit, expected a duration from 1s to 10 years with its unit, such as `30s`, `15m` or `1h 30m`",
            ),
            (
                r#"{"every":"15"}"#,
                "`every` does not fit, expected a duration from 1s to 10 years with its unit, such as `30s`, `15m` or `1h 30m`",
            ),
            (
                r#"{"every":"1s","cron":"@daily"}"#,
                "expected one of `every` and `cron`",
            ),
            (r#"{}"#, "expected one of `every` and `cron`"),
            (
                r#"{"every":"1s","tz":"Europe/Berlin"}"#,
                "`tz` belongs to `cron`: `every` counts the time that passes, in no zone",
            ),
            (
                r#"{"every":"1s","times":0}"#,
                "`times` does not fit, expected 1 to 10000",
            ),
        ];
        for (text, reason) in refused {
            let error = text.parse::<Recurrence>().unwrap_err();
            assert_eq!(error.to_string(), reason, "{text}");
        }
        let unknown = r#"{"evry":"1s"}"#.parse::<Recurrence>().unwrap_err();
        assert!(
            unknown
                .to_string()
                .starts_with("recurrence cannot be read: unknown field `evry`"),
            "{unknown}"
        );
    }
}
