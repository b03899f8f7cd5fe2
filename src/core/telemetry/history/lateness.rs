//! Distribution of lateness: counts by bucket, exact to a sixteenth, which can be added up over time and daemons.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Buckets to a power of two, as a power of two. A percentile is at most one part in 16 too high.
const PARTS_BITS: u32 = 4;
const PARTS: u64 = 1 << PARTS_BITS;

/// The longest lateness with a bucket of its own is below `2^LENGTH_MAX_BITS` ms: 198 days.
const LENGTH_MAX_BITS: u32 = 34;

/// Number of buckets: one for each of the first [`PARTS`] milliseconds, then [`PARTS`] for each power of two.
const BUCKETS: usize = (PARTS as usize) * (LENGTH_MAX_BITS - PARTS_BITS + 1) as usize;

/// Counts of lateness by bucket since the start of the process. Recording is one addition without a lock.
#[derive(Debug)]
pub(super) struct LatenessCounter {
    buckets: Box<[AtomicU64]>,
    /// The maximum since it was last taken.
    max_ms: AtomicU64,
}

impl Default for LatenessCounter {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max_ms: AtomicU64::new(0),
        }
    }
}

impl LatenessCounter {
    pub(super) fn record(&self, ms: u64) {
        self.buckets[bucket_of(ms)].fetch_add(1, Ordering::Relaxed);
        self.max_ms.fetch_max(ms, Ordering::Relaxed);
    }

    /// The counts since the start of the process.
    pub(super) fn read(&self) -> Vec<u64> {
        let counts = self.buckets.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Returns the maximum since the last call.
    pub(super) fn take_max_ms(&self) -> u64 {
        self.max_ms.swap(0, Ordering::Relaxed)
    }
}

/// How late runs started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of runs by bucket, without empty ones.
    counts: BTreeMap<u16, u64>,
    max_ms: u64,
}

/// Percentiles of lateness, in milliseconds. A percentile is at most a sixteenth too high; the maximum is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LatenessPercentiles {
    /// Number of runs.
    pub count: u64,
    /// Median.
    pub p50_ms: u64,
    /// 95th percentile.
    pub p95_ms: u64,
    /// 99th percentile.
    pub p99_ms: u64,
    /// Maximum.
    pub max_ms: u64,
}

impl Lateness {
    /// The runs between two reads of a counter. Their maximum is rounded up to the end of its bucket.
    pub(super) fn between(before: &[u64], now: &[u64]) -> Self {
        let before = before.iter().copied().chain(std::iter::repeat(0));
        let counts: BTreeMap<u16, u64> = (0..)
            .zip(now.iter().zip(before))
            .map(|(bucket, (now, before))| (bucket, now.saturating_sub(before)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let last = counts.last_key_value();
        Self {
            max_ms: last.map_or(0, |(bucket, _)| upper_end_of(usize::from(*bucket))),
            counts,
        }
    }

    /// With the exact maximum.
    pub(super) fn with_max_ms(self, max_ms: u64) -> Self {
        Self { max_ms, ..self }
    }

    /// Adds the runs of another minute or daemon.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { counts, max_ms } = other;
        for (bucket, count) in counts {
            let sum = self.counts.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.max_ms = self.max_ms.max(*max_ms);
    }

    /// Returns the percentiles; `None` without runs.
    pub fn percentiles(&self) -> Option<LatenessPercentiles> {
        let count = self
            .counts
            .values()
            .fold(0, |sum: u64, n| sum.saturating_add(*n));
        if count == 0 {
            return None;
        }
        let percentile = |percent: u128| {
            // Nearest rank.
            let rank = (u128::from(count) * percent).div_ceil(100).max(1);
            let mut below = 0_u128;
            for (bucket, count) in &self.counts {
                below += u128::from(*count);
                if below >= rank {
                    return upper_end_of(usize::from(*bucket)).min(self.max_ms);
                }
            }
            self.max_ms
        };
        Some(LatenessPercentiles {
            count,
            p50_ms: percentile(50),
            p95_ms: percentile(95),
            p99_ms: percentile(99),
            max_ms: self.max_ms,
        })
    }
}

/// The bucket of a lateness. A longer one than the last bucket is counted there.
fn bucket_of(ms: u64) -> usize {
    if ms < PARTS {
        return ms as usize;
    }
    let power = ms.ilog2();
    let part = (ms >> (power - PARTS_BITS)) - PARTS;
    let bucket = u64::from(power - PARTS_BITS + 1) * PARTS + part;
    (bucket as usize).min(BUCKETS - 1)
}

/// The longest lateness in a bucket.
fn upper_end_of(bucket: usize) -> u64 {
    let bucket = bucket.min(BUCKETS - 1) as u64;
    let (group, part) = (bucket / PARTS, bucket % PARTS);
    match group {
        0 => part,
        _ => ((PARTS + part + 1) << (group - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(lateness_ms: &[u64]) -> Lateness {
        let counter = LatenessCounter::default();
        lateness_ms.iter().for_each(|ms| counter.record(*ms));
        Lateness::between(&[], &counter.read()).with_max_ms(counter.take_max_ms())
    }

    #[test]
    fn the_runs_between_two_reads_are_told_apart() {
        let counter = LatenessCounter::default();
        counter.record(3);
        counter.record(9);
        let first = counter.read();
        counter.record(4);
        counter.record(1_000);
        let since = Lateness::between(&first, &counter.read());
        let spread = since.percentiles().unwrap();
        assert_eq!((spread.count, spread.p50_ms, spread.max_ms), (2, 4, 1_023));
        assert_eq!((counter.take_max_ms(), counter.take_max_ms()), (1_000, 0));
        assert_eq!(Lateness::between(&first, &first), Lateness::default());
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        assert_eq!(of(&[]).percentiles(), None);
        let hundred: Vec<u64> = (1..=100).collect();
        let spread = of(&hundred).percentiles().unwrap();
        assert_eq!((spread.p50_ms, spread.p95_ms, spread.p99_ms), (51, 95, 99));
        assert_eq!((spread.count, spread.max_ms), (100, 100));
    }

    #[test]
    fn a_lateness_of_years_is_counted() {
        let spread = of(&[u64::MAX, 5]).percentiles().unwrap();
        assert_eq!((spread.p50_ms, spread.max_ms), (5, u64::MAX));
    }

    proptest! {
        #[test]
        fn a_bucket_is_a_sixteenth_wide_at_most(ms in 0_u64..1 << LENGTH_MAX_BITS) {
            let upper = upper_end_of(bucket_of(ms));
            prop_assert!(upper >= ms && upper - ms <= ms / PARTS, "{ms} in a bucket up to {upper}");
        }

        #[test]
        fn adding_up_is_as_good_as_counting_together(
            a in prop::collection::vec(0_u64..100_000, 0..40),
            b in prop::collection::vec(0_u64..100_000, 0..40),
        ) {
            let mut sum = of(&a);
            sum.add(&of(&b));
            prop_assert_eq!(sum, of(&[a, b].concat()));
        }
    }
}
