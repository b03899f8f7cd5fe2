//! Cron expressions, in a time zone: read strictly, and what their hours mean when the clocks change.

use std::fmt;
use std::time::Duration;

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan as _};

use super::{RecurrenceError, UnixMs};

/// Behind the last field: years beyond are not searched, so that an expression that never comes true is found out soon.
const YEARS: &str = "1970-2200";

/// A cron expression in a time zone.
#[derive(Clone)]
pub(super) struct CronRule {
    text: String,
    zone_name: String,
    zone: TimeZone,
    cron: Cron,
    clock: Clock,
    closest: Duration,
}

/// What the hour field means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// Hours are named, such as `2` or `9-17`: each wall time once a day. One that does not exist comes when the clocks
    /// have been put forward, one that exists twice comes the first time.
    Wall,
    /// Every hour, or every n-th (`*`, `*/2`): what the clock on the wall shows, whenever it shows it. A skipped hour
    /// has none, a repeated one has them again.
    Elapsed,
}

impl CronRule {
    /// Reads five fields (minute, hour, day, month, weekday), or six (second first), or a name such as `@daily`.
    pub fn parse(text: &str, zone_name: &str) -> Result<Self, RecurrenceError> {
        let zone = zone(zone_name)?;
        let refused = |problem: String| RecurrenceError::Cron {
            text: text.to_owned(),
            problem,
        };
        let fields = fields(text).map_err(refused)?;
        for (field, found) in FIELDS.iter().zip(&fields) {
            field.check(found).map_err(refused)?;
        }
        let cron: Cron = format!("{} {YEARS}", fields.join(" "))
            .parse()
            .map_err(|error: croner::errors::CronError| refused(error.to_string()))?;
        let clock = match fields[2].split(',').any(|item| item.starts_with('*')) {
            true => Clock::Elapsed,
            false => Clock::Wall,
        };
        let is_one_second = fields[0].bytes().all(|byte| byte.is_ascii_digit());
        let closest = Duration::from_secs(if is_one_second { 60 } else { 1 });
        let rule = Self {
            closest,
            text: text.trim().to_owned(),
            zone_name: zone_name.to_owned(),
            zone,
            cron,
            clock,
        };
        match rule.next(UnixMs(0)) {
            Some(_) => Ok(rule),
            None => Err(refused("never comes true".to_owned())),
        }
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The IANA name of its time zone.
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// As [`Recurrence::closest`](super::Recurrence::closest).
    pub fn closest(&self) -> Duration {
        self.closest
    }

    /// The first occurrence strictly after this moment.
    pub fn next(&self, after: UnixMs) -> Option<UnixMs> {
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + 1));
        let after = Timestamp::from_millisecond(after.0).ok()?;
        let next = match self.clock {
            Clock::Wall => self.next_by_wall(after),
            Clock::Elapsed => self.next_by_elapsed(after),
        };
        next.map(|next| UnixMs(next.as_millisecond()))
    }

    /// Wall times in their order are moments in theirs, or the same one: whoever goes on from the wall time of `after`
    /// misses none.
    fn next_by_wall(&self, after: Timestamp) -> Option<Timestamp> {
        let mut wall = self.zone.to_datetime(after);
        loop {
            wall = self.next_wall(wall, false)?;
            let moment = self.moment_of(wall)?;
            if moment > after {
                return Some(moment);
            }
        }
    }

    /// The only moment of a wall time; its first, if it comes twice; the end of the gap it lies in, if it does not exist.
    fn moment_of(&self, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        let in_gap = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
        let earlier = ambiguous.earlier().ok()?;
        match in_gap {
            true => Some(self.zone.following(earlier).next()?.timestamp()),
            false => Some(earlier),
        }
    }

    /// From one change of the clocks to the next they run evenly: within such a stretch the next wall time is the next
    /// moment.
    fn next_by_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(from);
            let wall = self.next_wall(offset.to_datetime(from), inclusive)?;
            let moment = offset.to_timestamp(wall).ok()?;
            match self.zone.following(from).next() {
                Some(change) if change.timestamp() <= moment => {
                    (from, inclusive) = (change.timestamp(), true);
                }
                _ => return Some(moment),
            }
        }
    }

    fn next_wall(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let whole = from.checked_sub(i64::from(from.subsec_nanosecond()).nanoseconds());
        self.cron.find_next_occurrence(&whole.ok()?, inclusive).ok()
    }
}

impl PartialEq for CronRule {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.zone_name) == (&other.text, &other.zone_name)
    }
}

impl Eq for CronRule {}

impl fmt::Debug for CronRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronRule({} {})", self.text, self.zone_name)
    }
}

