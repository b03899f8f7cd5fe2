//! The fields of a cron expression, parsed strictly into the wall times they match.

use jiff::civil::{Date, DateTime, Weekday};

use crate::task::quoted;

/// The last year that is searched. An expression without an occurrence until then is refused.
const LAST_YEAR: i16 = 2200;

const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * SUN"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Splits an expression into six upper-case fields, the second first.
pub fn split(text: &str) -> Result<[String; 6], String> {
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
    if fields.len() == 5 {
        fields.insert(0, "0".to_owned());
    }
    fields.try_into().map_err(|fields: Vec<String>| {
        format!(
            "has {} fields, expected 5 (minute hour day month weekday) or 6 (second first)",
            fields.len()
        )
    })
}

/// The wall times that an expression matches, in no time zone.
#[derive(Clone)]
pub struct WallTimes {
    seconds: Values,
    minutes: Values,
    hours: Values,
    days: Days,
    months: Values,
    weekdays: Weekdays,
}

impl WallTimes {
    /// Parses fields in the order of [`split`]. The error names the field and what it may contain.
    pub fn parse(
        [second, minute, hour, day, month, weekday]: &[String; 6],
    ) -> Result<Self, String> {
        Ok(Self {
            seconds: SECOND.parse_values(second)?,
            minutes: MINUTE.parse_values(minute)?,
            hours: HOUR.parse_values(hour)?,
            days: Days::parse(day)?,
            months: MONTH.parse_values(month)?,
            weekdays: Weekdays::parse(weekday)?,
        })
    }

    /// The first match at or after `from`, which has whole seconds; `None` if there is none until the last year.
    pub fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let (time, today) = (from.time(), from.date());
        let of_day = |date: Date, (hour, minute, second): (u8, u8, u8)| {
            date.at(hour as i8, minute as i8, second as i8, 0)
        };
        if self.matches(today) {
            let time = (time.hour(), time.minute(), time.second());
            let found = self.first_time_from((time.0 as u8, time.1 as u8, time.2 as u8));
            if let Some(time) = found {
                return Some(of_day(today, time));
            }
        }
        let date = self.first_date_from(today.tomorrow().ok()?)?;
        Some(of_day(date, self.first_time_from((0, 0, 0))?))
    }

    /// The first matching hour, minute and second of a day at or after the given ones.
    fn first_time_from(&self, (hour, minute, second): (u8, u8, u8)) -> Option<(u8, u8, u8)> {
        let (first_minute, first_second) =
            (self.minutes.first_from(0)?, self.seconds.first_from(0)?);
        let same_hour = self.hours.contains(hour);
        let same_minute = same_hour && self.minutes.contains(minute);
        let in_minute = || Some((hour, minute, self.seconds.first_from(second)?));
        let in_hour = || Some((hour, self.minutes.first_from(minute + 1)?, first_second));
        let in_day = || Some((self.hours.first_from(hour + 1)?, first_minute, first_second));
        let found = same_minute.then(in_minute).flatten();
        found
            .or_else(|| same_hour.then(in_hour).flatten())
            .or_else(in_day)
    }

    fn first_date_from(&self, from: Date) -> Option<Date> {
        let mut date = from;
        while date.year() <= LAST_YEAR {
            if !self.months.contains(date.month() as u8) {
                date = date.last_of_month().tomorrow().ok()?;
            } else if self.matches(date) {
                return Some(date);
            } else {
                date = date.tomorrow().ok()?;
            }
        }
        None
    }

    /// If both day fields restrict the date, one match is enough, as in Vixie cron.
    fn matches(&self, date: Date) -> bool {
        let by_day = || self.days.matches(date);
        let by_weekday = || self.weekdays.matches(date);
        let day = match (self.days.any, self.weekdays.any) {
            (true, true) => true,
            (true, false) => by_weekday(),
            (false, true) => by_day(),
            (false, false) => by_day() || by_weekday(),
        };
        day && self.months.contains(date.month() as u8)
    }
}

/// A set of values below 64: bit `n` is set if it contains `n`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Values(u64);

impl Values {
    fn insert(&mut self, value: u8) {
        self.0 |= 1 << value;
    }

    fn contains(self, value: u8) -> bool {
        self.0 & 1 << value != 0
    }

    /// The smallest value that is not below `least`, which is at most 63.
    fn first_from(self, least: u8) -> Option<u8> {
        let rest = self.0 & u64::MAX << least;
        (rest != 0).then(|| rest.trailing_zeros() as u8)
    }
}

/// The field for the day of the month.
#[derive(Debug, Clone, Default)]
struct Days {
    /// `*` or `?`: the date is not restricted.
    any: bool,
    plain: Values,
    /// `L`
    last: bool,
    /// `LW`: the last day from Monday to Friday.
    last_working: bool,
    /// `15W`: the day from Monday to Friday that is nearest, in the same month.
    nearest_working: Values,
}

impl Days {
    fn parse(text: &str) -> Result<Self, String> {
        let mut days = Self {
            any: matches!(text, "*" | "?"),
            ..Self::default()
        };
        if days.any {
            return Ok(days);
        }
        DAY.parse_items(text, |item| {
            match (item, item.strip_suffix('W')) {
                ("L", _) => days.last = true,
                ("LW", _) => days.last_working = true,
                (_, Some(day)) => days.nearest_working.insert(DAY.value(day)?),
                _ => DAY.insert(item, &mut days.plain)?,
            }
            Some(())
        })?;
        Ok(days)
    }

    fn matches(&self, date: Date) -> bool {
        let day = date.day() as u8;
        self.plain.contains(day)
            || self.last && date == date.last_of_month()
            || self.last_working && date == nearest_working_day(date.last_of_month())
            || self.is_nearest_working(date)
    }

