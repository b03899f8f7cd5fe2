//! Times and durations on pages.

use std::fmt;
use std::time::Duration;

use askama::filters::HtmlSafe;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::texts::{Language, ScriptTexts, fill};
use lapsed::task::UnixMs;
use lapsed_core::format::{self, TimeUnit};

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
    let whole_seconds = ms.unsigned_abs() / 1000 * 1000;
    let length = duration(whole_seconds, language);
    match ms {
        1000.. => fill(texts.ahead, &[&length]),
        ..=-1000 => fill(texts.ago, &[&length]),
        _ => texts.now.to_owned(),
    }
}

/// Formats a duration in its two largest units: `2 h 5 min`, `1.25 s`, `4 ms`.
pub fn duration(ms: u64, language: Language) -> String {
    let texts = ScriptTexts::of(language);
    format::duration_with(Duration::from_millis(ms), |number, unit| {
        let text = match unit {
            TimeUnit::Millisecond => "{} ms",
            TimeUnit::Second => texts.second,
            TimeUnit::Minute => texts.minute,
            TimeUnit::Hour => texts.hour,
            TimeUnit::Day => texts.day,
        };
        fill(text, &[number])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_said_in_the_language_of_the_page() {
        for (ms, english, chinese) in [
            (4, "4 ms", "4 ms"),
            (1_250, "1.25 s", "1.25 秒"),
            (61_000, "1 min 1 s", "1 分 1 秒"),
            (7_500_000, "2 h 5 min", "2 小时 5 分"),
            (90_061_000, "1 d 1 h", "1 天 1 小时"),
        ] {
            assert_eq!(duration(ms, Language::English), english);
            assert_eq!(duration(ms, Language::Chinese), chinese);
        }
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
}
