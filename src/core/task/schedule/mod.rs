//! Due-time arithmetic, in whole milliseconds.

use std::fmt;
use std::time::Duration;

use jiff::fmt::temporal::Pieces;

use super::quoted;

/// Longest delay accepted: ten years of 365 days.
pub const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A time on the ledger's clock: milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// Adds `delay` in whole milliseconds. Saturates.
    #[must_use]
    pub fn plus(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// Subtracts `span` in whole milliseconds. Saturates.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// Returns the time elapsed since `earlier`, or zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for UnixMs {
    /// RFC 3339 with milliseconds, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnixMs({})", self.0)
    }
}

/// Parses a duration with units: `1500ms`, `1h 30m`, `7d`. A day has 24 hours.
pub fn parse_span(text: &str) -> Option<jiff::SignedDuration> {
    let span: jiff::Span = text.trim().parse().ok()?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    span.to_duration(days).ok()
}

/// True if the text is a duration whose numbers are too large.
fn is_beyond_counting(text: &str) -> bool {
    let mut before = ' ';
    let mut is_first_digit = |c: &char| {
        let is_further = before.is_ascii_digit() && c.is_ascii_digit();
        before = *c;
        !is_further
    };
    let small: String = text.chars().filter(|c| is_first_digit(c)).collect();
    parse_span(&small).is_some_and(|span| span.is_positive())
}

/// Parses a duration: `30m`, `7d`; at most [`DELAY_MAX`].
///
/// # Errors
/// Returns [`ScheduleError::Delay`], [`ScheduleError::Negative`] (also for `7d ago`), or [`ScheduleError::TooLong`].
pub fn parse_length(text: &str) -> Result<Duration, ScheduleError> {
    let length = parse_span(text).ok_or_else(|| match is_beyond_counting(text) {
        true => ScheduleError::TooLong,
        false => ScheduleError::Delay(text.to_owned()),
    })?;
    match Duration::try_from(length) {
        Ok(length) if length <= DELAY_MAX => Ok(length),
        Ok(_) => Err(ScheduleError::TooLong),
        Err(_) => Err(ScheduleError::Negative(text.to_owned())),
    }
}

/// When a task is due: after a delay, or at a given time.
///
/// A delay is resolved once, against the ledger's clock, when the task is created.
///
/// ```
/// use lapsed::task::{Due, UnixMs};
/// use std::time::Duration;
///
/// let now = UnixMs(1_000_000);
/// assert_eq!(Due::after(Duration::from_millis(1500))?.resolve(now), UnixMs(1_001_500));
/// assert_eq!(Due::after_ms(-5)?.resolve(now), now, "a delay that has passed is due now");
/// assert!(Due::after_secs_f64(f64::NAN).is_err());
/// # Ok::<(), lapsed::task::ScheduleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    After(Duration),
    At(UnixMs),
}

impl Due {
    /// Due now.
    pub const NOW: Self = Self(Kind::After(Duration::ZERO));

