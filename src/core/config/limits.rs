//! Limits of a route: `timeout`, `concurrency`, `rate`, `burst`, `priority`.

use std::num::NonZeroU32;
use std::time::Duration;

use toml::Value;

use super::reader::{Problems, Reader};
use super::rules::at_least;
use crate::task::{Limits, Rate, RateError};

/// Upper bound, as of `engine.concurrency`.
const CONCURRENCY_MAX: i64 = 100_000;

/// Reads the limits. An invalid limit is added to the problems and left out of the result.
pub(super) fn limits(section: &mut Reader, p: &mut Problems) -> Limits {
    let timeout = section.given("timeout", p, at_least(Duration::from_millis(1)));
    let runs = |n: i64| (1..=CONCURRENCY_MAX).contains(&n).then_some(n);
    let runs = number(section, "concurrency", p, runs, "1 to 100000");
    let as_runs = |n| u32::try_from(n).ok().and_then(NonZeroU32::new);
    let priority = |n: i64| i8::try_from(n).ok();
    let priority = number(section, "priority", p, priority, "-128 to 127");
    Limits {
        concurrency: runs.and_then(as_runs),
        rate: rate(section, p),
        priority: priority.unwrap_or(0),
        timeout: timeout.flatten(),
    }
}

/// `rate = "100/s"`, and `burst = 20` beside it.
fn rate(section: &mut Reader, p: &mut Problems) -> Option<Rate> {
    let text = section.remove("rate");
    let burst = |n: i64| u32::try_from(n).ok().filter(|n| *n <= 1_000_000 && *n > 0);
    let said = text.is_some();
    let has_burst = section.has("burst");
    let burst = number(section, "burst", p, burst, "1 to 1000000");
    if has_burst && !said {
        p.add(&section.at("burst"), "expected `rate` beside it");
    }
    let rate = match text? {
        Value::String(text) => text.parse::<Rate>(),
        _ => Err(RateError::Form),
    };
    let rate = rate.map_err(|error| p.add(&section.at("rate"), error.to_string()));
    let rate = rate.ok()?;
    match burst {
        Some(burst) => rate.with_burst(burst).ok(),
        None => Some(rate),
    }
}

/// An optional whole number in this range.
fn number<T>(
    section: &mut Reader,
    key: &str,
    p: &mut Problems,
    read: impl FnOnce(i64) -> Option<T>,
    expected: &str,
) -> Option<T> {
    let number = section.remove(key)?;
    let number = number.as_integer().and_then(read);
    if number.is_none() {
        p.add(&section.at(key), format!("expected {expected}"));
    }
    number
}
