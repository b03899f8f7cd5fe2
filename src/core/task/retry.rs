//! Retry policy: the delay before a failed task runs again, as a pure function of the attempt.

use std::time::Duration;

use super::DELAY_MAX;

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// The default ladder, in seconds: fifteen rungs over a day and a half, the first ones close together.
const LADDER_SECS: [u64; 15] = [
    15 * SECOND,
    15 * SECOND,
    30 * SECOND,
    3 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    30 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    3 * HOUR,
    3 * HOUR,
    6 * HOUR,
    6 * HOUR,
];

/// How the delay grows with the attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backoff {
    /// The n-th failure waits the n-th rung; later ones the last. Never empty.
    Ladder(Vec<Duration>),
    /// `base`, 2 x `base`, 4 x `base`, ... up to `max`.
    Exponential {
        /// Delay after the first failure.
        base: Duration,
        /// Longest delay.
        max: Duration,
    },
    /// A constant delay.
    Fixed(Duration),
}

impl Backoff {
    /// Returns the delay after the `attempt`-th run failed (counted from 1), before jitter.
    fn delay(&self, attempt: u16) -> Duration {
        let nth = usize::from(attempt.max(1)) - 1;
        match self {
            Self::Ladder(rungs) => rungs
                .get(nth)
                .or(rungs.last())
                .copied()
                .unwrap_or(Duration::ZERO),
            Self::Exponential { base, max } => {
                let factor = 1u32.checked_shl(nth as u32).unwrap_or(u32::MAX);
                base.saturating_mul(factor).min(*max)
            }
            Self::Fixed(delay) => *delay,
        }
    }
}

/// When to retry, and when to stop.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// How the delay grows.
    pub backoff: Backoff,
    /// Number of runs, not retries: 1 never retries.
    pub max_attempts: u16,
    /// Spread of the delay, as a fraction of it: 0.1 is +-10 %. Between 0 and 1.
    pub jitter: f64,
    /// Longest time from the due time (or creation or redrive, if later) to the start of an attempt.
    pub deadline: Option<Duration>,
}

impl RetryPolicy {
    /// Creates a policy with one run for each rung, and the first. An empty ladder never retries.
    pub fn ladder(rungs: impl Into<Vec<Duration>>) -> Self {
        let rungs = rungs.into();
        let runs = u16::try_from(rungs.len() + 1).unwrap_or(u16::MAX);
        Self {
            max_attempts: runs,
            backoff: Backoff::Ladder(rungs),
            ..Self::default()
        }
    }

    /// `base`, 2 x `base`, 4 x `base`, ... up to `max`.
    ///
    /// ```
    /// use lapsed::task::RetryPolicy;
    /// use std::time::Duration;
    ///
    /// let policy = RetryPolicy {
    ///     max_attempts: 5,
    ///     deadline: Some(Duration::from_secs(24 * 3600)),
    ///     ..RetryPolicy::exponential(Duration::from_secs(2), Duration::from_secs(3600))
    /// };
    /// assert_eq!(policy.delay(2, 0.5), Duration::from_secs(4));
    /// ```
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Self {
            backoff: Backoff::Exponential { base, max },
            ..Self::default()
        }
    }

    /// As [`exponential`](Self::exponential), without an end, for connections that are opened again. Spread by a quarter.
    pub const fn endless(base: Duration, max: Duration) -> Self {
        Self {
            backoff: Backoff::Exponential { base, max },
            max_attempts: u16::MAX,
            jitter: 0.25,
            deadline: None,
        }
    }

    /// True if it allows a run.
    pub fn allows_a_run(&self) -> bool {
        self.max_attempts > 0
    }

    /// Creates a policy with a constant delay.
    pub fn fixed(delay: Duration) -> Self {
        Self {
            backoff: Backoff::Fixed(delay),
            ..Self::default()
        }
    }

    /// Creates a policy of a single run.
    pub fn never() -> Self {
        Self {
            max_attempts: 1,
            ..Self::default()
        }
    }

    /// Returns the delay after the `attempt`-th run failed (counted from 1). `unit` is a random number in `[0, 1)`. The
    /// result differs from the backoff's delay by at most `jitter`, and is at most [`DELAY_MAX`].
    pub fn delay(&self, attempt: u16, unit: f64) -> Duration {
        let spread = 1.0 + self.jitter.clamp(0.0, 1.0) * (2.0 * unit.clamp(0.0, 1.0) - 1.0);
        let delay = self.backoff.delay(attempt).as_secs_f64() * spread;
        Duration::try_from_secs_f64(delay).map_or(DELAY_MAX, |delay| delay.min(DELAY_MAX))
    }
}

