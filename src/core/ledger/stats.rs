//! Statistics: counts of tasks by state, class and method.

mod per_class;

use std::collections::BTreeMap;
use std::time::Duration;

/// Number of tasks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stats {
    /// Pending, not running, and not waiting for a retry.
    pub pending: u64,
    /// Waiting for a retry.
    pub waiting: u64,
    /// Running: leased.
    pub running: u64,
    /// Succeeded.
    pub done: u64,
    /// Failed permanently.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Pending or waiting, and past the time at which they may start.
    pub overdue: u64,
    /// How long the oldest of them has been overdue, in milliseconds.
    pub overdue_ms_max: u64,
    /// Overdue rows whose key is not a task key. No other count includes them.
    pub malformed: u64,
}

impl Stats {
    /// Returns each count with its name.
    pub fn by_state(&self) -> [(&'static str, u64); 8] {
        let Self {
            pending,
            waiting,
            running,
            done,
            dead,
            cancelled,
            overdue,
            overdue_ms_max: _,
            malformed,
        } = *self;
        [
            ("pending", pending),
            ("waiting", waiting),
            ("running", running),
            ("done", done),
            ("dead", dead),
            ("cancelled", cancelled),
            ("overdue", overdue),
            ("malformed", malformed),
        ]
    }
}

/// Maximum numbers of rows that [`Admin::detailed_stats`](super::Admin::detailed_stats) reads, however large the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetailedStatsLimits {
    /// Unfinished rows.
    pub rows: u32,
    /// Index entries for each state. They are counted without reading their rows.
    pub entries: u32,
    /// Dead rows, for the counts by method.
    pub dead: u32,
    /// Done rows, latest due time first.
    pub done: u32,
}

impl Default for DetailedStatsLimits {
    fn default() -> Self {
        Self {
            rows: 25_000,
            entries: 1_000_000,
            dead: 25_000,
            done: 10_000,
        }
    }
}

impl DetailedStatsLimits {
    /// Limits for gauges, which are updated often.
    pub const GAUGES: Self = Self {
        rows: 10_000,
        entries: 100_000,
        dead: 0,
        done: 0,
    };
}

/// Maximum age of the runs in [`MethodStats::due_to_done`].
pub const RECENT: Duration = Duration::from_secs(3_600);

/// Counts of tasks by state, class and method.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DetailedStats {
    /// Number of tasks by state.
    #[serde(flatten)]
    pub counts: Stats,
    /// The states whose count stopped at a limit: there are at least as many.
    pub at_least: Vec<&'static str>,
    /// Counts by class and method, in the order of their names.
    pub methods: Vec<MethodStats>,
    /// Number of unfinished rows that `methods` covers, earliest due time first; `null` if it covers all.
    pub methods_of: Option<u32>,
    /// Number of dead rows that `methods` covers, earliest due time first; `null` if it covers all.
    pub methods_of_dead: Option<u32>,
}

/// The tasks of one class and method.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MethodStats {
    /// `Class@method`.
    pub name: String,
    /// Not running, and not waiting for a retry.
    pub pending: u64,
    /// Waiting for a retry.
    pub waiting: u64,
    /// Leased to a daemon.
    pub running: u64,
    /// Past the time at which they may start.
    pub overdue: u64,
    /// How long the oldest of them has been overdue, in milliseconds.
    pub overdue_ms_max: u64,
    /// Failed permanently.
    pub dead: u64,
    /// Time from due to done of tasks that succeeded at the first attempt within the last hour, of those that fell due last.
    pub due_to_done: Option<Percentiles>,
}

/// Percentiles of durations, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Percentiles {
    /// Number of durations.
    pub count: u64,
    /// Median.
    pub p50_ms: u64,
    /// 99th percentile.
    pub p99_ms: u64,
    /// Maximum.
    pub max_ms: u64,
}

impl Percentiles {
    /// Computes the percentiles of durations in any order; `None` if there are none.
    pub fn of(mut durations_ms: Vec<u64>) -> Option<Self> {
        durations_ms.sort_unstable();
        let max_ms = *durations_ms.last()?;
        let count = durations_ms.len();
        // Nearest rank: each percentile is one of the durations.
        let rank = |percent: usize| durations_ms[(count * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            count: count as u64,
            p50_ms: rank(50),
            p99_ms: rank(99),
            max_ms,
        })
    }
}

/// Collects counts and durations by method.
#[derive(Debug, Default)]
pub struct MethodCollector(BTreeMap<String, (MethodStats, Vec<u64>)>);

impl MethodCollector {
    /// Returns the counts of a method, to be added to.
    pub fn of(&mut self, name: &str) -> &mut MethodStats {
        &mut self.entry(name).0
    }

    /// Adds the time from due to done of one task.
    pub fn took(&mut self, name: &str, ms: u64) {
        self.entry(name).1.push(ms);
    }

    fn entry(&mut self, name: &str) -> &mut (MethodStats, Vec<u64>) {
        self.0.entry(name.to_owned()).or_default()
    }

    /// Returns the counts of all methods.
    pub fn into_stats(self) -> Vec<MethodStats> {
        let of_method = self.0.into_iter();
        let of_method = of_method.map(|(name, (of_method, took))| MethodStats {
            name,
            due_to_done: Percentiles::of(took),
            ..of_method
        });
        of_method.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_made_of_durations_that_were_seen() {
        let of = |durations: &[u64]| {
            Percentiles::of(durations.to_vec())
                .map(|spread| (spread.p50_ms, spread.p99_ms, spread.max_ms))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((7, 7, 7)));
        assert_eq!(of(&[9, 1, 5]), Some((5, 9, 9)));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), Some((50, 99, 100)));
    }
}
