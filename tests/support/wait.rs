//! Waiting for a condition.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Longest wait for a condition. Only a failure waits this long: it is far beyond what a busy machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How often a condition is checked at first.
pub const POLL: Duration = Duration::from_millis(10);

/// A check that has waited long may come later by this part of it: hours on a paused clock are not millions of checks.
const OVERSHOOT: u32 = 100;

/// Waits until the condition holds; panics after [`DEADLINE`]. On a paused clock it takes no real time.
pub async fn until(what: impl Display, holds: impl AsyncFn() -> bool) {
    until_within(DEADLINE, what, holds).await;
}

/// As [`until`], with a deadline for conditions that need longer.
pub async fn until_within(deadline: Duration, what: impl Display, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    let held = async {
        while !holds().await {
            sleep(POLL.max(began.elapsed() / OVERSHOOT)).await;
        }
    };
    if timeout(deadline, held).await.is_err() {
        panic!("after {deadline:?} it still does not hold that {what}");
    }
}
