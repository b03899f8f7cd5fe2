//! Limits of a route: concurrency, rate, priority and timeout.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Rate;

/// What limits the runs of a route or of a registered handler; nothing at first.
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
    /// Most runs at a time in one daemon; `None`: as many as the daemon has slots.
    pub concurrency: Option<NonZeroU32>,
    /// Most starts in a span, over all daemons that share a Redis and a ledger.
    pub rate: Option<Rate>,
    /// Of those that may start, the highest goes first.
    pub priority: i8,
    /// Bound on one run; `None`: `engine.timeout`.
    pub timeout: Option<Duration>,
}

impl Limits {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the runs at a time in this daemon.
    ///
    /// # Panics
    /// If it is 0: a mistake of the program.
    pub fn concurrency(self, runs: u32) -> Self {
        let runs = NonZeroU32::new(runs);
        assert!(runs.is_some(), "limit concurrency: expected at least 1");
        Self {
            concurrency: runs,
            ..self
        }
    }

    /// Limits the starts in a span, over all daemons.
    pub fn rate(self, rate: Rate) -> Self {
        Self {
            rate: Some(rate),
            ..self
        }
    }

    /// Of those that may start, the highest goes first; equal ones take turns. 0 if not said.
    pub fn priority(self, priority: i8) -> Self {
        Self { priority, ..self }
    }

    /// One run may take so long.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }
}
