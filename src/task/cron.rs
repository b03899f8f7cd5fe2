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
mod tests {
    use super::*;

    fn occurrences(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let rule = CronRule::parse(cron, zone).unwrap();
        let mut at = UnixMs(after.parse::<Timestamp>().unwrap().as_millisecond());
        let mut found = Vec::new();
        for _ in 0..count {
            at = rule.next(at).unwrap();
            let moment = Timestamp::from_millisecond(at.0).unwrap();
            found.push(
                moment
                    .to_zoned(rule.zone.clone())
                    .strftime("%Y-%m-%d %H:%M:%S%:z")
                    .to_string(),
            );
        }
        found
    }

    #[test]
    fn a_wall_time_that_does_not_exist_comes_when_the_clocks_have_been_put_forward() {
        // Berlin, 2026-03-29: 02:00 becomes 03:00.
        let found = occurrences("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
        assert_eq!(
            found,
            [
                "2026-03-28 02:30:00+01:00",
                "2026-03-29 03:00:00+02:00",
                "2026-03-30 02:30:00+02:00",
            ]
        );
        // Several of one gap are one moment, and so is one that exists there anyway.
        let found = occurrences("0,30 2-3 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", 3);
        assert_eq!(
            found,
            [
                "2026-03-29 03:00:00+02:00",
                "2026-03-29 03:30:00+02:00",
                "2026-03-30 02:00:00+02:00",
            ]
        );
    }

    #[test]
    fn a_wall_time_that_exists_twice_comes_the_first_time() {
        // Berlin, 2026-10-25: 03:00 becomes 02:00.
        let found = occurrences("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(
            found,
            ["2026-10-25 02:30:00+02:00", "2026-10-26 02:30:00+01:00"]
        );
        // Asked from within the second time, too.
        let found = occurrences("45 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00Z", 1);
        assert_eq!(found, ["2026-10-26 02:45:00+01:00"]);
    }

    #[test]
    fn what_comes_every_hour_follows_the_time_that_passes() {
        let gap = occurrences("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 2);
        assert_eq!(
            gap,
            ["2026-03-29 03:00:00+02:00", "2026-03-29 04:00:00+02:00"]
        );
        let overlap = occurrences("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3);
        assert_eq!(
            overlap,
            [
                "2026-10-25 02:30:00+02:00",
                "2026-10-25 02:30:00+01:00",
                "2026-10-25 03:30:00+01:00",
            ]
        );
    }

    #[test]
    fn a_day_that_a_country_left_out_comes_at_its_end() {
        // Samoa went from the 29th to the 31st of December 2011.
        let found = occurrences("0 12 * * *", "Pacific/Apia", "2011-12-29T22:30:00Z", 3);
        assert_eq!(
            found,
            [
                "2011-12-31 00:00:00+14:00",
                "2011-12-31 12:00:00+14:00",
                "2012-01-01 12:00:00+14:00",
            ]
        );
    }

    #[test]
    fn names_words_seconds_and_the_last_day_are_understood() {
        let after = "2026-01-01T00:00:00Z";
        let first = |cron| occurrences(cron, "UTC", after, 1).remove(0);
        assert_eq!(first("@daily"), "2026-01-02 00:00:00+00:00");
        assert_eq!(first("0 30 9 * * Mon-Fri"), "2026-01-01 09:30:00+00:00");
        assert_eq!(first("*/10 * * * * *"), "2026-01-01 00:00:10+00:00");
        assert_eq!(first("0 0 L * *"), "2026-01-31 00:00:00+00:00");
        assert_eq!(first("0 0 * * Fri#2"), "2026-01-09 00:00:00+00:00");
        assert_eq!(first("0 0 * * 5L"), "2026-01-30 00:00:00+00:00");
        assert_eq!(first("0 0 29 2 *"), "2028-02-29 00:00:00+00:00");
        assert_eq!(first("0 0 * JUL Sat-Sun"), "2026-07-04 00:00:00+00:00");
        // As cron has it: with both days given, either will do.
        assert_eq!(first("0 0 13 * Fri"), "2026-01-02 00:00:00+00:00");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_field_and_what_was_expected() {
        let refused = [
            (
                "0 9 * *",
                "has 4 fields, expected 5 (minute hour day month weekday) or 6 (second first)",
            ),
            (
                "61 9 * * *",
                "minute `61` does not fit, expected 0 to 59, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
            ),
            (
                "0 17-9 * * *",
                "hour `17-9` does not fit, expected 0 to 23, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
            ),
            (
                "0 9 32 * *",
                "day `32` does not fit, expected 1 to 31, a range `a-b`, `*`, steps `*/n` or `a-b/n`, `L`, `LW` or `15W`",
            ),
            (
                "0 9 * Mon *",
                "month `MON` does not fit, expected 1 to 12 or JAN to DEC, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
            ),
            (
                "0 9 * * 8",
                "weekday `8` does not fit, expected 0 to 7 or SUN to SAT, a range `a-b`, `*`, steps `*/n` or `a-b/n`, `5L` or `5#3`",
            ),
            (
                "5/10 * * * *",
                "minute `5/10` does not fit, expected 0 to 59, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
            ),
            (
                "1,,2 * * * *",
                "minute `1,,2` does not fit, expected 0 to 59, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
            ),
            (
                "@often",
                "expected one of @yearly @annually @monthly @weekly @daily @midnight @hourly",
            ),
            ("0 0 30 2 *", "never comes true"),
        ];
        for (text, problem) in refused {
            assert_eq!(
                CronRule::parse(text, "UTC").unwrap_err().to_string(),
                format!("cron `{text}`: {problem}"),
            );
        }
        assert_eq!(
            CronRule::parse("@daily", "Europe/Berln")
                .unwrap_err()
                .to_string(),
            "`Europe/Berln` is not a time zone, expected an IANA name such as `Europe/Berlin`"
        );
    }
}