#[cfg(test)]
std::thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How often this thread has looked for an occurrence.
#[cfg(test)]
pub(super) fn steps() -> u64 {
    STEPS.with(std::cell::Cell::get)
}

/// The system's time zones, and where it has none, those that are built in.
fn zone(name: &str) -> Result<TimeZone, RecurrenceError> {
    TimeZone::get(name)
        .or_else(|_| TimeZoneDatabase::bundled().get(name))
        .map_err(|_| RecurrenceError::Zone(name.to_owned()))
}

const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * SUN"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Six fields, the second first.
fn fields(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    let plain = if text.starts_with('@') {
        let named = NAMED
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map(|(_, fields)| *fields).ok_or_else(|| {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            format!("expected one of {}", names.join(" "))
        })?
    } else {
        text
    };
    let mut fields: Vec<String> = plain
        .split_ascii_whitespace()
        .map(str::to_ascii_uppercase)
        .collect();
    match fields.len() {
        5 => fields.insert(0, "0".to_owned()),
        6 => {}
        count => {
            return Err(format!(
                "has {count} fields, expected 5 (minute hour day month weekday) or 6 (second first)"
            ));
        }
    }
    Ok(fields)
}

/// What may stand in a field.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Words for its values, from `min` on.
    words: &'static [&'static str],
    kind: Kind,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Plain,
    DayOfMonth,
    Weekday,
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 6] = [
    Field::plain("second", 0, 59, &[]),
    Field::plain("minute", 0, 59, &[]),
    Field::plain("hour", 0, 23, &[]),
    Field {
        kind: Kind::DayOfMonth,
        ..Field::plain("day", 1, 31, &[])
    },
    Field::plain("month", 1, 12, &MONTHS),
    Field {
        kind: Kind::Weekday,
        ..Field::plain("weekday", 0, 7, &WEEKDAYS)
    },
];

impl Field {
    const fn plain(name: &'static str, min: u8, max: u8, words: &'static [&'static str]) -> Self {
        Self {
            name,
            min,
            max,
            words,
            kind: Kind::Plain,
        }
    }

    /// Stricter than the parser behind it, which passes over empty items and takes words of any field.
    fn check(&self, found: &str) -> Result<(), String> {
        let no_matter = found == "?" && self.kind != Kind::Plain;
        match no_matter || found.split(',').all(|item| self.takes(item)) {
            true => Ok(()),
            false => Err(format!(
                "{} `{}` does not fit, expected {}",
                self.name,
                found.escape_debug(),
                self.expected()
            )),
        }
    }

    fn takes(&self, item: &str) -> bool {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        if let Some(step) = step {
            let fits = number(step).is_some_and(|step| (1..=self.max).contains(&step));
            return fits && (range == "*" || self.is_range(range));
        }
        range == "*" || self.is_range(range) || self.value(range).is_some() || self.is_special(item)
    }

    fn is_range(&self, range: &str) -> bool {
        let Some((first, last)) = range.split_once('-') else {
            return false;
        };
        // A week that ends on Sunday.
        let last = match (&self.kind, last) {
            (Kind::Weekday, "SUN") => Some(7),
            (_, last) => self.value(last),
        };
        self.value(first)
            .zip(last)
            .is_some_and(|(first, last)| first <= last)
    }

    fn is_special(&self, item: &str) -> bool {
        let day = |text: &str| self.value(text).is_some();
        match self.kind {
            Kind::Plain => false,
            Kind::DayOfMonth => {
                matches!(item, "L" | "LW") || item.strip_suffix('W').is_some_and(day)
            }
            Kind::Weekday => {
                let nth = item.split_once('#').is_some_and(|(of, nth)| {
                    day(of) && number(nth).is_some_and(|nth| (1..=5).contains(&nth))
                });
                nth || item.strip_suffix('L').is_some_and(day)
            }
        }
    }

    fn value(&self, text: &str) -> Option<u8> {
        let word = self.words.iter().position(|word| *word == text);
        let value = match word {
            Some(nth) => self.min + nth as u8,
            None => number(text)?,
        };
        (self.min..=self.max).contains(&value).then_some(value)
    }

    fn expected(&self) -> String {
        let Self { min, max, .. } = self;
        let words = match (self.words.first(), self.words.last()) {
            (Some(first), Some(last)) => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        let special = match self.kind {
            Kind::Plain => "",
            Kind::DayOfMonth => ", `L`, `LW` or `15W`",
            Kind::Weekday => ", `5L` or `5#3`",
        };
        format!("{min} to {max}{words}, a range `a-b`, `*`, steps `*/n` or `a-b/n`{special}")
    }
}

/// One or two digits.
fn number(text: &str) -> Option<u8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