    /// Due after `delay`, truncated to milliseconds.
    ///
    /// # Errors
    /// Returns [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn after(delay: Duration) -> Result<Self, ScheduleError> {
        if delay > DELAY_MAX {
            return Err(ScheduleError::TooFar);
        }
        Ok(Self(Kind::After(delay)))
    }

    /// Due after `delay` milliseconds. Zero or less is due now.
    ///
    /// # Errors
    /// Returns [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn after_ms(delay: i64) -> Result<Self, ScheduleError> {
        Self::after(Duration::from_millis(u64::try_from(delay).unwrap_or(0)))
    }

    /// Due after `delay` seconds. Zero or less is due now.
    ///
    /// # Errors
    /// Returns [`ScheduleError::NotFinite`] for NaN and infinities, and [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn after_secs_f64(delay: f64) -> Result<Self, ScheduleError> {
        if !delay.is_finite() {
            return Err(ScheduleError::NotFinite);
        }
        Self::after(Duration::try_from_secs_f64(delay.max(0.0)).map_err(|_| ScheduleError::TooFar)?)
    }

    /// Due at `moment`. A time in the past is due now, and stays the due time of the row.
    ///
    /// # Errors
    /// Returns [`ScheduleError::BeforeEpoch`] for a time before 1970.
    pub fn at(moment: UnixMs) -> Result<Self, ScheduleError> {
        if moment.0 <= 0 {
            return Err(ScheduleError::BeforeEpoch);
        }
        Ok(Self(Kind::At(moment)))
    }

    /// Returns the due time. `now` is the ledger's time.
    pub fn resolve(self, now: UnixMs) -> UnixMs {
        match self.0 {
            Kind::After(delay) => now.plus(delay),
            Kind::At(moment) => moment,
        }
    }

    /// Like [`resolve`](Self::resolve), but refuses a time more than [`DELAY_MAX`] after `now`.
    ///
    /// # Errors
    /// Returns [`ScheduleError::TooFar`].
    pub fn resolve_checked(self, now: UnixMs) -> Result<UnixMs, ScheduleError> {
        let due = self.resolve(now);
        if due.since(now) > DELAY_MAX {
            return Err(ScheduleError::TooFar);
        }
        Ok(due)
    }

    /// Parses a delay: `30m`, `1h 30m`, `1500ms`; at most [`DELAY_MAX`].
    ///
    /// # Errors
    /// Returns [`ScheduleError::Delay`] for other text, such as a number without a unit, [`ScheduleError::Negative`]
    /// for a negative delay, and [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn parse_delay(text: &str) -> Result<Self, ScheduleError> {
        let delay = parse_span(text).ok_or_else(|| match is_beyond_counting(text) {
            true => ScheduleError::TooFar,
            false => ScheduleError::Delay(text.to_owned()),
        })?;
        match Duration::try_from(delay) {
            Ok(delay) => Self::after(delay),
            Err(_) => Err(ScheduleError::Negative(text.to_owned())),
        }
    }

    /// Parses a time in RFC 3339: `2026-11-21T20:00:00.250Z`.
    ///
    /// # Errors
    /// Returns [`ScheduleError::Moment`] for other text.
    pub fn parse_moment(text: &str) -> Result<Self, ScheduleError> {
        match text.trim().parse::<jiff::Timestamp>() {
            Ok(moment) => Self::at(UnixMs(moment.as_millisecond())),
            Err(_) if is_beyond_all_dates(text.trim()) => Err(ScheduleError::TooFar),
            Err(_) => Err(ScheduleError::Moment(text.to_owned())),
        }
    }
}

/// True if the text is a time outside the supported range, such as the last second of the year 9999, which some
/// programs write for "never".
fn is_beyond_all_dates(text: &str) -> bool {
    Pieces::parse(text).is_ok_and(|pieces| {
        pieces.time().is_some() && pieces.offset().is_some() && pieces.date().year() == 9999
    })
}

/// The error for an invalid time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// It is NaN or infinite.
    #[error("delay is not a finite number of seconds")]
    NotFinite,
    /// It is more than [`DELAY_MAX`] ahead.
    #[error("due time is too far ahead, expected at most 10 years (3650 days) from now")]
    TooFar,
    /// It is longer than [`DELAY_MAX`].
    #[error("duration is too long, expected at most 10 years (3650 days)")]
    TooLong,
    /// It is negative.
    #[error("`{}` is negative, expected a duration such as `30m` or `7d`", quoted(.0))]
    Negative(String),
    /// It is before 1970.
    #[error("due time lies before 1970")]
    BeforeEpoch,
    /// It is not a delay.
    #[error("`{}` is not a delay, expected a number with a unit such as `1500ms`, `30s`, `30m` or `1h 30m`", quoted(.0))]
    Delay(String),
    /// It is not a time.
    #[error("`{}` is not a time, expected RFC 3339 such as `2026-11-21T20:00:00.250Z`", quoted(.0))]
    Moment(String),
}

#[cfg(test)]
mod tests;
