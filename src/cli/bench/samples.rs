//! Exact percentiles of lateness.

/// Lateness of one task, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// The task started.
    Started(u64),
    /// The task had not started this long after its due time, when watching ended.
    MoreThan(u64),
}

/// Sorted lateness of many tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// Ascending lower bounds, and whether each is only a lower bound.
    sorted_us: Vec<(u64, bool)>,
    /// The smallest value that is only a lower bound.
    open_from_us: Option<u64>,
}

impl Samples {
    /// Creates samples, one per task.
    pub fn new(all: impl IntoIterator<Item = Lateness>) -> Self {
        let known = all.into_iter().map(|lateness| match lateness {
            Lateness::Started(us) => (us, false),
            Lateness::MoreThan(us) => (us, true),
        });
        let mut sorted_us: Vec<(u64, bool)> = known.collect();
        sorted_us.sort_unstable();
        let open = sorted_us.iter().find(|(_, open)| *open);
        Self {
            open_from_us: open.map(|(us, _)| *us),
            sorted_us,
        }
    }

    /// Number of tasks, including those that never started.
    pub fn len(&self) -> usize {
        self.sorted_us.len()
    }

    /// Percentile by nearest rank. It is a lower bound if a task with at most this value had not started: its lateness
    /// may be larger. `None` if there are no tasks.
    pub fn percentile(&self, percent: f64) -> Option<Lateness> {
        let rank = (percent / 100.0 * self.len() as f64 - 1e-9).ceil().max(1.0) as usize;
        let (us, _) = *self.sorted_us.get(rank - 1)?;
        Some(match self.open_from_us {
            Some(open) if open <= us => Lateness::MoreThan(us),
            _ => Lateness::Started(us),
        })
    }

    /// The largest.
    pub fn max(&self) -> Option<Lateness> {
        self.percentile(100.0)
    }

    /// At most about `points` pairs of a lateness and the share of all, 0 to 1, that started within it, ascending.
    pub fn cumulative(&self, points: usize) -> Vec<(u64, f64)> {
        let started = self.sorted_us.iter().filter(|(_, open)| !open);
        let started: Vec<u64> = started.map(|(us, _)| *us).collect();
        let step = started.len().div_ceil(points.max(1)).max(1);
        let last = started.len().checked_sub(1);
        (0..started.len())
            .step_by(step)
            .chain(last.filter(|last| last % step != 0))
            .map(|at| (started[at], (at + 1) as f64 / self.len() as f64))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Lateness::{MoreThan, Started};
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples = Samples::new((1..=1000).rev().map(Started));
        for (percent, expected) in [(50.0, 500), (90.0, 900), (99.0, 990), (99.9, 999)] {
            let found = samples.percentile(percent);
            assert_eq!(found, Some(Started(expected)), "{percent}");
        }
        assert_eq!(samples.max(), Some(Started(1000)));
        assert_eq!(
            Samples::new([Started(7)]).percentile(50.0),
            Some(Started(7))
        );
        assert_eq!(Samples::new([]).percentile(50.0), None);
    }

    #[test]
    fn what_never_started_makes_percentiles_from_there_on_lower_bounds() {
        let samples = Samples::new([Started(1), MoreThan(5), Started(9), Started(3)]);
        assert_eq!(samples.len(), 4);
        assert_eq!(samples.percentile(50.0), Some(Started(3)));
        assert_eq!(samples.percentile(75.0), Some(MoreThan(5)));
        // This one started after 9, but the other may have taken longer.
        assert_eq!(samples.max(), Some(MoreThan(9)));
    }

    #[test]
    fn a_curve_rises_to_the_share_that_started() {
        let tasks = (0..1000).map(|n| if n < 500 { Started(n) } else { MoreThan(n) });
        let samples = Samples::new(tasks);
        let curve = samples.cumulative(7);
        assert!(curve.len() <= 8, "{curve:?}");
        assert!(curve.is_sorted());
        assert_eq!(curve.last(), Some(&(499, 0.5)));
        assert_eq!(Samples::new([]).cumulative(7), []);
    }
}
