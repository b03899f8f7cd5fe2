//! Statistics: counts of tasks by state, class and method.

use std::collections::BTreeMap;
use std::time::Duration;

/// Number of tasks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Stats {
    /// Pending, not running, no retry ahead.
    pub pending: u64,
    /// A retry lies ahead.
    pub waiting: u64,
    /// Leased.
    pub running: u64,
    /// Succeeded.
    pub done: u64,
    /// Failed for good.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Of the pending and waiting ones, those whose time has passed.
    pub overdue: u64,
    /// How long the oldest of those has been overdue, in milliseconds.
    pub overdue_ms_max: u64,
    /// Overdue rows whose key is no task key. They are in none of the other counts.
    pub malformed: u64,
}

impl Stats {
    /// Each count with its word.
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

/// Most rows that [`Admin::detailed_stats`](super::Admin::detailed_stats) reads, however large the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetailedStatsLimits {
    /// Rows that are not finished.
    pub rows: u32,
    /// Entries of the index, for each state: these are counted and not read.
    pub entries: u32,
    /// Dead rows: what they say of methods.
    pub dead: u32,
    /// Done rows, those that fell due last.
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
    /// As little as a gauge needs that is kept fresh.
    pub const GAUGES: Self = Self {
        rows: 10_000,
        entries: 100_000,
        dead: 0,
        done: 0,
    };
}

/// What ended longer ago than this did not end lately.
pub const LATELY: Duration = Duration::from_secs(3_600);

/// Result of [`Admin::detailed_stats`](super::Admin::detailed_stats).
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct DetailedStats {
    /// How many tasks are in which state.
    #[serde(flatten)]
    pub counts: Stats,
    /// The states, as [`Stats::by_state`] calls them, of which there are at least so many: counting ended there.
    pub at_least: Vec<&'static str>,
    /// By class and method, in the order of their names.
    pub methods: Vec<MethodStats>,
    /// `methods` are about so many of the rows that are not finished, those that fall due first; `None`: about all.
    pub methods_of: Option<u32>,
    /// The same of the dead ones, those that fell due first.
    pub methods_of_dead: Option<u32>,
}

/// The tasks of one class and method.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct MethodStats {
    /// `Class@method`.
    pub name: String,
    /// As [`Stats::pending`].
    pub pending: u64,
    /// As [`Stats::waiting`].
    pub waiting: u64,
    /// As [`Stats::running`].
    pub running: u64,
    /// As [`Stats::overdue`].
    pub overdue: u64,
    /// As [`Stats::overdue_ms_max`].
    pub overdue_ms_max: u64,
    /// As [`Stats::dead`].
    pub dead: u64,
    /// How long those took, from due to done, that ended well [lately](LATELY) and at the first attempt; of the tasks
    /// that fell due last. `None`: there are none.
    pub due_to_done: Option<Spread>,
}

/// How durations are spread, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Spread {
    /// Of how many.
    pub count: u64,
    /// Half of them are no longer.
    pub p50_ms: u64,
    /// 99 of 100 are no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Spread {
    /// Of these, in any order; `None` if there are none.
    pub fn of(mut durations_ms: Vec<u64>) -> Option<Self> {
        durations_ms.sort_unstable();
        let max_ms = *durations_ms.last()?;
        let count = durations_ms.len();
        // The nearest rank: a duration that was seen.
        let rank = |percent: usize| durations_ms[(count * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            count: count as u64,
            p50_ms: rank(50),
            p99_ms: rank(99),
            max_ms,
        })
    }
}

/// Figures while they are put together.
#[derive(Debug, Default)]
pub(super) struct MethodCollector(BTreeMap<String, (MethodStats, Vec<u64>)>);

impl MethodCollector {
    /// The figures of one of them, to be added to.
    pub(super) fn of(&mut self, name: &str) -> &mut MethodStats {
        &mut self.entry(name).0
    }

    /// One that ended lately took so long.
    pub(super) fn took(&mut self, name: &str, ms: u64) {
        self.entry(name).1.push(ms);
    }

    fn entry(&mut self, name: &str) -> &mut (MethodStats, Vec<u64>) {
        self.0.entry(name.to_owned()).or_default()
    }

    /// All of them.
    pub(super) fn into_stats(self) -> Vec<MethodStats> {
        let figures = self.0.into_iter();
        let figures = figures.map(|(name, (figures, took))| MethodStats {
            name,
            due_to_done: Spread::of(took),
            ..figures
        });
        figures.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_made_of_durations_that_were_seen() {
        let of = |durations: &[u64]| {
            Spread::of(durations.to_vec())
                .map(|spread| (spread.p50_ms, spread.p99_ms, spread.max_ms))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((7, 7, 7)));
        assert_eq!(of(&[9, 1, 5]), Some((5, 9, 9)));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), Some((50, 99, 100)));
    }
}