impl Default for RetryPolicy {
    /// Sixteen runs: the first, and one for each of fifteen rungs from 15 s to 6 h.
    fn default() -> Self {
        Self {
            backoff: Backoff::Ladder(LADDER_SECS.map(Duration::from_secs).to_vec()),
            max_attempts: LADDER_SECS.len() as u16 + 1,
            jitter: 0.1,
            deadline: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MID: f64 = 0.5;

    #[test]
    fn the_default_ladder_has_fifteen_rungs_from_15_s_to_6_h() {
        let policy = RetryPolicy::default();
        let rungs: Vec<u64> = (1..=15)
            .map(|attempt| policy.delay(attempt, MID).as_secs())
            .collect();
        assert_eq!(
            rungs,
            [
                15, 15, 30, 180, 600, 1200, 1800, 1800, 1800, 3600, 10800, 10800, 10800, 21600,
                21600
            ]
        );
        assert_eq!(policy.max_attempts, 16);
    }

    #[test]
    fn beyond_the_ladder_the_last_rung_repeats() {
        assert_eq!(
            RetryPolicy::default().delay(99, MID),
            Duration::from_secs(21600)
        );
    }

    #[test]
    fn exponential_doubles_up_to_its_maximum() {
        let policy = RetryPolicy {
            backoff: Backoff::Exponential {
                base: Duration::from_secs(2),
                max: Duration::from_secs(3600),
            },
            max_attempts: 5,
            jitter: 0.0,
            deadline: None,
        };
        let delays: Vec<u64> = [1, 2, 3, 4, 12, 40, u16::MAX]
            .map(|n| policy.delay(n, MID).as_secs())
            .to_vec();
        assert_eq!(delays, [2, 4, 8, 16, 3600, 3600, 3600]);
    }

    #[test]
    fn no_delay_exceeds_the_maximum() {
        let policy = RetryPolicy {
            backoff: Backoff::Fixed(Duration::MAX),
            max_attempts: 5,
            jitter: 1.0,
            deadline: None,
        };
        assert_eq!(policy.delay(1, 0.99), DELAY_MAX);
    }

    proptest! {
        #[test]
        fn jitter_stays_in_range(attempt in 1u16..40, jitter in 0.0f64..=1.0, unit in 0.0f64..1.0) {
            let policy = RetryPolicy { jitter, ..RetryPolicy::default() };
            let plain = policy.backoff.delay(attempt).as_secs_f64();
            let delay = policy.delay(attempt, unit).as_secs_f64();
            prop_assert!(delay >= plain * (1.0 - jitter) - 1e-6 && delay <= plain * (1.0 + jitter) + 1e-6);
        }
    }

    #[test]
    fn a_ladder_has_a_run_for_each_rung_and_the_first() {
        let rungs = [5, 7].map(Duration::from_secs);
        let ladder = RetryPolicy::ladder(rungs);
        assert_eq!(ladder.max_attempts, 3);
        assert_eq!(
            [1, 2, 3].map(|run| ladder.delay(run, MID).as_secs()),
            [5, 7, 7]
        );
        assert_eq!(RetryPolicy::ladder([]).max_attempts, 1);
        let base = Duration::from_secs(2);
        let growing = RetryPolicy::exponential(base, 2 * base);
        assert_eq!(
            [1, 2, 3].map(|run| growing.delay(run, MID).as_secs()),
            [2, 4, 4]
        );
    }

    #[test]
    fn a_policy_of_no_run_allows_none() {
        for (max_attempts, allows) in [(0, false), (1, true), (2, true)] {
            let policy = RetryPolicy {
                max_attempts,
                ..RetryPolicy::default()
            };
            assert_eq!(policy.allows_a_run(), allows, "{max_attempts}");
        }
    }

    #[test]
    fn a_delay_grows_with_the_random_number() {
        let policy = RetryPolicy::fixed(Duration::from_secs(10));
        assert_eq!(policy.delay(1, 0.0), Duration::from_secs(9));
        assert_eq!(policy.delay(1, 1.0), Duration::from_secs(11));
    }
}
