//! Thresholds: from when on something counts as wrong, the same in `lapsed doctor`, on pages, in alerts and in the rules
//! for Prometheus. `[alerts]` changes some of them.

use std::time::Duration;

use crate::config::AlertsConfig;

/// A task that fell due at most this long ago is about to start: a sweep finds every task within 2 s.
pub const STARTING: Duration = Duration::from_secs(3);

/// Tasks that are overdue for longer need a person, unless they are paused or held.
pub const OVERDUE: Duration = Duration::from_secs(60);

/// Tasks start late if one of a hundred starts later than this.
pub const LATE: Duration = Duration::from_secs(1);

/// Number of tasks that die in the window before it is a pattern.
pub const DEAD: u64 = 1;

/// Share of starts in the window, in percent, that the sweep may cause.
pub const SWEPT_PERCENT: u8 = 10;

/// Fewer starts by the sweep are no pattern.
pub const SWEPT_MIN: u64 = 10;

/// Fewer adopted tasks cancelled at once, because their entries or keys are missing, are no pattern.
pub const CANCELLED_BY_KEY_MIN: usize = 20;

/// A sentinel is missed if none was heard for this many of its intervals.
pub const SENTINEL_INTERVALS: f64 = 1.5;

/// How far back counts of events look.
pub const WINDOW: Duration = Duration::from_secs(300);

/// An outage of the ledger, of the subscription or of another daemon is reported when it has lasted this long.
pub const DOWN_FOR: Duration = Duration::from_secs(30);

/// The thresholds of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// Maximum 99th percentile of lateness; `None`: any.
    pub late: Option<Duration>,
    /// Maximum time that a task may be overdue; `None`: any.
    pub overdue: Option<Duration>,
    /// Number of tasks that die in the window; 0: any.
    pub dead: u64,
    /// Maximum share of starts by the sweep, in percent.
    pub swept: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            late: Some(LATE),
            overdue: Some(OVERDUE),
            dead: DEAD,
            swept: SWEPT_PERCENT,
        }
    }
}

impl From<&AlertsConfig> for Thresholds {
    fn from(config: &AlertsConfig) -> Self {
        Self {
            late: config.late,
            overdue: config.overdue,
            dead: config.dead,
            swept: config.swept,
        }
    }
}
