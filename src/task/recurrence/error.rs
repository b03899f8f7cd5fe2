//! Why a recurrence was refused.

use super::limits::{CATCH_UP_LIMIT, TIMES_MAX};

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
