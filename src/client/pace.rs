//! How fast many rows are changed.

use std::num::NonZeroU32;
use std::time::Duration;

/// Maximum number of rows that one statement, and its transaction, changes.
pub(super) const BATCH_MAX: u32 = 500;

/// Statements per second, where one changes fewer rows than [`BATCH_MAX`].
const STATEMENTS_PER_SECOND: u32 = 10;

/// The rate at which many rows are changed, in rows per second, so that tasks that run meanwhile are not late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace(NonZeroU32);

impl Pace {
    /// This number of rows per second.
    pub const fn per_second(rows: NonZeroU32) -> Self {
        Self(rows)
    }

    /// Returns the number of rows of one statement.
    pub(super) fn batch(self) -> u32 {
        (self.0.get() / STATEMENTS_PER_SECOND).clamp(1, BATCH_MAX)
    }

    /// Returns the interval between statements of this number of rows.
    pub(super) fn interval(self, rows: u32) -> Duration {
        Duration::from_secs(1) * rows / self.0.get()
    }
}

impl Default for Pace {
    /// 1,000 rows per second.
    fn default() -> Self {
        Self(NonZeroU32::new(1_000).expect("it is not zero"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_in_batches_of_few_rows() {
        for rate in [1, 7, 10, 500, 1_000, 5_000, 100_000] {
            let pace = Pace::per_second(NonZeroU32::new(rate).unwrap());
            let per_second = f64::from(pace.batch()) / pace.interval(pace.batch()).as_secs_f64();
            assert!((per_second / f64::from(rate) - 1.0).abs() < 0.01, "{rate}");
            assert!(pace.batch() <= BATCH_MAX);
        }
    }
}