    /// The nearest working day is at most two days away.
    fn is_nearest_working(&self, date: Date) -> bool {
        if self.nearest_working == Values::default() {
            return false;
        }
        let (first, last) = (date.day().saturating_sub(2).max(1), date.days_in_month());
        (first..=last.min(date.day() + 2))
            .filter(|day| self.nearest_working.contains(*day as u8))
            .filter_map(|day| date.with().day(day).build().ok())
            .any(|wanted| nearest_working_day(wanted) == date)
    }
}

/// The day from Monday to Friday that is nearest to a date, in the month of the date.
fn nearest_working_day(date: Date) -> Date {
    let day = match date.weekday() {
        Weekday::Saturday if date.day() > 1 => date.day() - 1,
        Weekday::Saturday => date.day() + 2,
        Weekday::Sunday if date.day() < date.days_in_month() => date.day() + 1,
        Weekday::Sunday => date.day() - 2,
        _ => date.day(),
    };
    date.with().day(day).build().unwrap_or(date)
}

/// The field for the weekday. Sunday is 0.
#[derive(Debug, Clone, Default)]
struct Weekdays {
    /// `*` or `?`: the date is not restricted.
    any: bool,
    plain: Values,
    /// `5L`: the last Friday of a month.
    last: Values,
    /// `5#3`: the third Friday of a month; for each week from the first to the fifth.
    nth: [Values; 5],
}

impl Weekdays {
    fn parse(text: &str) -> Result<Self, String> {
        let mut weekdays = Self {
            any: matches!(text, "*" | "?"),
            ..Self::default()
        };
        if weekdays.any {
            return Ok(weekdays);
        }
        let weekday = |text: &str| WEEKDAY.value(text).map(|value| value % 7);
        WEEKDAY.parse_items(text, |item| {
            match (item.split_once('#'), item.strip_suffix('L')) {
                (Some((of, nth)), _) => {
                    let week = usize::from(number(nth)?).checked_sub(1)?;
                    weekdays.nth.get_mut(week)?.insert(weekday(of)?);
                }
                (None, Some(of)) => weekdays.last.insert(weekday(of)?),
                (None, None) => WEEKDAY.insert(item, &mut weekdays.plain)?,
            }
            Some(())
        })?;
        // Sunday is 0 and 7.
        if weekdays.plain.contains(7) {
            weekdays.plain.insert(0);
        }
        Ok(weekdays)
    }

    fn matches(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset() as u8;
        let week = (date.day() as usize - 1) / 7;
        self.plain.contains(weekday)
            || self.nth[week].contains(weekday)
            || self.last.contains(weekday) && date.day() + 7 > date.days_in_month()
    }
}

/// The values that a field may contain.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Words for its values, from `min` on.
    words: &'static [&'static str],
    /// What the field takes beside values, ranges and steps, for the error.
    special: &'static str,
}

const SECOND: Field = Field::new("second", 0, 59);
const MINUTE: Field = Field::new("minute", 0, 59);
const HOUR: Field = Field::new("hour", 0, 23);
const DAY: Field = Field {
    special: ", `L`, `LW` or `15W`",
    ..Field::new("day", 1, 31)
};
const MONTH: Field = Field {
    words: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
    ..Field::new("month", 1, 12)
};
const WEEKDAY: Field = Field {
    words: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    special: ", `5L` or `5#3`",
    ..Field::new("weekday", 0, 7)
};

impl Field {
    const fn new(name: &'static str, min: u8, max: u8) -> Self {
        Self {
            name,
            min,
            max,
            words: &[],
            special: "",
        }
    }

    fn parse_values(&self, text: &str) -> Result<Values, String> {
        let mut values = Values::default();
        self.parse_items(text, |item| self.insert(item, &mut values))?;
        Ok(values)
    }

    /// Parses each item of a list. `None` refuses the field.
    fn parse_items(&self, text: &str, parse: impl FnMut(&str) -> Option<()>) -> Result<(), String> {
        let parsed: Option<()> = text.split(',').map(parse).collect();
        parsed.ok_or_else(|| {
            format!(
                "{} `{}` does not fit, expected {}",
                self.name,
                quoted(text),
                self.expected()
            )
        })
    }

    /// Adds the values of an item: a value, a range `a-b`, `*`, or steps `*/n` or `a-b/n`.
    fn insert(&self, item: &str, values: &mut Values) -> Option<()> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => {
                let step = number(step).filter(|step| (1..=self.max).contains(step))?;
                (range, Some(step))
            }
            None => (item, None),
        };
        let (first, last) = match (range, range.split_once('-'), step) {
            ("*", ..) => (self.min, self.max),
            (_, Some((first, last)), _) => (self.value(first)?, self.range_end(last)?),
            (_, None, None) => (self.value(range)?, self.value(range)?),
            (_, None, Some(_)) => return None,
        };
        (first <= last).then_some(())?;
        for value in (first..=last).step_by(usize::from(step.unwrap_or(1))) {
            values.insert(value);
        }
        Some(())
    }

    /// As [`value`](Self::value), but a week may end with `SUN`.
    fn range_end(&self, text: &str) -> Option<u8> {
        match text == "SUN" && self.words.first() == Some(&"SUN") {
            true => Some(7),
            false => self.value(text),
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
        let Self {
            min, max, special, ..
        } = self;
        let words = match (self.words.first(), self.words.last()) {
            (Some(first), Some(last)) => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        format!("{min} to {max}{words}, a range `a-b`, `*`, steps `*/n` or `a-b/n`{special}")
    }
}

/// Parses one or two digits.
fn number(text: &str) -> Option<u8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
