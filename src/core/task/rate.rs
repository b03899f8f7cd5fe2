//! Rate limits: a token bucket that refills evenly.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Largest number of starts in a rate, and largest burst.
const COUNT_MAX: u32 = 1_000_000;

/// A number of starts per second, minute or hour, and the burst.
///
/// ```
/// use lapsed::task::Rate;
///
/// let rate: Rate = "100/s".parse()?;
/// assert_eq!((rate.to_string(), rate.burst()), ("100/s".to_owned(), 100));
/// let rate = "30/m".parse::<Rate>()?.with_burst(5)?;
/// assert_eq!(rate.burst(), 5);
/// # Ok::<(), lapsed::task::RateError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Per,
    burst: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
}

/// The error for an invalid rate or burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// It is not a number and a unit.
    #[error("expected a number and a unit, such as \"100/s\", \"30/m\" or \"5/h\"")]
    Form,
    /// The number is 0 or too large.
    #[error("expected 1 to {COUNT_MAX} in the unit")]
    Count,
    /// The burst is 0 or too large.
    #[error("expected 1 to {COUNT_MAX}")]
    Burst,
}

impl Rate {
    /// Sets the burst: most starts at once after a time without starts.
    ///
    /// # Errors
    /// Returns [`RateError::Burst`] if it is out of range.
    pub fn with_burst(self, burst: u32) -> Result<Self, RateError> {
        match burst {
            1..=COUNT_MAX => Ok(Self { burst, ..self }),
            _ => Err(RateError::Burst),
        }
    }

    /// Returns the burst. The default is the number of starts in a second, at least 1.
    pub fn burst(self) -> u32 {
        self.burst
    }

    /// Returns the mean time between starts, in microseconds.
    pub fn interval_us(self) -> f64 {
        self.per.seconds() * 1e6 / f64::from(self.count)
    }
}

impl Per {
    fn seconds(self) -> f64 {
        match self {
            Self::Second => 1.0,
            Self::Minute => 60.0,
            Self::Hour => 3600.0,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, unit) = text.split_once('/').ok_or(RateError::Form)?;
        let per = match unit {
            "s" => Per::Second,
            "m" => Per::Minute,
            "h" => Per::Hour,
            _ => return Err(RateError::Form),
        };
        if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RateError::Form);
        }
        let count = match count.parse() {
            Ok(count @ 1..=COUNT_MAX) => count,
            _ => return Err(RateError::Count),
        };
        let in_a_second = (f64::from(count) / per.seconds()) as u32;
        Ok(Self {
            count,
            per,
            burst: in_a_second.max(1),
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.unit())
    }
}

/// Tokens taken from a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Number of starts granted.
    pub granted: u32,
    /// Time until the next token; zero if all wanted tokens were granted.
    pub next_in: Duration,
}

/// A token bucket, one token for each start. Uses the generic cell rate algorithm (ITU-T I.371), whose state is one
/// number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bucket {
    /// When it is full again, in microseconds.
    full_at_us: f64,
}

impl Bucket {
    /// Takes at most `wanted` tokens. `now_us` is the time on any monotonic clock.
    pub fn take(&mut self, rate: Rate, wanted: u32, now_us: f64) -> Grant {
        self.take_share(rate, 1, wanted, now_us)
    }

    /// Like [`take`](Self::take), from this member's share, one in `members`.
    pub fn take_share(&mut self, rate: Rate, members: u32, wanted: u32, now_us: f64) -> Grant {
        let members = members.max(1);
        let interval = rate.interval_us() * f64::from(members);
        let burst = f64::from((rate.burst / members).max(1));
        let full_at = self.full_at_us.max(now_us);
        let room = ((now_us + burst * interval - full_at) / interval).floor();
        let granted = (room.max(0.0) as u32).min(wanted);
        self.full_at_us = full_at + f64::from(granted) * interval;
        let next_us = match granted == wanted {
            true => 0.0,
            false => (self.full_at_us + interval - burst * interval - now_us).max(0.0),
        };
        Grant {
            granted,
            next_in: Duration::from_micros(next_us.ceil() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_is_parsed_strictly() {
        assert_eq!((rate("100/s").burst(), rate("90/m").burst()), (100, 1));
        assert_eq!(rate("5/h").burst(), 1);
        assert_eq!(rate("7200/h").burst(), 2);
        for text in [
            "", "100", "100/d", "100/", "/s", "1.5/s", "-1/s", "+1/s", "100 /s", "100/S", "1/s/s",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Form), "{text}");
        }
        for text in ["0/s", "1000001/s", "99999999999/s"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Count), "{text}");
        }
        assert_eq!(rate("1/s").with_burst(0), Err(RateError::Burst));
    }

    #[test]
    fn a_bucket_grants_its_burst_and_then_one_at_a_time() {
        let (rate, mut bucket) = (rate("10/s").with_burst(3).unwrap(), Bucket::default());
        let now = 1e9;
        let first = bucket.take(rate, 5, now);
        assert_eq!(
            first,
            Grant {
                granted: 3,
                next_in: Duration::from_millis(100)
            }
        );
        assert_eq!(bucket.take(rate, 1, now + 99_000.0).granted, 0);
        assert_eq!(bucket.take(rate, 9, now + 200_000.0).granted, 2);
        // It is full again, and not fuller.
        assert_eq!(bucket.take(rate, 9, now + 9e9).granted, 3);
    }

    #[test]
    fn the_shares_of_all_members_add_up_to_the_rate() {
        let rate = rate("100/s");
        let mut buckets = [Bucket::default(); 4];
        let mut granted = 0;
        for ms in 0..10_000 {
            for bucket in &mut buckets {
                granted += bucket
                    .take_share(rate, 4, 50, f64::from(ms) * 1e3 + 1e9)
                    .granted;
            }
        }
        assert!((1_000..=1_100).contains(&granted), "{granted}");
    }

    proptest! {
        #[test]
        fn no_span_has_more_than_its_rate_and_one_burst(
            asks in prop::collection::vec((0u32..200_000, 0u32..40), 1..200),
            count in 1u32..500, burst in 1u32..50,
        ) {
            let rate = Rate { count, per: Per::Second, burst };
            let (mut bucket, mut now, mut granted) = (Bucket::default(), 1e12, 0.0);
            let begun = now;
            for (later, wanted) in asks {
                now += f64::from(later);
                granted += f64::from(bucket.take(rate, wanted, now).granted);
                let most = f64::from(burst) + (now - begun) / rate.interval_us();
                prop_assert!(granted <= most + 1e-3, "{granted} of {most}");
            }
        }
    }

    #[test]
    fn a_rate_is_written_as_it_was_read() {
        for text in ["10/s", "3/m", "1/h"] {
            assert_eq!(rate(text).to_string(), text);
        }
    }
}
