//! Exact percentiles of lateness.

/// Sorted values of those that started, and how many never did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    sorted_us: Vec<u64>,
    missing: usize,
}

impl Samples {
    /// One value for each task, `None` for one that never started.
    pub fn new(values_us: impl IntoIterator<Item = Option<u64>>) -> Self {
        let (mut sorted_us, mut missing) = (Vec::new(), 0);
        for value in values_us {
            match value {
                Some(value) => sorted_us.push(value),
                None => missing += 1,
            }
        }
        sorted_us.sort_unstable();
        Self { sorted_us, missing }
    }

    /// How many tasks there are, those that never started included.
    pub fn len(&self) -> usize {
        self.sorted_us.len() + self.missing
    }

    /// The smallest value that is not exceeded by `percent` of all (nearest rank); `None` if that many never
    /// started, or if there is none at all.
    pub fn percentile_us(&self, percent: f64) -> Option<u64> {
        let rank = (percent / 100.0 * self.len() as f64 - 1e-9).ceil().max(1.0) as usize;
        self.sorted_us.get(rank - 1).copied()
    }

    /// The largest; `None` if any never started.
    pub fn max_us(&self) -> Option<u64> {
        self.percentile_us(100.0)
    }

    /// At most `points` pairs of a value and the share of all, 0 to 1, that does not exceed it, ascending.
    pub fn cumulative(&self, points: usize) -> Vec<(u64, f64)> {
        let count = self.sorted_us.len();
        let step = count.div_ceil(points.max(1)).max(1);
        let last = count.checked_sub(1);
        (0..count)
            .step_by(step)
            .chain(last.filter(|last| last % step != 0))
            .map(|at| (self.sorted_us[at], (at + 1) as f64 / self.len() as f64))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples = Samples::new((1..=1000).rev().map(Some));
        for (percent, expected) in [(50.0, 500), (90.0, 900), (99.0, 990), (99.9, 999)] {
            assert_eq!(samples.percentile_us(percent), Some(expected), "{percent}");
        }
        assert_eq!(samples.max_us(), Some(1000));
        assert_eq!(Samples::new([Some(7)]).percentile_us(50.0), Some(7));
        assert_eq!(Samples::new([]).percentile_us(50.0), None);
    }

    #[test]
    fn what_never_started_is_later_than_everything() {
        let samples = Samples::new([Some(1), None, Some(3), Some(2)]);
        assert_eq!(samples.len(), 4);
        assert_eq!(samples.percentile_us(75.0), Some(3));
        assert_eq!(samples.percentile_us(76.0), None);
        assert_eq!(samples.max_us(), None);
    }

    #[test]
    fn a_curve_rises_to_the_share_that_started() {
        let samples = Samples::new((0..1000).map(|n| (n < 500).then_some(n)));
        let curve = samples.cumulative(7);
        assert!(curve.len() <= 8, "{curve:?}");
        assert!(curve.is_sorted());
        assert_eq!(curve.last(), Some(&(499, 0.5)));
        assert_eq!(Samples::new([]).cumulative(7), []);
    }
}
