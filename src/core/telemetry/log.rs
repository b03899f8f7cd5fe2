//! Limiter of repeated log lines.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Admits one line of each reason per interval, and counts the lines held back.
///
/// Reasons must come from a small fixed set: each is remembered for ever.
#[derive(Debug)]
pub struct LogLimiter {
    interval: Duration,
    reasons: Mutex<HashMap<&'static str, Logged>>,
}

#[derive(Debug)]
struct Logged {
    at: Instant,
    held_back: u64,
}

impl LogLimiter {
    /// Creates a limiter that admits one line of each reason every `interval`.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            reasons: Mutex::default(),
        }
    }

    /// Returns `Some` if a line is to be logged now. The inner value is the number of lines of this reason held back since
    /// the last one; `None`, which a log line does not show, if there were none.
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
                    Logged {
                        at: now,
                        held_back: 0,
                    },
                );
                Some(None)
            }
            Some(logged) if now.duration_since(logged.at) >= self.interval => {
                logged.at = now;
                Some(Some(std::mem::take(&mut logged.held_back)).filter(|count| *count > 0))
            }
            Some(logged) => {
                logged.held_back += 1;
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
        let limit = LogLimiter::every(Duration::from_secs(10));
        assert_eq!(limit.admit("a"), Some(None));
        assert_eq!(limit.admit("a"), None);
        assert_eq!(limit.admit("a"), None);
        assert_eq!(limit.admit("b"), Some(None));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(limit.admit("a"), Some(Some(2)));
    }
}
