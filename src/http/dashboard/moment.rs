//! Times and durations on pages.

use std::fmt;

use askama::filters::HtmlSafe;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::texts::{Language, ScriptTexts, fill};
use crate::task::UnixMs;

/// A time as an element `<time>`: relative to now, or on the clock. JavaScript keeps the relative ones current.
#[derive(Debug, Clone)]
pub struct Moment {
    at: UnixMs,
    shown: String,
    title: String,
    is_relative: bool,
}

impl Moment {
    /// Shows a time relative to `now`, with the clock time as its title.
    pub fn relative(at: UnixMs, now: UnixMs, zone: &TimeZone, language: Language) -> Self {
        Self {
            at,
            shown: relative(at, now, language),
            title: clock(at, zone, "%Y-%m-%d %H:%M:%S%.3f %:z"),
            is_relative: true,
        }
    }

    /// Shows a time on the clock, with the date unless it is that of `now`.
    pub fn clock(at: UnixMs, now: UnixMs, zone: &TimeZone, language: Language) -> Self {
        Self {
            at,
            shown: clock_text(at, now, zone),
            title: format!(
                "{}, {}",
                clock(at, zone, "%Y-%m-%d %H:%M:%S%.3f %:z"),
                relative(at, now, language)
            ),
            is_relative: false,
        }
    }
}

impl HtmlSafe for Moment {}

/// Digits, signs and words of our own: nothing to escape.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            shown,
            title,
            is_relative,
        } = self;
        let relative = if *is_relative { " data-relative" } else { "" };
        write!(
            f,
            "<time datetime=\"{at}\" data-at=\"{}\" title=\"{title}\"{relative}>{shown}</time>",
            at.0
        )
    }
}

/// Returns a time on the clock, with the date unless it is that of `now`.
pub fn clock_text(at: UnixMs, now: UnixMs, zone: &TimeZone) -> String {
    let date = |at| clock(at, zone, "%Y-%m-%d");
    let format = match date(at) == date(now) {
        true => "%H:%M:%S",
        false => "%Y-%m-%d %H:%M:%S",
    };
    clock(at, zone, format)
}

fn clock(at: UnixMs, zone: &TimeZone, format: &str) -> String {
    match Timestamp::from_millisecond(at.0) {
        Ok(at) => at.to_zoned(zone.clone()).strftime(format).to_string(),
        Err(_) => at.0.to_string(),
    }
}

/// Returns `in 3 min 20 s`, `5 s ago` or `now`.
fn relative(at: UnixMs, now: UnixMs, language: Language) -> String {
    let texts = ScriptTexts::of(language);
    let ms = at.0.saturating_sub(now.0);
    let length = length(ms.unsigned_abs(), language);
    match ms {
        1000.. => fill(texts.ahead, &[&length]),
        ..=-1000 => fill(texts.ago, &[&length]),
        _ => texts.now.to_owned(),
    }
}

/// Returns a length of time of at least a second in its two largest units: `2 h 5 min`.
pub fn length(ms: u64, language: Language) -> String {
    let texts = ScriptTexts::of(language);
    let units = [
        (texts.day, 86_400),
        (texts.hour, 3_600),
        (texts.minute, 60),
        (texts.second, 1),
    ];
    let mut left = ms / 1000;
    let largest = units.iter().position(|(_, seconds)| left >= *seconds);
    let mut parts = Vec::new();
    for (unit, seconds) in &units[largest.unwrap_or(units.len() - 1)..] {
        if parts.len() < 2 && (left >= *seconds || parts.is_empty()) {
            parts.push(fill(unit, &[&(left / seconds).to_string()]));
            left %= seconds;
        } else {
            break;
        }
    }
    parts.join(" ")
}

/// Returns a measured time: `4 ms`, `1.25 s`, or as [`length`] from a minute on.
pub fn took(ms: u64, language: Language) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => {
            let seconds = format!("{}.{:02}", ms / 1000, ms % 1000 / 10);
            fill(ScriptTexts::of(language).second, &[&seconds])
        }
        _ => length(ms, language),
    }
}

/// Returns a number with its thousands apart: `12,345`.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_its_two_largest_units() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_600, "1 h"),
            (3_605, "1 h"),
            (7_500, "2 h 5 min"),
            (90_061, "1 d 1 h"),
        ] {
            assert_eq!(length(seconds * 1000, Language::English), expected);
        }
        assert_eq!(length(7_500_000, Language::Chinese), "2 小时 5 分");
    }

    #[test]
    fn a_time_is_shown_in_its_zone_and_relative_to_now() {
        let (now, zone) = (UnixMs(1_795_291_200_000), TimeZone::UTC);
        let at = UnixMs(now.0 + 125_250);
        assert_eq!(
            Moment::relative(at, now, &zone, Language::English).to_string(),
            "<time datetime=\"2026-11-21T20:02:05.250Z\" data-at=\"1795291325250\" \
             title=\"2026-11-21 20:02:05.250 +00:00\" data-relative>in 2 min 5 s</time>"
        );
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let shown = Moment::clock(at, now, &berlin, Language::English).to_string();
        assert!(shown.ends_with(">21:02:05</time>"), "{shown}");
        let ago = Moment::relative(UnixMs(now.0 - 3_000), now, &zone, Language::Chinese);
        assert!(ago.to_string().ends_with(">3 秒前</time>"), "{ago}");
        let never = Moment::clock(UnixMs(i64::MAX), now, &zone, Language::English);
        assert!(never.to_string().contains("9223372036854775807"));
    }

    #[test]
    fn numbers_and_measured_times_are_short() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(number),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [4, 1_250, 61_000].map(|ms| took(ms, Language::English)),
            ["4 ms", "1.25 s", "1 min 1 s"]
        );
    }
}
