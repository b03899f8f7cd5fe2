//! Waiting for a condition.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longest wait for a condition. Only a failure waits this long: it is far beyond what a busy machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How often a condition is looked at.
pub const POLL: Duration = Duration::from_millis(10);

/// Waits until the condition holds; panics after [`DEADLINE`]. On a paused clock it takes no real time.
pub async fn until(what: impl Display, holds: impl AsyncFn() -> bool) {
    until_within(DEADLINE, what, holds).await;
}

/// As [`until`], with a deadline for conditions that need longer.
pub async fn until_within(deadline: Duration, what: impl Display, holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            sleep(POLL).await;
        }
    };
    if timeout(deadline, held).await.is_err() {
        panic!("after {deadline:?} it still does not hold that {what}");
    }
}
