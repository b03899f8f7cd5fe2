//! The limiter that keeps repeated warnings from filling a disk.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Lets one line of each reason through per interval, and counts what it held back.
///
/// Reasons must come from a small fixed set: each is remembered for ever.
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    reasons: Mutex<HashMap<&'static str, Seen>>,
}

#[derive(Debug)]
struct Seen {
    spoken: Instant,
    held_back: u64,
}

impl RateLimit {
    /// One line of each reason every `interval`.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            reasons: Mutex::default(),
        }
    }

    /// Whether to log a line now. The inner number says how many lines of this reason were left out since the last one;
    /// `None`, which a log line does not show, if there were none.
    pub fn admit(&self, reason: &'static str) -> Option<Option<u64>> {
        let mut reasons = self
            .reasons
            .lock()
            .expect("nothing panics while holding the limiter");
        let now = Instant::now();
        match reasons.get_mut(reason) {
            None => {
                reasons.insert(
                    reason,
                    Seen {
                        spoken: now,
                        held_back: 0,
                    },
                );
                Some(None)
            }
            Some(seen) if now.duration_since(seen.spoken) >= self.interval => {
                seen.spoken = now;
                Some(Some(std::mem::take(&mut seen.held_back)).filter(|count| *count > 0))
            }
            Some(seen) => {
                seen.held_back += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_per_reason_and_interval_gets_through() {
        let limit = RateLimit::every(Duration::from_secs(10));
        assert_eq!(limit.admit("a"), Some(None));
        assert_eq!(limit.admit("a"), None);
        assert_eq!(limit.admit("a"), None);
        assert_eq!(limit.admit("b"), Some(None));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(limit.admit("a"), Some(Some(2)));
    }
}
