//! Due-time arithmetic, in whole milliseconds.

use std::fmt;
use std::time::Duration;

use jiff::fmt::temporal::Pieces;

/// The longest delay that is accepted: ten years of 365 days.
pub const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A moment on the ledger's clock: milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// This moment plus `delay`, in whole milliseconds, at most the end of time.
    #[must_use]
    pub fn plus(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// How long it is from `earlier` until this moment; zero if it has passed.
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

/// Reads a length of time with its units: `1500ms`, `1h 30m`, `7d`. A day has 24 hours.
pub(crate) fn parse_span(text: &str) -> Option<jiff::SignedDuration> {
    let span: jiff::Span = text.trim().parse().ok()?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    span.to_duration(days).ok()
}

/// Whether it would be a length of time if its numbers were not too large to count with.
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

/// Reads a length of time written as text: `30m`, `7d`; at most [`DELAY_MAX`].
///
/// # Errors
/// [`ScheduleError::Delay`], [`ScheduleError::Negative`] (`7d ago` is), [`ScheduleError::TooLong`].
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

/// A length of time as people say it: `1h 30m`, `7d`; without milliseconds from a minute on.
pub(crate) fn spoken(span: Duration) -> String {
    const DAY_SECS: u64 = 24 * 3600;
    let short = match span.as_secs() {
        60.. => Duration::from_secs(span.as_secs()),
        _ => Duration::from_millis(span.as_millis() as u64),
    };
    match jiff::SignedDuration::try_from(short) {
        Ok(_) if span.as_secs() >= DAY_SECS && span.as_secs().is_multiple_of(DAY_SECS) => {
            format!("{}d", span.as_secs() / DAY_SECS)
        }
        Ok(short) => format!("{short:#}"),
        Err(_) => format!("{} s", span.as_secs()),
    }
}

/// When a task is to run: after a delay, or at a moment.
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

    /// Due after `delay`; what is below a millisecond is cut off.
    ///
    /// # Errors
    /// [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn after(delay: Duration) -> Result<Self, ScheduleError> {
        if delay > DELAY_MAX {
            return Err(ScheduleError::TooFar);
        }
        Ok(Self(Kind::After(delay)))
    }

    /// Due after `delay` milliseconds; zero or less is due now.
    ///
    /// # Errors
    /// [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn after_ms(delay: i64) -> Result<Self, ScheduleError> {
        Self::after(Duration::from_millis(u64::try_from(delay).unwrap_or(0)))
    }

    /// Due after `delay` seconds; zero or less is due now.
    ///
    /// # Errors
    /// [`ScheduleError::NotFinite`] for NaN and infinities, [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
    pub fn after_secs_f64(delay: f64) -> Result<Self, ScheduleError> {
        if !delay.is_finite() {
            return Err(ScheduleError::NotFinite);
        }
        Self::after(Duration::try_from_secs_f64(delay.max(0.0)).map_err(|_| ScheduleError::TooFar)?)
    }

    /// Due at `moment`; one that has passed is due now, and keeps its own time as its name.
    ///
    /// # Errors
    /// [`ScheduleError::BeforeEpoch`] for a moment before 1970.
    pub fn at(moment: UnixMs) -> Result<Self, ScheduleError> {
        if moment.0 <= 0 {
            return Err(ScheduleError::BeforeEpoch);
        }
        Ok(Self(Kind::At(moment)))
    }

    /// The due time, seen from `now` on the ledger's clock.
    pub fn resolve(self, now: UnixMs) -> UnixMs {
        match self.0 {
            Kind::After(delay) => now.plus(delay),
            Kind::At(moment) => moment,
        }
    }

    /// The due time, refused if it lies further than [`DELAY_MAX`] ahead of `now`.
    ///
    /// # Errors
    /// [`ScheduleError::TooFar`].
    pub fn resolve_checked(self, now: UnixMs) -> Result<UnixMs, ScheduleError> {
        let due = self.resolve(now);
        if due.since(now) > DELAY_MAX {
            return Err(ScheduleError::TooFar);
        }
        Ok(due)
    }

    /// Reads a delay written as text: `30m`, `1h 30m`, `1500ms`; at most [`DELAY_MAX`].
    ///
    /// # Errors
    /// [`ScheduleError::Delay`] says what was expected; a bare number has no unit and is refused.
    /// [`ScheduleError::Negative`] for a negative delay, [`ScheduleError::TooFar`] beyond [`DELAY_MAX`].
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

    /// Reads a moment written as RFC 3339: `2026-11-21T20:00:00.250Z`.
    ///
    /// # Errors
    /// [`ScheduleError::Moment`] says what was expected.
    pub fn parse_moment(text: &str) -> Result<Self, ScheduleError> {
        match text.trim().parse::<jiff::Timestamp>() {
            Ok(moment) => Self::at(UnixMs(moment.as_millisecond())),
            Err(_) if is_beyond_all_dates(text.trim()) => Err(ScheduleError::TooFar),
            Err(_) => Err(ScheduleError::Moment(text.to_owned())),
        }
    }
}

/// Whether it is a moment after all, such as the last second of the year 9999, which some write for "never".
fn is_beyond_all_dates(text: &str) -> bool {
    Pieces::parse(text).is_ok_and(|pieces| {
        pieces.time().is_some() && pieces.offset().is_some() && pieces.date().year() == 9999
    })
}

/// Why a time was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// NaN or an infinity.
    #[error("delay is not a finite number of seconds")]
    NotFinite,
    /// Further ahead than [`DELAY_MAX`].
    #[error("due time is too far ahead, expected at most 10 years (3650 days) from now")]
    TooFar,
    /// Longer than [`DELAY_MAX`].
    #[error("length of time is too long, expected at most 10 years (3650 days)")]
    TooLong,
    /// Less than nothing.
    #[error("`{}` is negative, expected a length of time such as `30m` or `7d`", .0.escape_debug())]
    Negative(String),
    /// Before 1970.
    #[error("due time lies before 1970")]
    BeforeEpoch,
    /// Not a delay.
    #[error("`{}` is not a delay, expected a number with a unit such as `1500ms`, `30s`, `30m` or `1h 30m`", .0.escape_debug())]
    Delay(String),
    /// Not a moment.
    #[error("`{}` is not a moment, expected RFC 3339 such as `2026-11-21T20:00:00.250Z`", .0.escape_debug())]
    Moment(String),
}

#[cfg(test)]
mod tests;
