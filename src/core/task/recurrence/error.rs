//! Errors of recurrence rules and options.

use crate::task::quoted;

use super::limits::{CATCH_UP_LIMIT, TIMES_MAX};

/// The error for an invalid recurrence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecurrenceError {
    /// `every` is not a valid period.
    #[error(
        "`every` does not fit, expected a duration from 1s to 10 years with its unit, such as `30s`, `15m` or `1h 30m`"
    )]
    Every,
    /// `every` and `cron` are both set or both missing.
    #[error("expected one of `every` and `cron`")]
    EveryOrCron,
    /// The cron expression is invalid.
    #[error("cron `{}`: {problem}", quoted(.text))]
    Cron {
        /// The text found.
        text: String,
        /// Why it is invalid.
        problem: String,
    },
    /// The time zone is unknown.
    #[error("`{}` is not a time zone, expected an IANA name such as `Europe/Berlin`", quoted(.0))]
    Zone(String),
    /// A time zone requires a cron expression.
    #[error("`tz` requires `cron`: `every` has no time zone")]
    ZoneOfEvery,
    /// `times` is out of range.
    #[error("`times` does not fit, expected 1 to {TIMES_MAX}")]
    Times,
    /// `times` and `until` are both set.
    #[error("expected at most one of `times` and `until`")]
    TimesAndUntil,
    /// `catch_up_max` is out of range.
    #[error("`catch_up_max` does not fit, expected 1 to {CATCH_UP_LIMIT}")]
    CatchUpMax,
    /// `catch_up_max` requires `catch_up = "all"`.
    #[error("`catch_up_max` requires `catch_up` = `all`")]
    CatchUpMaxOfAll,
    /// It has no future occurrence.
    #[error("no occurrence lies ahead: its end has passed")]
    Over,
    /// The key is too long for the suffix of its occurrences.
    #[error(
        "key has {bytes} bytes, expected at most {max} where occurrences may overlap: each is a separate task"
    )]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The longest length allowed.
        max: usize,
    },
    /// The key has a suffix, but each occurrence needs its own.
    #[error(
        "key ends in the suffix `@{0}`, expected none where occurrences may overlap: each has its own suffix"
    )]
    KeyHasSuffix(String),
    /// It is not the JSON of a recurrence.
    #[error("recurrence is invalid: {0}")]
    Json(String),
}
