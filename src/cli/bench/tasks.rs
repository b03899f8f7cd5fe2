//! Tasks of the benchmarks: their names and due times.

use std::time::Duration;

use lapsed::{Task, UnixMs};

use super::daemon::{CLASS, METHOD};

/// Tasks per call.
pub const BATCH: u32 = 500;

/// First number of far tasks, which do not fall due during the measurement.
pub const FAR: u32 = 3_000_000_000;

/// Earliest due time of far tasks, from now.
const FAR_FROM: Duration = Duration::from_secs(24 * 3600);

/// Span of the due times of far tasks.
const FAR_SPAN_MS: u64 = 23 * 24 * 3600 * 1000;

/// Distribution of due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// This many per second.
    Evenly(u32),
    /// All in the same millisecond.
    AtOnce,
    /// This many over this span, measured as one piece of work.
    Within(Duration, u32),
}

impl Arrivals {
    /// Milliseconds from the first task's due time to that of the task at `index`.
    pub fn offset_ms(self, index: u32) -> u64 {
        match self {
            Self::Evenly(rate) => u64::from(index) * 1000 / u64::from(rate),
            Self::AtOnce => 0,
            Self::Within(span, count) => {
                let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                u64::from(index) * span_ms / u64::from(count.max(1))
            }
        }
    }
}

/// The task of a number.
pub fn task(number: u32) -> Task {
    task_of(CLASS, number)
}

/// The task of a number, of another class.
pub fn task_of(class: &str, number: u32) -> Task {
    Task::new(class, METHOD, [number]).expect("class, method and a number fit the grammar")
}

/// Due time of a far task. Consecutive numbers are far apart, as with tasks of real users.
pub fn far_due(now: UnixMs, number: u32) -> UnixMs {
    let spread = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) % FAR_SPAN_MS;
    now.plus(FAR_FROM + Duration::from_millis(spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_tasks_fall_due_in_1_to_24_days() {
        const DAY_MS: i64 = 24 * 3600 * 1000;
        let dues: Vec<i64> = (FAR..FAR + 10_000)
            .map(|number| far_due(UnixMs(0), number).0)
            .collect();
        assert!(dues.iter().all(|due| (DAY_MS..24 * DAY_MS).contains(due)));
        let late = dues.iter().filter(|due| **due > 12 * DAY_MS).count();
        assert!((4_000..6_000).contains(&late), "{late}");
    }
}
