//! Pace of background work: each step is followed by a rest in proportion to the time it took, so that tasks which fall
//! due meanwhile find the ledger, Redis and this process idle most of the time.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A rest is this many times as long as the step before it.
const RESTS: u32 = 2;

/// Minimum and maximum rest after one step.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(500);

/// Delay of a rest's end that is ignored: the timer counts in milliseconds.
const TICK: Duration = Duration::from_millis(2);

/// Measures steps, and rests between them. A step takes longer while the servers or this process have other work. A
/// rest ends late while this process lacks CPU time. Both make the next rest longer.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    /// Delay of the last rest's end.
    late: Duration,
    rests: bool,
}

impl Pace {
    /// Begins the first step.
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            late: Duration::ZERO,
            rests: true,
        }
    }

    /// Begins the first step for a caller that waits for the end of the work: yields between steps instead of resting.
    pub fn without_rests() -> Self {
        Self {
            rests: false,
            ..Self::begin()
        }
    }

    /// Ends a step, rests, and begins the next.
    pub async fn rest(&mut self) {
        if !self.rests {
            return tokio::task::yield_now().await;
        }
        let ends = Instant::now() + rest_after(self.began.elapsed() + self.late);
        sleep_until(ends).await;
        self.late = ends.elapsed().saturating_sub(TICK);
        self.next_step();
    }

    /// Begins the next step: the time since the last rest was no work.
    pub fn next_step(&mut self) {
        self.began = Instant::now();
    }
}

/// Shortens `interval` by up to a tenth, so that daemons that started together do not work in step.
pub fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.9..=1.0))
}

fn rest_after(waited: Duration) -> Duration {
    waited.saturating_mul(RESTS).clamp(REST_MIN, REST_MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_a_multiple_of_the_step_within_bounds() {
        let mut pace = Pace::begin();
        for (step_ms, rest_ms) in [(0, 1), (2, 4), (10, 20), (1_000, 500)] {
            sleep(Duration::from_millis(step_ms)).await;
            let began = Instant::now();
            pace.rest().await;
            assert_eq!(began.elapsed(), Duration::from_millis(rest_ms), "{step_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_wake_up_makes_the_next_rest_longer() {
        let mut pace = Pace::begin();
        pace.late = Duration::from_millis(20);
        let began = Instant::now();
        pace.rest().await;
        assert_eq!(began.elapsed(), Duration::from_millis(40));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_without_rests_does_not_rest() {
        let began = Instant::now();
        let mut pace = Pace::without_rests();
        sleep(Duration::from_millis(10)).await;
        pace.rest().await;
        assert_eq!(began.elapsed(), Duration::from_millis(10));
    }
}
