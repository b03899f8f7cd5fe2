//! Limits of a route: concurrency, rate, priority and timeout.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Rate;

/// Limits on the runs of a route or of a registered handler. By default, none.
///
/// ```
/// use std::time::Duration;
/// use lapsed::task::Limits;
///
/// let limits = Limits::new()
///     .concurrency(32)
///     .rate("100/s".parse()?)
///     .priority(10)
///     .timeout(Duration::from_secs(30));
/// # Ok::<(), lapsed::task::RateError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Most concurrent runs in one daemon; `None` is up to its number of slots.
    pub concurrency: Option<NonZeroU32>,
    /// Rate of starts over all daemons that share a Redis and a ledger.
    pub rate: Option<Rate>,
    /// Tasks of a higher priority start first.
    pub priority: i8,
    /// Longest run; `None` is `engine.timeout`.
    pub timeout: Option<Duration>,
}

impl Limits {
    /// Creates empty limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the concurrent runs in this daemon.
    ///
    /// # Panics
    /// If `runs` is 0.
    pub fn concurrency(self, runs: u32) -> Self {
        let runs = NonZeroU32::new(runs);
        assert!(runs.is_some(), "limit concurrency: expected at least 1");
        Self {
            concurrency: runs,
            ..self
        }
    }

    /// Limits the rate of starts over all daemons.
    pub fn rate(self, rate: Rate) -> Self {
        Self {
            rate: Some(rate),
            ..self
        }
    }

    /// Sets the priority. Higher priorities start first, equal ones take turns. The default is 0.
    pub fn priority(self, priority: i8) -> Self {
        Self { priority, ..self }
    }

    /// Sets the longest duration of one run.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_added_to_the_other_limits() {
        let limits = Limits::default().priority(3);
        let timeout = Some(Duration::from_secs(5));
        let expected = Limits { timeout, ..limits };
        assert_eq!(limits.timeout(Duration::from_secs(5)), expected);
    }
}
